"""A member of a queue (a share group, KIP-932) that lives in the gateway: it sends heartbeats, follows the leaders of
its partitions, and gives records to the readers that wait for them.

Nothing is fetched before a reader waits; records that no reader takes are released.
"""

import asyncio
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias
from uuid import UUID, uuid4

from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.client.cluster_view import GROUP, Coordinated
from headwater.client.errors import BrokerRefused, ClientError, check
from headwater.gateway.http.problems import unavailable
from headwater.gateway.subscriptions.members.deliveries import Delivery
from headwater.gateway.subscriptions.members.leases import HeldLeases, Lease, LeaseEnd
from headwater.gateway.subscriptions.members.pending_acks import AckType, PendingAck
from headwater.gateway.subscriptions.members.share_link import ShareLink
from headwater.gateway.subscriptions.members.share_readers import ShareReaders
from headwater.gateway.subscriptions.members.share_session import Fetched, Lent
from headwater.model.errors import ErrorCode
from headwater.records.batch import CorruptBatch, split
from headwater.records.compression import DecompressedTooLarge
from headwater.records.record import Record, records
from headwater.wire.message import Records
from headwater.wire.typed.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

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


AckStatus: TypeAlias = Literal["done", "expired", "settled", "unknown", "failed"]
"""`settled`: it was acknowledged before; `failed`: the broker did not answer."""


class AckAnswer(NamedTuple):
    ack_id: str
    status: AckStatus


class QueueMember:
    def __init__(self, cluster: AsyncioCluster, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.lock_ms = 30_000
        """How long a lease lasts, as the last fetch said."""
        self.idle_since_s = time.monotonic()
        self._cluster = cluster
        self._member_id = str(uuid4())
        self._leases = HeldLeases(secrets.token_bytes(32), MAX_HELD)
        self._readers = ShareReaders(group, self._leases)
        self._assigned: frozenset[int] = frozenset()
        self._links: dict[tuple[int, UUID], tuple[ShareLink, asyncio.Task[None]]] = {}
        self._link_of: dict[int, ShareLink] = {}
        self._ready = asyncio.Event()
        self._stale = asyncio.Event()
        self._refusal: str | None = None

    # For readers

    async def take(self, max_records: int, max_bytes: int, wait_ms: int) -> list[Delivery]:
        """Some records as soon as there are any; none when the time is up. Raises Problem."""
        self._readers.check_room()
        await self._joined()
        try:
            return await self._readers.take(max_records, max_bytes, wait_ms, self._link_of.values())
        finally:
            self.idle_since_s = time.monotonic()

    def ack_id(self, delivery: Delivery) -> str:
        return self._leases.ack_id(delivery.partition, delivery.offset, delivery.lease)

    async def acknowledge(self, acks: Iterable[tuple[str, AckType]]) -> list[AckAnswer]:
        """What became of each ack id, when the broker has the acknowledgement on disk."""
        self.idle_since_s = time.monotonic()
        now_ms = _now_ms()
        leases = [(ack_id, self._leases.named(ack_id, now_ms), ack_type) for ack_id, ack_type in acks]
        pending: dict[int, PendingAck] = {}
        numbers: set[int] = set()
        for index, (_, lease, ack_type) in enumerate(leases):
            if isinstance(lease, Lease) and lease.number not in numbers:
                numbers.add(lease.number)
                pending[index] = PendingAck(lease, ack_type, asyncio.get_running_loop().create_future())
        self._send(pending.values())
        answers = []
        for index, (ack_id, lease, _) in enumerate(leases):
            if isinstance(lease, LeaseEnd):
                status: AckStatus = lease.value
            elif index in pending:
                status = await self._status(pending[index])
            else:
                status = "settled"
            answers.append(AckAnswer(ack_id, status))
        return answers

    def acknowledge_soon(self, deliveries: Iterable[Delivery], ack_type: AckType) -> None:
        """Without waiting for the broker. A record whose acknowledgement is lost is delivered again."""
        now_ms = _now_ms()
        self._send(
            PendingAck(lease, ack_type, None)
            for each in deliveries
            if isinstance(lease := self._leases.held(each.partition, each.offset, each.lease, now_ms), Lease)
        )

    async def extend(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Renew the leases; returns the deliveries whose leases are lost."""
        answers = await self.acknowledge([(self.ack_id(each), AckType.EXTEND) for each in deliveries])
        return [each for each, (_, status) in zip(deliveries, answers, strict=True) if status != "done"]

    async def drain(self) -> None:
        """Wait, for a moment, until the brokers have answered every acknowledgement."""
        for _ in range(int(DRAIN_S / DRAIN_STEP_S)):
            if all(link.is_drained for link, _ in self._links.values()):
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
        """Until cancelled; then leave the group, which releases all records."""
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
            except (ClientError, TimeoutError):
                pass  # its session runs out

    async def _heartbeats(self, tasks: asyncio.TaskGroup) -> None:
        epoch, rest_s = JOIN, FIRST_REST_S
        while True:
            try:
                response = await self._heartbeat(epoch)
                epoch = response.member_epoch
                if response.assignment is not None:
                    self._assigned = frozenset(
                        index for topic in response.assignment.topic_partitions for index in topic.partitions
                    )
                await self._assign_links(tasks)
                rest_s, pause_s = FIRST_REST_S, response.heartbeat_interval_ms / 1000
                self._refusal = None
            except ClientError as error:
                if isinstance(error, BrokerRefused) and error.code in REJOIN:
                    epoch = JOIN
                self._refusal = str(error)
                pause_s, rest_s = rest_s, min(2 * rest_s, LONGEST_REST_S)
            try:
                async with asyncio.timeout(pause_s):
                    await self._stale.wait()
                await asyncio.sleep(FIRST_REST_S)  # who leads is known a moment after who led is gone
            except TimeoutError:
                pass

    async def _heartbeat(self, epoch: int) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=epoch,
            subscribed_topic_names=[self.topic] if epoch == JOIN else None,
        )
        response = await self._cluster.ask_coordinator(Coordinated(GROUP, self.group), request)
        check(response.error_code, response.error_message, f"Group {self.group}")
        return response

    async def _assign_links(self, tasks: asyncio.TaskGroup) -> None:
        """Have each partition fetched from its leader, by one link to each broker."""
        topic = (await self._cluster.topics([self.topic])).get(self.topic)
        self._stale.clear()
        by_leader: dict[tuple[int, UUID], set[int]] = {}
        if topic is not None and topic.topic_id is not None:
            for index in self._assigned:
                leader = topic.leaders.get(index, -1)
                if leader >= 0:
                    by_leader.setdefault((leader, topic.topic_id), set()).add(index)
        for key in self._links.keys() - by_leader.keys():
            link, task = self._links.pop(key)
            task.cancel()
            self._lost(link)
        for key, indexes in by_leader.items():
            assert topic is not None, "it has leaders"
            if key not in self._links:
                link = ShareLink(self._cluster, *key, group=self.group, member_id=self._member_id)
                run = link.run(self._readers.demand, self._readers.has_readers, self._lend, self._lost)
                task = tasks.create_task(run)
                self._links[key] = (link, task)
            link = self._links[key][0]
            # One that only other members fetch from now on keeps its leases: the broker still takes acknowledgements.
            unfetched = link.partitions - indexes
            self._leases.drop_partitions(index for index in unfetched if topic.leaders.get(index, -1) != key[0])
            link.partitions = frozenset(indexes)
            self._link_of.update(dict.fromkeys(indexes, link))
        if self._link_of:
            self._ready.set()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_S)
            self._leases.drop_expired(_now_ms())
            self.acknowledge_soon(self._readers.untaken(), AckType.RELEASE)

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
            yield Delivery(  # by position: made for each record
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
        rest = AckType.GAP if is_sound else AckType.RELEASE
        link.send(PendingAck(Lease(lent.partition, offset, 0, until_ms), rest, None) for offset in counts)

    def _send(self, acks: Iterable[PendingAck]) -> None:
        by_link: dict[ShareLink, list[PendingAck]] = {}
        for ack in acks:
            link = self._link_of.get(ack.lease.partition)
            if ack.ack_type is not AckType.EXTEND:
                self._leases.acknowledge(ack.lease)
            if link is None:
                if ack.done is not None:
                    ack.done.set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                by_link.setdefault(link, []).append(ack)
        for link, of_link in by_link.items():
            link.send(of_link)

    async def _status(self, ack: PendingAck) -> AckStatus:
        """When the broker has answered."""
        assert ack.done is not None, "a request waits for it"
        try:
            code = await ack.done
        except ClientError:
            self._leases.fail(ack.lease)
            return "failed"
        if code:
            self._leases.fail(ack.lease)
            return "expired" if code == ErrorCode.INVALID_RECORD_STATE else "failed"
        if ack.ack_type is AckType.EXTEND:
            self._leases.renew(ack.lease, _now_ms() + self.lock_ms - LOCK_MARGIN_MS)
        return "done"

    def _lost(self, link: ShareLink) -> None:
        self._leases.drop_partitions(index for index, each in self._link_of.items() if each is link)
        self._stale.set()


def _records(batches: Records, leased: Iterable[int]) -> tuple[list[Record], bool]:
    """The records at the leased offsets that can be read, and whether all batches could be read."""
    offsets = set(leased)
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
