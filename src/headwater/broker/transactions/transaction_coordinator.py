"""The transaction coordinator: finds the shard of a transactional id, asks it, and waits until the answer may be given.

A transactional id belongs to one partition of the internal topic, by a hash; the topic comes into being with the first
of them. A transaction that is prepared is decided: its markers are written, again and again if need be, until every
partition has its own, and then the transaction is complete. That goes on after a restart.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.log.partition import Partition
from headwater.broker.nodes.node_client import NodeClient
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.state.deadline_timer import DeadlineTimer
from headwater.broker.state.record_log import Spawn
from headwater.broker.state.state_topic import StateTopic
from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic import Topic
from headwater.broker.transactions.marker_writer import MarkerWriter
from headwater.broker.transactions.producer_ids import ProducerIds
from headwater.broker.transactions.transaction_log import TransactionLog
from headwater.logs.events import log_event
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.model.moment import Moment
from headwater.transactions.effects import (
    AddAnswer,
    EndAnswer,
    ProducerAnswer,
    ReplyTo,
    TransactionEffects,
    WriteMarkers,
)
from headwater.transactions.requests import AddPartitions, EndTransaction, InitProducer
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.shard import TransactionShard
from headwater.transactions.transaction import Transaction

STATE_TOPIC = "__transaction_state"
EXPIRY_INTERVAL_S = 600.0
"""How often transactional ids that were not used for long are looked for."""
MARKER_RETRY_S = 0.1
LONGEST_MARKER_RETRY_S = 5.0
"""A marker that cannot be written is tried again, ever less often, for as long as it takes."""

_NOTHING_TO_MARK = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH})
"""The topic is gone, or a newer producer ended the transaction there."""

Decision: TypeAlias = Callable[[TransactionShard, ReplyTo, Moment], TransactionEffects]


class TransactionCoordinator:
    def __init__(
        self,
        catalog: Catalog,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        config: BrokerConfig,
        clock: Clock,
        spawn: Spawn,
        nodes: NodeClient,
    ) -> None:
        self.markers = MarkerWriter(catalog, groups, nodes)
        self._catalog = catalog
        self._groups = groups
        self._producer_ids = producer_ids
        self._clock = clock
        self._spawn = spawn
        self._settings = TransactionSettings()
        self.configure(config)
        self._topic: StateTopic[TransactionLog] = StateTopic(
            catalog, STATE_TOPIC, config.transaction_state_topic_partitions, self._open, spawn
        )
        self._alarm = DeadlineTimer(lambda: int(clock.monotonic() * 1000))

    def configure(self, config: BrokerConfig) -> None:
        self._settings.max_timeout_ms = config.transaction_max_timeout_ms
        self._settings.id_expiration_ms = config.transactional_id_expiration_ms

    def start(self) -> None:
        """Begin to read what is stored, and to watch the time."""
        self._topic.start()
        self._catalog.on_removed.append(self.forget_topic)
        self._spawn(self._alarm.run(self._tick))
        self._spawn(self._watch_expiry())

    async def ensure_ready(self) -> None:
        """Make sure that there is a place to keep transactions in."""
        await self._topic.ensure()

    async def state_partition(self, transactional_id: str) -> PartitionId:
        """The partition that keeps the transactional id; its leader is the coordinator."""
        await self.ensure_ready()
        return PartitionId(self._catalog.topic(STATE_TOPIC).topic_id, self._topic.index(transactional_id))

    def keeps(self, transactional_id: str) -> bool:
        """Whether this node is its coordinator, as far as it knows."""
        return self._topic.exists and self._topic.keeps(transactional_id)

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

    def add_partitions(self, request: AddPartitions) -> "asyncio.Future[AddAnswer]":
        return self._decide(request.transactional_id, lambda shard, to, now: shard.add_partitions(request, to, now))

    def refusals(self, request: AddPartitions, answer: AddAnswer) -> dict[PartitionId, ErrorCode]:
        """Of the partitions asked for, those that may not be written to. The others may, before the next await."""
        errors = answer.errors(request.partitions)
        shard = self._find(request.transactional_id).shard
        for partition in request.partitions:
            if not shard.writes_to(request.transactional_id, request.producer, partition):
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
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=frozenset({partition}),
            is_verify_only=False,
            version=version,
            connection=connection,
        )
        answer = await self.add_partitions(request)
        if answer.error is not ErrorCode.NONE:
            raise RequestError(answer.error)

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        is_commit: bool,
        version: int,
        connection: int,
    ) -> "asyncio.Future[EndAnswer]":
        request = EndTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_commit=is_commit,
            version=version,
            connection=connection,
        )
        if self._find(transactional_id).shard.needs_spare_producer_id(transactional_id):
            return asyncio.get_running_loop().create_task(self._end_with_spare(request))
        return self._end(request)

    async def _end_with_spare(self, request: EndTransaction) -> EndAnswer:
        return await self._end(replace(request, spare_producer_id=await self._producer_ids.next()))

    def _end(self, request: EndTransaction) -> "asyncio.Future[EndAnswer]":
        return self._decide(request.transactional_id, lambda shard, to, now: shard.end(request, to, now))

    # Administration

    def listed(self) -> Iterator[Transaction]:
        """Raises RequestError while transactions are being read: a list with holes would mislead."""
        for log in self._topic:
            yield from log.shard.listed()

    def described(self, transactional_id: str) -> Transaction:
        if not self._topic.exists:
            raise RequestError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return self._find(transactional_id).shard.described(transactional_id)

    def forget_topic(self, topic: Topic) -> None:
        """The topic was deleted: nothing can be marked there."""
        partitions = [topic.partition_id(index) for index in range(topic.partition_count)]
        self.markers.forget(frozenset(partitions))
        for log in self._topic:
            if log.is_loaded:
                log.release(log.shard.forget_partitions(partitions, log.now()))

    # Inside

    def _open(self, partition: Partition) -> TransactionLog:
        return TransactionLog(partition, self._settings, self._clock, self._spawn, self._alarm.arm, self._mark)

    def _find(self, transactional_id: str) -> TransactionLog:
        if not self._topic.exists:
            raise RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "No transactional id was ever used here.")
        return self._topic.log(transactional_id)

    def _decide(self, transactional_id: str, decision: Decision) -> "asyncio.Future[Any]":
        """The answer, which is there at once if the log takes events at once. Raises RequestError."""
        log = self._find(transactional_id)
        to: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        log.release(decision(log.shard, to, log.now()))
        return to

    def _tick(self) -> int | None:
        next_ms: int | None = None
        for log in self._topic:
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
            for log in self._topic:
                if log.is_loaded:
                    log.release(log.shard.expire(log.now()))
                await asyncio.sleep(0)

    # WriteMarkers

    def _mark(self, log: TransactionLog, shard: TransactionShard, markers: WriteMarkers) -> None:
        """In the next iteration of the event loop, after the answer to EndTxn."""
        self._spawn(self._mark_all(log, shard, markers))

    async def _mark_all(self, log: TransactionLog, shard: TransactionShard, markers: WriteMarkers) -> None:
        """All markers are under way before the first is waited for."""
        if not log.is_run_by(shard):
            return
        begun = [(partition, self._begin_marker(log, markers, partition)) for partition in markers.partitions]
        self._marked(log, shard, markers, [partition for partition, marker in begun if marker is None])
        for partition, marker in begun:
            if marker is None:
                continue
            error = await _outcome(marker)
            if error is ErrorCode.NONE or error in _NOTHING_TO_MARK:
                self._marked(log, shard, markers, [partition])
            else:
                self._spawn(self._mark_again(log, shard, markers, partition, error))

    async def _mark_again(
        self,
        log: TransactionLog,
        shard: TransactionShard,
        markers: WriteMarkers,
        partition: PartitionId,
        error: ErrorCode,
    ) -> None:
        """Until it is done, or the shard that asked for it is no more: the one in its place asks again."""
        retry_s = MARKER_RETRY_S
        while error is not ErrorCode.NONE and error not in _NOTHING_TO_MARK:
            log_event(
                "marker_failed",
                logging.WARNING,
                transactional_id=markers.transactional_id,
                partition=partition,
                error=error.name,
            )
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, LONGEST_MARKER_RETRY_S)
            if not log.is_run_by(shard):
                return
            error = await _outcome(self._begin_marker(log, markers, partition))
        self._marked(log, shard, markers, [partition])

    def _begin_marker(self, log: TransactionLog, markers: WriteMarkers, partition: PartitionId) -> "_Begun":
        try:
            return self.markers.begin(
                partition, markers.producer_id, markers.producer_epoch, markers.is_commit, log.coordinator_epoch
            )
        except RequestError as error:
            return error.code

    def _marked(
        self, log: TransactionLog, shard: TransactionShard, markers: WriteMarkers, partitions: Sequence[PartitionId]
    ) -> None:
        if log.is_run_by(shard):
            log.release(
                shard.markers_written(
                    markers.transactional_id, markers.producer_id, markers.producer_epoch, partitions, log.now()
                )
            )


_Begun: TypeAlias = "asyncio.Future[None] | ErrorCode | None"
"""A marker: what to wait for, why it could not be written, or None if it is committed."""


async def _outcome(marker: _Begun) -> ErrorCode:
    if isinstance(marker, ErrorCode):
        return marker
    if marker is not None:
        try:
            await marker
        except RequestError as error:
            return error.code
    return ErrorCode.NONE
