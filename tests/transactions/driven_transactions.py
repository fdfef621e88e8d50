"""One shard of transactions driven by hand: requests in, answers kept by who asked, markers and time as a test says."""

import uuid
from dataclasses import replace
from typing import Any

from headwater.model.errors import ErrorCode
from headwater.model.ids import PartitionId
from headwater.model.moment import Moment
from headwater.transactions.connections import Connections
from headwater.transactions.effects import TransactionEffects, WriteMarkers
from headwater.transactions.event_bytes import decode, encode
from headwater.transactions.events import Event, TransactionStored
from headwater.transactions.requests import AddPartitions, EndTransaction, InitProducer
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.shard import TransactionShard
from headwater.transactions.transaction import ProducerIdentity, Transaction, TransactionState

WALL_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
FIRST_SPARE_ID = 1_000
P0, P1, P2 = (PartitionId(uuid.UUID(int=7), index) for index in range(3))
OTHER_TOPIC = PartitionId(uuid.UUID(int=8), 0)


def at(ms: int) -> Moment:
    return Moment(WALL_MS + ms, ms)


def replayed(
    log: list[Event], settings: TransactionSettings, connections: Connections | None = None
) -> TransactionShard:
    """A new shard from the bytes of the log."""
    shard = TransactionShard(settings, connections)
    for event in log:
        read = decode(*encode(event))
        assert read is not None
        shard.apply(read)
    return shard


class Asked:
    """A request: whether it was answered, and how."""

    def __init__(self) -> None:
        self._answers: list[Any] = []

    def take(self, answer: Any) -> None:
        self._answers.append(answer)
        assert len(self._answers) == 1, "a request is answered once"

    @property
    def waits(self) -> bool:
        return not self._answers

    @property
    def answer(self) -> Any:
        (answer,) = self._answers
        return answer

    @property
    def error(self) -> ErrorCode:
        error: ErrorCode = self.answer.error
        return error

    @property
    def producer(self) -> ProducerIdentity:
        assert self.error is ErrorCode.NONE
        return ProducerIdentity(self.answer.producer_id, self.answer.producer_epoch)


class DrivenTransactions:
    def __init__(self, **settings: Any) -> None:
        self.settings = TransactionSettings(**settings)
        self.shard = TransactionShard(self.settings)
        self.log: list[Event] = []
        self.markers: list[WriteMarkers] = []
        """Asked for and not reported yet."""
        self.now_ms = 0
        self.wall_step_ms = 0
        self._spare_id = FIRST_SPARE_ID

    @property
    def now(self) -> Moment:
        return Moment(WALL_MS + self.now_ms + self.wall_step_ms, self.now_ms)

    def take(self, effects: TransactionEffects) -> None:
        self.log += effects.events
        self.markers += effects.markers
        for reply in effects.replies:
            assert isinstance(reply.to, Asked)
            reply.to.take(reply.answer)

    def init(
        self, claimed: ProducerIdentity | None = None, *, transactional_id: str = "t", timeout_ms: int = TIMEOUT_MS
    ) -> Asked:
        asked = Asked()
        self._spare_id += 1
        producer_id, epoch = claimed or (-1, -1)
        request = InitProducer(transactional_id, timeout_ms, producer_id, epoch, self._spare_id - 1)
        self.take(self.shard.init_producer(request, asked, self.now))
        return asked

    def add(
        self,
        producer: ProducerIdentity,
        *partitions: PartitionId,
        transactional_id: str = "t",
        is_verify_only: bool = False,
        version: int = 1,
        connection: int = 0,
    ) -> Asked:
        asked = Asked()
        request = AddPartitions(transactional_id, *producer, frozenset(partitions), is_verify_only, version, connection)
        self.take(self.shard.add_partitions(request, asked, self.now))
        return asked

    def end(
        self,
        producer: ProducerIdentity,
        is_commit: bool,
        *,
        transactional_id: str = "t",
        version: int = 1,
        connection: int = 0,
        has_spare: bool = True,
    ) -> Asked:
        asked = Asked()
        spare_id = -1
        if has_spare and self.shard.needs_spare_producer_id(transactional_id):
            spare_id, self._spare_id = self._spare_id, self._spare_id + 1
        request = EndTransaction(transactional_id, *producer, is_commit, version, spare_id, connection)
        self.take(self.shard.end(request, asked, self.now))
        return asked

    def commit(self, producer: ProducerIdentity, **options: Any) -> Asked:
        return self.end(producer, True, **options)

    def abort(self, producer: ProducerIdentity, **options: Any) -> Asked:
        return self.end(producer, False, **options)

    def begun(self, *partitions: PartitionId, version: int = 1, **options: Any) -> ProducerIdentity:
        """A producer with a transaction that has these partitions."""
        producer = self.init(**options).producer
        assert self.add(producer, *(partitions or (P0,)), version=version).error is ErrorCode.NONE
        return producer

    def mark(self) -> list[WriteMarkers]:
        """Write and report every marker that is asked for; say which."""
        written, self.markers = self.markers, []
        for markers in written:
            for partition in markers.partitions:
                self.report(markers, partition)
        return written

    def report(self, markers: WriteMarkers, partition: PartitionId) -> None:
        producer = (markers.producer_id, markers.producer_epoch)
        self.take(self.shard.markers_written(markers.transactional_id, *producer, [partition], self.now))

    def pass_ms(self, ms: int) -> None:
        """Let time pass, stopping at every deadline as a timer would."""
        end_ms = self.now_ms + ms
        while (next_ms := self.shard.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.take(self.shard.tick(self.now))
        self.now_ms = end_ms

    def restart(self, connections: Connections | None = None) -> None:
        """The process is gone, and whoever waited with it; a new one reads the log. Or, with connections, the shard was
        dropped and takes up what the log has."""
        self.shard = replayed(self.log, self.settings, connections)
        self.markers = []
        self.take(self.shard.resume(self.now))

    def change(self, transactional_id: str = "t", **changes: Any) -> ProducerIdentity:
        """As if much had happened before: what is stored has these fields now."""
        event = TransactionStored(replace(self.described(transactional_id), **changes))
        self.log.append(event)
        self.restart()
        return self.described(transactional_id).producer

    def described(self, transactional_id: str = "t") -> Transaction:
        return self.shard.described(transactional_id)

    def state(self) -> TransactionState:
        return self.described().state
