"""The transaction coordinator: finds the shard of a transactional id, asks it, and waits until the answer may be given.

A transactional id belongs to one partition of the internal topic, by a hash; the topic comes into being with the first
of them. A transaction that is prepared is decided: its markers are written, again and again if need be, until every
partition has its own, and then the transaction is complete. That goes on after a restart.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from headwater.broker.alarm import Alarm
from headwater.broker.catalog import Catalog, Topic
from headwater.broker.config import BrokerConfig
from headwater.broker.coordinator import GroupCoordinator
from headwater.broker.marker_writer import MarkerWriter
from headwater.broker.producer_ids import ProducerIds
from headwater.broker.record_log import Spawn
from headwater.broker.state_topic import StateTopic
from headwater.broker.transaction_log import TransactionLog
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.model.moment import Moment
from headwater.transactions.effects import AddAnswer, Effects, EndAnswer, Markers, ProducerAnswer, ReplyTo
from headwater.transactions.requests import AddPartitions, EndTransaction, InitProducer
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.shard import TransactionShard
from headwater.transactions.transaction import Producer, Transaction
from headwater.transport.facts import log_fact

STATE_TOPIC = "__transaction_state"
EXPIRY_INTERVAL_S = 600.0
"""How often transactional ids that nobody used for long are looked for."""
MARKER_RETRY_S = 0.1
LONGEST_MARKER_RETRY_S = 5.0
"""A marker that cannot be written is tried again, ever less often, for as long as it takes."""

_NOTHING_TO_MARK = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH})
"""The topic is gone, or a newer producer ended the transaction there."""

Decision: TypeAlias = Callable[[TransactionShard, ReplyTo, Moment], Effects]


class TransactionCoordinator:
    def __init__(
        self,
        catalog: Catalog,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        config: BrokerConfig,
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        self.markers = MarkerWriter(catalog, groups)
        self._catalog = catalog
        self._groups = groups
        self._producer_ids = producer_ids
        self._clock = clock
        self._spawn = spawn
        self._settings = TransactionSettings(
            max_timeout_ms=config.transaction_max_timeout_ms, id_expiration_ms=config.transactional_id_expiration_ms
        )
        self._logs: list[TransactionLog] = []
        self._topic = StateTopic(catalog, STATE_TOPIC, config.transaction_state_topic_partitions, self._open)
        self._alarm = Alarm(lambda: int(clock.monotonic() * 1000))

    def start(self) -> None:
        """Begin to read what is stored, and to watch the time."""
        self._topic.find()
        self._spawn(self._alarm.run(self._tick))
        self._spawn(self._watch_expiry())

    async def ensure_ready(self) -> None:
        """Make sure that there is a place to keep transactions in."""
        await self._topic.ensure()

    # What producers ask

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, producer_id: int, producer_epoch: int
    ) -> ProducerAnswer:
        await self.ensure_ready()
        spare = await self._producer_ids.next()
        request = InitProducer(transactional_id, timeout_ms, producer_id, producer_epoch, spare)
        answer: ProducerAnswer = await self._decide(
            transactional_id, lambda shard, to, now: shard.init_producer(request, to, now)
        )
        return answer

    async def add_partitions(self, request: AddPartitions) -> AddAnswer:
        answer: AddAnswer = await self._decide(
            request.transactional_id, lambda shard, to, now: shard.add_partitions(request, to, now)
        )
        return answer

    async def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[PartitionId],
        version: int,
        connection: int = 0,
    ) -> dict[PartitionId, ErrorCode]:
        """Let a producer write to partitions: by adding them (version 2), or by looking whether they were added.
        Returns those that are refused. The others may be written to before the next await."""
        request = AddPartitions(
            transactional_id, producer_id, producer_epoch, frozenset(partitions), version < 2, version, connection
        )
        errors = (await self.add_partitions(request)).errors(request.partitions)
        shard, producer = self._find(transactional_id).shard, Producer(producer_id, producer_epoch)
        for partition in request.partitions:
            if not shard.writes_to(transactional_id, producer, partition):
                # Ended since: what is written after the marker would stay open.
                errors.setdefault(partition, ErrorCode.INVALID_TXN_STATE)
        return errors

    async def add_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        version: int,
        connection: int = 0,
    ) -> None:
        """A group's offsets become part of the transaction."""
        partition = await self._groups.offsets_partition(group_id)
        request = AddPartitions(
            transactional_id, producer_id, producer_epoch, frozenset({partition}), False, version, connection
        )
        answer = await self.add_partitions(request)
        if answer.error is not ErrorCode.NONE:
            raise RequestError(answer.error)

    async def verify_offsets(self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str) -> None:
        """Raises RequestError unless a group's offsets are part of the transaction."""
        partition = await self._groups.offsets_partition(group_id)
        errors = await self.admit(transactional_id, producer_id, producer_epoch, [partition], version=1)
        for code in errors.values():
            raise RequestError(code)

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        is_commit: bool,
        version: int,
        connection: int,
    ) -> EndAnswer:
        log = self._find(transactional_id)
        spare = -1
        if log.shard.needs_spare_producer_id(transactional_id):
            spare = await self._producer_ids.next()
        request = EndTransaction(transactional_id, producer_id, producer_epoch, is_commit, version, spare, connection)
        answer: EndAnswer = await self._decide(transactional_id, lambda shard, to, now: shard.end(request, to, now))
        return answer

    # Administration

    def listed(self) -> Iterator[Transaction]:
        """Raises RequestError while transactions are being read: a list with holes would mislead."""
        for log in self._logs:
            yield from log.shard.listed()

    def described(self, transactional_id: str) -> Transaction:
        if not self._logs:
            raise RequestError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return self._find(transactional_id).shard.described(transactional_id)

    def forget_topic(self, partitions: Sequence[PartitionId]) -> None:
        """The topic was deleted: nothing can be marked there."""
        for log in self._logs:
            if log.is_loaded:
                log.release(log.shard.forget_partitions(partitions, log.now()))

    # Inside

    def _open(self, topic: Topic) -> "list[asyncio.Task[None]]":
        self._logs = [
            TransactionLog(partition, self._settings, self._clock, self._spawn, self._alarm.arm, self._mark)
            for partition in topic.partitions
        ]
        return [self._spawn(log.load()) for log in self._logs]

    def _find(self, transactional_id: str) -> TransactionLog:
        if not self._logs:
            raise RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "No transactional id was ever used here.")
        return self._logs[zlib.crc32(transactional_id.encode()) % len(self._logs)]

    async def _decide(self, transactional_id: str, decision: Decision) -> Any:
        log = self._find(transactional_id)
        to: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        log.release(decision(log.shard, to, log.now()))
        return to.result() if to.done() else await to

    def _tick(self) -> int | None:
        next_ms: int | None = None
        for log in self._logs:
            if not log.is_loaded:
                continue
            now = log.now()
            due_ms = log.shard.next_deadline_ms()
            if due_ms is not None and due_ms <= now.monotonic_ms:
                log.release(log.shard.tick(now))
                due_ms = log.shard.next_deadline_ms() if log.is_loaded else None
            if due_ms is not None:
                next_ms = due_ms if next_ms is None else min(next_ms, due_ms)
        return next_ms

    async def _watch_expiry(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL_S)
            for log in self._logs:
                if log.is_loaded:
                    log.release(log.shard.expire(log.now()))
                await asyncio.sleep(0)

    # Markers

    def _mark(self, log: TransactionLog, shard: TransactionShard, markers: Markers) -> None:
        for partition in markers.partitions:
            self._spawn(self._mark_partition(log, shard, markers, partition))

    async def _mark_partition(
        self, log: TransactionLog, shard: TransactionShard, markers: Markers, partition: PartitionId
    ) -> None:
        """Until it is done, or the shard that asked for it is no more: the one in its place asks again."""
        producer_id, producer_epoch = markers.producer_id, markers.producer_epoch
        retry_s = MARKER_RETRY_S
        while log.is_run_by(shard):
            error = await self._write_marker(log, markers, partition)
            if error is ErrorCode.NONE or error in _NOTHING_TO_MARK:
                if log.is_run_by(shard):
                    log.release(
                        shard.markers_written(
                            markers.transactional_id, producer_id, producer_epoch, partition, log.now()
                        )
                    )
                return
            log_fact("marker_failed", transactional_id=markers.transactional_id, partition=partition, error=error.name)
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, LONGEST_MARKER_RETRY_S)

    async def _write_marker(self, log: TransactionLog, markers: Markers, partition: PartitionId) -> ErrorCode:
        try:
            await self.markers.write(
                partition, markers.producer_id, markers.producer_epoch, markers.is_commit, log.coordinator_epoch
            )
        except RequestError as error:
            return error.code
        return ErrorCode.NONE
