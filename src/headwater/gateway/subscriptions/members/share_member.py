"""A member of a queue (a share group, KIP-932) that lives in the gateway: heartbeats, who leads what, and records for
whoever waits for them.

Nothing is fetched before somebody asks; what nobody takes goes back to the queue.
"""

import asyncio
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from headwater.gateway.http.problems import unavailable
from headwater.gateway.kafka.brokers import Brokers, Refused, check
from headwater.gateway.kafka.connection import BrokerGone
from headwater.gateway.subscriptions.members.deliveries import Delivery
from headwater.gateway.subscriptions.members.leases import Fate, Lease, Leases
from headwater.gateway.subscriptions.members.share_link import ShareLink
from headwater.gateway.subscriptions.members.share_readers import ShareReaders
from headwater.gateway.subscriptions.members.share_session import Fetched, Lent
from headwater.gateway.subscriptions.settling import Settling, Verdict
from headwater.model.errors import ErrorCode
from headwater.records.batch import CorruptBatch, split
from headwater.records.compression import DecompressedTooLarge
from headwater.records.record import Record, records

SHARE_GROUP_HEARTBEAT = 76
JOIN, LEAVE = 0, -1
MAX_HELD = 10_000
READY_S = 10.0
TIDY_S = 0.25
DRAIN_S, DRAIN_STEP_S = 2.0, 0.005
LEAVE_S = 2.0
LOCK_MARGIN_MS = 100
"""A lease counts as over this much earlier than the broker says: it began before its answer arrived."""
FIRST_REST_S, LONGEST_REST_S = 0.1, 3.0

REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Settled(NamedTuple):
    ack_id: str
    status: str
    """done, expired, settled (before), unknown, or failed: the broker could not be asked."""


class ShareMember:
    def __init__(self, brokers: Brokers, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.lock_ms = 30_000
        """How long a lease lasts, as the broker said last."""
        self.idle_since_s = time.monotonic()
        self._brokers = brokers
        self._member_id = str(uuid4())
        self._leases = Leases(secrets.token_bytes(32), MAX_HELD)
        self._readers = ShareReaders(group, self._leases)
        self._assigned: frozenset[int] = frozenset()
        self._links: dict[tuple[int, object], tuple[ShareLink, asyncio.Task[None]]] = {}
        self._link_of: dict[int, ShareLink] = {}
        self._ready = asyncio.Event()
        self._stale = asyncio.Event()
        self._refusal: str | None = None

    # For readers

    async def take(self, max_records: int, max_bytes: int, wait_ms: int) -> list[Delivery]:
        """Some records, as soon as there are any; none when the time is over. Raises Problem."""
        self._readers.check_room()
        await self._joined()
        try:
            return await self._readers.take(max_records, max_bytes, wait_ms, self._link_of.values())
        finally:
            self.idle_since_s = time.monotonic()

    def ack_id(self, delivery: Delivery) -> str:
        return self._leases.ack_id(delivery.partition, delivery.offset, delivery.lease)

    async def settle(self, verdicts: Iterable[tuple[str, Verdict]]) -> list[Settled]:
        """What became of each, when the broker has it on disk."""
        self.idle_since_s = time.monotonic()
        now_ms = _now_ms()
        named = [(ack_id, self._leases.named(ack_id, now_ms), verdict) for ack_id, verdict in verdicts]
        asked: dict[int, Settling] = {}
        seen: set[int] = set()
        for index, (_, found, verdict) in enumerate(named):
            if isinstance(found, Lease) and found.number not in seen:
                seen.add(found.number)
                asked[index] = Settling(found, verdict, asyncio.get_running_loop().create_future())
        self._send(asked.values())
        statuses = []
        for index, (ack_id, found, _) in enumerate(named):
            if isinstance(found, Fate):
                statuses.append(Settled(ack_id, found.value))
            elif index in asked:
                statuses.append(Settled(ack_id, await self._outcome(asked[index])))
            else:
                statuses.append(Settled(ack_id, Fate.SETTLED.value))
        return statuses

    def settle_soon(self, deliveries: Iterable[Delivery], verdict: Verdict) -> None:
        """Without waiting for the broker. What it does not learn of comes again."""
        now_ms = _now_ms()
        self._send(
            Settling(lease, verdict, None)
            for each in deliveries
            if isinstance(lease := self._leases.held(each.partition, each.offset, each.lease, now_ms), Lease)
        )

    async def extend(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Renew their leases; returns those that are lost."""
        settled = await self.settle([(self.ack_id(each), Verdict.EXTEND) for each in deliveries])
        return [each for each, (_, status) in zip(deliveries, settled, strict=True) if status != "done"]

    async def drain(self) -> None:
        """Wait until the broker has answered everything that was decided, for a moment."""
        for _ in range(int(DRAIN_S / DRAIN_STEP_S)):
            if all(link.is_settled for link, _ in self._links.values()):
                break
            await asyncio.sleep(DRAIN_STEP_S)

    def holds(self, delivery: Delivery) -> bool:
        held = self._leases.held(delivery.partition, delivery.offset, delivery.lease, _now_ms())
        return isinstance(held, Lease)

    @property
    def held(self) -> int:
        return len(self._leases)

    @property
    def is_busy(self) -> bool:
        return len(self._readers) > 0 or len(self._leases) > 0

    # Living

    async def run(self) -> None:
        """Until cancelled; then leave, and give everything back."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tidy())
                await self._heartbeats(tasks)
        finally:
            self._refusal = "the member has left"
            self._readers.end()
            try:
                async with asyncio.timeout(LEAVE_S):
                    await self._heartbeat(LEAVE)
            except (BrokerGone, Refused, TimeoutError):
                pass  # its session runs out

    async def _heartbeats(self, tasks: asyncio.TaskGroup) -> None:
        epoch, rest_s = JOIN, FIRST_REST_S
        while True:
            try:
                answer = await self._heartbeat(epoch)
                epoch = answer.member_epoch
                if answer.assignment is not None:
                    self._assigned = frozenset(
                        index for topic in answer.assignment.topic_partitions for index in topic.partitions
                    )
                await self._place(tasks)
                rest_s, pause_s = FIRST_REST_S, answer.heartbeat_interval_ms / 1000
                self._refusal = None
            except (Refused, BrokerGone) as error:
                if isinstance(error, Refused) and error.code in REJOIN:
                    epoch = JOIN
                self._refusal = str(error)
                pause_s, rest_s = rest_s, min(2 * rest_s, LONGEST_REST_S)
            try:
                async with asyncio.timeout(pause_s):
                    await self._stale.wait()
                await asyncio.sleep(FIRST_REST_S)  # who leads is known a moment after who led is gone
            except TimeoutError:
                pass

    async def _heartbeat(self, epoch: int) -> "_Heartbeat":
        answer = await self._brokers.ask_coordinator(
            self.group,
            SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=[self.topic] if epoch == JOIN else None,
        )
        check(answer.error_code, answer.error_message, f"Group {self.group}")
        return _Heartbeat(answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment)

    async def _place(self, tasks: asyncio.TaskGroup) -> None:
        """Have each partition fetched from its leader."""
        topic = (await self._brokers.topics([self.topic])).get(self.topic)
        self._stale.clear()
        wanted: dict[tuple[int, object], set[int]] = {}
        for index in self._assigned:
            leader = topic.leaders.get(index, -1) if topic is not None else -1
            if topic is not None and leader >= 0:
                wanted.setdefault((leader, topic.topic_id), set()).add(index)
        for key in self._links.keys() - wanted.keys():
            link, task = self._links.pop(key)
            task.cancel()
            self._lost(link)
        for key, indexes in wanted.items():
            if key not in self._links:
                assert topic is not None, "it has leaders"
                link = ShareLink(self._brokers, key[0], self.group, self._member_id, topic.topic_id)
                task = tasks.create_task(link.run(self._readers.demand, self._readers.wanted, self._lend, self._lost))
                self._links[key] = (link, task)
            link = self._links[key][0]
            self._leases.drop_partitions(link.partitions - indexes)
            link.partitions = frozenset(indexes)
            self._link_of.update(dict.fromkeys(indexes, link))
        if self._link_of:
            self._ready.set()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_S)
            self._leases.drop_expired(_now_ms())
            self.settle_soon(self._readers.untaken(), Verdict.RELEASE)

    # Between readers and links

    async def _joined(self) -> None:
        if self._ready.is_set():
            return
        try:
            async with asyncio.timeout(READY_S):
                await self._ready.wait()
        except TimeoutError:
            raise unavailable(f"The group {self.group} could not be joined: {self._refusal or 'no answer'}.") from None

    def _lend(self, link: ShareLink, fetched: Fetched) -> None:
        self.lock_ms = fetched.lock_ms or self.lock_ms
        if fetched.has_errors:
            self._stale.set()
        until_ms = _now_ms() + self.lock_ms - LOCK_MARGIN_MS
        self._readers.arrived(each for lent in fetched.lent for each in self._deliveries(link, lent, until_ms))

    def _deliveries(self, link: ShareLink, lent: Lent, until_ms: int) -> Iterator[Delivery]:
        counts = {
            offset: count
            for first, last, count in lent.ranges
            for offset in range(first, min(last, first + MAX_HELD) + 1)
        }
        found, is_sound = _records(lent.records, counts.keys())
        for record in found:
            count = counts.pop(record.offset)
            lease = self._leases.lend(lent.partition, record.offset, until_ms)
            yield Delivery(
                self.topic,
                lent.partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                record.headers,
                count,
                lease.number,
            )
        # Offsets without a record were compacted away or end transactions; what cannot be read may be another time.
        rest = Verdict.GAP if is_sound else Verdict.RELEASE
        link.settle(Settling(Lease(lent.partition, offset, 0, until_ms), rest, None) for offset in counts)

    def _send(self, settlings: Iterable[Settling]) -> None:
        by_link: dict[ShareLink, list[Settling]] = {}
        for each in settlings:
            link = self._link_of.get(each.lease.partition)
            if each.verdict is not Verdict.EXTEND:
                self._leases.settle(each.lease)
            if link is None:
                if each.done is not None:
                    each.done.set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                by_link.setdefault(link, []).append(each)
        for link, of_link in by_link.items():
            link.settle(of_link)

    async def _outcome(self, settling: Settling) -> str:
        assert settling.done is not None, "somebody waits for it"
        try:
            code = await settling.done
        except (BrokerGone, Refused):
            self._leases.fail(settling.lease)
            return "failed"
        if code:
            self._leases.fail(settling.lease)
            return Fate.EXPIRED.value if code == ErrorCode.INVALID_RECORD_STATE else "failed"
        if settling.verdict is Verdict.EXTEND:
            self._leases.renew(settling.lease, _now_ms() + self.lock_ms - LOCK_MARGIN_MS)
        return "done"

    def _lost(self, link: ShareLink) -> None:
        self._leases.drop_partitions(index for index, each in self._link_of.items() if each is link)
        self._stale.set()


class _Heartbeat(NamedTuple):
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Any


def _records(batches: bytes, wanted: Iterable[int]) -> tuple[list[Record], bool]:
    """Those of the wanted offsets that can be read, and whether everything could be."""
    offsets = set(wanted)
    found: list[Record] = []
    try:
        for header, batch in split(batches):
            if not header.is_control:
                found += [record for record in records(batch, header) if record.offset in offsets]
    except (CorruptBatch, DecompressedTooLarge):
        return found, False
    return found, True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
