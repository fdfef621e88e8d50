"""A member of a stream's group that lives in the gateway: a consumer of librdkafka in a dedicated thread.

Records are read on from where the last ones were taken; a member that begins, goes on at what is committed. Nothing is
committed unless `commit` is called. While no request waits for records the consumer is paused, and still takes part in
its group.

A partition that goes to another member and comes back is another assignment: it is read from what is committed, and
records of the assignment before are not the member's any more.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import Problem, too_busy, unavailable
from headwater.gateway.kafka.errors import KafkaFailure
from headwater.gateway.kafka.librdkafka_errors import failure_of
from headwater.gateway.kafka.settings import client_settings
from headwater.gateway.subscriptions.members.deliveries import Delivery, handed_over

MAX_WAITERS = 1_000
MAX_POLL_RECORDS = 500
POLL_S = 0.05
"""And so long a commit may wait for its turn."""
PAUSE_AFTER_S = 1.0
"""Pausing forgets what was fetched ahead, so a short silence is not worth it."""
JOIN_S = 20.0
COMMIT_S = 10.0
REVOKE_S = 2.0
"""How long a partition waits, before it goes to another member, for the event loop to say how far it was read."""
GRACE_S = 0.15
"""How long after its time a reader waits for a poll that is under way."""


class _Reader:
    __slots__ = ("future", "max_bytes", "max_records")

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self.max_records = max_records
        self.max_bytes = max_bytes
        self.future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()


class StreamMember:
    def __init__(self, config: GatewayConfig, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.idle_since_s = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._consumer = Consumer(
            client_settings(
                config,
                group_id=group,
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                auto_offset_reset="earliest",
                fetch_wait_max_ms=500,
                queued_max_messages_kbytes=16 * 1024,
                session_timeout_ms=10_000,
            )
        )
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="gateway-stream")
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        """To be made between two polls: a commit from another thread would wait for as long as this one polls."""
        self._readers: deque[_Reader] = deque()
        self._spare: deque[Delivery] = deque()
        self._demand = 0
        self._wish = threading.Event()
        self._stopping = threading.Event()
        self._is_closed = False
        self._assigned: dict[int, int] = {}
        """By partition, the number of its assignment."""
        self._assignments = 0
        self._to_commit: Callable[[], Mapping[int, int]] | None = None
        self._joined = asyncio.Event()
        self._failure: Problem | KafkaFailure | None = None

    # For readers

    async def take(self, max_records: int, max_bytes: int, wait_ms: int) -> list[Delivery]:
        """Some records, as soon as there are any; none when the time is up. Raises Problem, KafkaFailure."""
        if len(self._readers) >= MAX_WAITERS:
            raise too_busy(f"{MAX_WAITERS} requests wait for records of {self.group} already.")
        await self._has_joined()
        reader = _Reader(max_records, max_bytes)
        self._readers.append(reader)
        self._serve()
        until_s = asyncio.get_running_loop().time() + wait_ms / 1000 + GRACE_S
        try:
            return await handed_over(reader.future, until_s, self._take_back)
        finally:
            if reader in self._readers:
                self._readers.remove(reader)
            self._update_demand()
            self.idle_since_s = time.monotonic()

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Where to go on, by partition. Raises Problem, KafkaFailure."""
        self.idle_since_s = time.monotonic()
        await self._has_joined()
        positions = [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]

        def commit() -> None:
            for position in self._consumer.commit(offsets=positions, asynchronous=False):
                if position.error is not None:
                    raise KafkaException(position.error)

        await self._ask(commit)

    async def seek(self, offsets: Mapping[int, int]) -> None:
        """Go on there in those partitions that are ours."""
        await self._has_joined()

        def seek() -> None:
            for partition in offsets.keys() & self._assigned.keys():
                self._consumer.seek(TopicPartition(self.topic, partition, offsets[partition]))

        await self._ask(seek)
        self._spare = deque(each for each in self._spare if each.partition not in offsets)

    async def rewind(self) -> None:
        """Go on where the group has committed."""
        await self._has_joined()

        def committed() -> dict[int, int]:
            partitions = [TopicPartition(self.topic, partition) for partition in list(self._assigned)]
            found = {
                position.partition: position.offset
                for position in self._consumer.committed(partitions, timeout=COMMIT_S)
            }
            return {partition: offset for partition, offset in found.items() if offset >= 0}

        await self.seek(await self._ask(committed))

    def assignment(self, partition: int) -> int | None:
        """Its number, which the deliveries of the partition bear; None if the partition is not this member's."""
        return self._assigned.get(partition)

    @property
    def is_busy(self) -> bool:
        return bool(self._readers)

    # Living

    async def run(self, to_commit: Callable[[], Mapping[int, int]] | None = None) -> None:
        """Until cancelled; then leave the group. Before partitions go to another member while this runs, what
        `to_commit` says of them is committed."""
        self._to_commit = to_commit
        living = self._loop.run_in_executor(self._pool, self._live)
        try:
            await asyncio.shield(living)
        finally:
            self._stopping.set()
            self._wish.set()
            with contextlib.suppress(Exception):
                await living
            self._fail(unavailable(f"The reader of {self.group} has ended."))
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _live(self) -> None:
        """In the thread."""
        consumer = self._consumer
        consumer.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        is_paused, demanded_s = False, time.monotonic()
        try:
            while not self._stopping.is_set():
                self._make_calls()
                demand = self._demand
                if demand > 0 or not self._joined.is_set():
                    demanded_s = time.monotonic()
                    if is_paused:
                        consumer.resume(consumer.assignment())
                        is_paused = False
                    self._hand_over(_poll(consumer, min(max(demand, 1), MAX_POLL_RECORDS)))
                elif time.monotonic() - demanded_s < PAUSE_AFTER_S:
                    self._wish.wait(POLL_S)
                    self._wish.clear()
                else:
                    consumer.pause(consumer.assignment())
                    is_paused = True
                    self._hand_over(_poll(consumer, 1, 0.0))
                    self._wish.wait(POLL_S)
                    self._wish.clear()
        finally:
            self._make_calls()
            consumer.close()
            self._is_closed = True
            self._make_calls()

    def _make_calls(self) -> None:
        while not self._calls.empty():
            call, future = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except Exception as error:
                    future.set_exception(error)

    def _hand_over(self, messages: list[Any]) -> None:
        deliveries = []
        for message in messages:
            error = message.error()
            if error is None:
                deliveries.append(delivery_of(message))
            elif not error.retriable() and error.code() != KafkaError._PARTITION_EOF:
                self._call(self._fail, failure_of(error, topic=self.topic, group=self.group))
        if deliveries:
            self._call(self._arrived, deliveries)

    def _on_assign(self, _: object, partitions: list[Any]) -> None:
        self._call(self._gained, {each.partition for each in partitions})

    def _on_revoke(self, _: object, places: list[Any]) -> None:
        partitions = {place.partition for place in places}
        if not self._stopping.is_set():
            self._commit_before_revoke(partitions)
        self._call(self._gone, partitions)

    def _on_lost(self, _: object, places: list[Any]) -> None:
        self._call(self._gone, {place.partition for place in places})

    def _commit_before_revoke(self, partitions: set[int]) -> None:
        """What was done must not be done again by the next member, if that can be helped."""
        to_commit = self._to_commit
        if to_commit is None:
            return
        self._make_calls()  # commits that were asked for before
        said: Future[Mapping[int, int]] = Future()
        self._call(lambda: said.set_result(to_commit()))
        with contextlib.suppress(TimeoutError, KafkaException):
            offsets = said.result(REVOKE_S)
            places = [TopicPartition(self.topic, each, offsets[each]) for each in partitions & offsets.keys()]
            if places:
                self._consumer.commit(offsets=places, asynchronous=False)

    def _call(self, call: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop ends with the gateway
            self._loop.call_soon_threadsafe(call, *args)

    # On the loop

    def _gained(self, partitions: set[int]) -> None:
        self._assignments += 1
        self._assigned.update(dict.fromkeys(partitions, self._assignments))
        self._failure = None
        self._joined.set()

    def _gone(self, partitions: set[int]) -> None:
        for partition in partitions:
            self._assigned.pop(partition, None)
        self._spare = deque(each for each in self._spare if each.partition not in partitions)

    def _arrived(self, deliveries: list[Delivery]) -> None:
        for each in deliveries:
            number = self._assigned.get(each.partition)
            if number is not None:
                each.lease = number
                self._spare.append(each)
        self._serve()

    def _fail(self, failure: Problem | KafkaFailure) -> None:
        self._failure = failure
        readers, self._readers = self._readers, deque()
        for reader in readers:
            if not reader.future.done():
                reader.future.set_exception(failure)
        self._joined.set()

    def _serve(self) -> None:
        while self._readers and self._spare:
            reader = self._readers.popleft()
            if reader.future.done():
                continue
            given: list[Delivery] = []
            size_bytes = 0
            while self._spare and len(given) < reader.max_records:
                if given and size_bytes + self._spare[0].size_bytes > reader.max_bytes:
                    break
                given.append(self._spare.popleft())
                size_bytes += given[-1].size_bytes
            reader.future.set_result(given)
        self._update_demand()

    def _take_back(self, given: list[Delivery]) -> None:
        self._spare.extendleft(reversed(given))

    def _update_demand(self) -> None:
        self._demand = sum(reader.max_records for reader in self._readers) - len(self._spare)
        if self._demand > 0:
            self._wish.set()

    async def _has_joined(self) -> None:
        if not self._joined.is_set():
            try:
                async with asyncio.timeout(JOIN_S):
                    await self._joined.wait()
            except TimeoutError:
                raise unavailable(f"The group {self.group} could not be joined in {JOIN_S:.0f} s.") from None
        if self._failure is not None:
            raise self._failure

    async def _ask(self, call: Callable[[], Any]) -> Any:
        if self._is_closed:
            raise unavailable(f"The reader of {self.group} has ended.")
        future: Future[Any] = Future()
        self._calls.put((call, future))
        self._wish.set()
        try:
            return await asyncio.wrap_future(future)
        except KafkaException as error:
            code = error.args[0].code()
            if code in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS):
                raise unavailable(f"The group {self.group} is being shared out anew.") from None
            raise failure_of(error, topic=self.topic, group=self.group) from None
        except RuntimeError as error:  # a consumer that is closed
            raise unavailable(f"The reader of {self.group} has ended: {error}.") from None


def _poll(consumer: Any, most: int, wait_s: float = POLL_S) -> list[Any]:
    """Wait for one message, then take what else is there: `consume` alone would wait for all it was asked for."""
    first = consumer.poll(wait_s)
    if first is None:
        return []
    return [first, *(consumer.consume(most - 1, 0) if most > 1 else ())]


def delivery_of(message: Any) -> Delivery:
    return Delivery(  # by position: made for each record
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
