"""The gate before a partition: a transactional batch passes only if the coordinator knows that the partition is part of
the transaction (KIP-890). A batch that came in without that would stay open for ever, and nothing behind it would
become stable.

A partition in which the producer's transaction is open already needs no question: that is nearly every batch. Else the
coordinator is asked, here or on another node (broker.admissions); for clients of the newer protocol it adds the
partition itself. Requests of one producer pass in the order in which they came, because its sequence numbers have that
order.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType

from headwater.broker.log.partition import Partition
from headwater.broker.transactions.transaction_admission import Asked, TransactionAdmission
from headwater.model.errors import COORDINATOR_MOVES, ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.transactions.requests import AddPartitions


@dataclass(frozen=True, slots=True)
class Entrant:
    """A producer, its transaction, and the partitions that it is about to write to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[Partition, ...]
    version: int
    """2: the client leaves it to the broker to add partitions; 1: it has added them itself."""
    understands_abortable: bool
    """It knows the code that says: abort, and go on (KIP-890)."""


class TransactionGate:
    def __init__(self, admissions: TransactionAdmission) -> None:
        self._admissions = admissions
        self._last_in_queue: dict[int, QueuePosition] = {}
        """By producer, of those whose requests wait."""

    def is_open(self, producer_id: int, producer_epoch: int, partitions: Iterable[Partition]) -> bool:
        """Whether all of it may be appended right now, without asking the coordinator."""
        return producer_id not in self._last_in_queue and all(
            partition.has_open_transaction(producer_id, producer_epoch) for partition in partitions
        )

    def has_queue(self, producer_id: int) -> bool:
        return producer_id in self._last_in_queue

    def queue(self, producer_id: int) -> "QueuePosition":
        """A position behind everything of the producer that waits: take it at once, use it in a task."""
        position = QueuePosition(self._last_in_queue, producer_id)
        self._last_in_queue[producer_id] = position
        return position

    def ask(self, entrant: Entrant) -> "AdmissionRequest":
        """Have the coordinator add the partitions, or look whether they were added. Only when nothing
        of the producer waits before it; to be closed in any case."""
        return AdmissionRequest(self._admissions, entrant)


class AdmissionRequest:
    """The request to the coordinator for an entrant. Often it is answered at once."""

    def __init__(self, admissions: TransactionAdmission, entrant: Entrant) -> None:
        self._admissions = admissions
        self._entrant = entrant
        closed = frozenset(
            partition.id
            for partition in entrant.partitions
            if not partition.has_open_transaction(entrant.producer_id, entrant.producer_epoch)
        )
        self._request = AddPartitions(
            transactional_id=entrant.transactional_id,
            producer_id=entrant.producer_id,
            producer_epoch=entrant.producer_epoch,
            partitions=closed,
            is_verify_only=entrant.version < 2,
            version=entrant.version,
        )
        self._announced = contextlib.ExitStack()
        self._asked: Asked | None = None
        self._error: RequestError | None = None
        if closed:
            self._announcement = self._announced.enter_context(
                admissions.ends.announced(entrant.producer_id, entrant.producer_epoch, entrant.version)
            )
            try:
                self._asked = admissions.ask(self._request)
            except RequestError as error:
                self._error = error

    @property
    def is_answered(self) -> bool:
        return self._asked is None or self._asked.answer.done()

    async def answered(self) -> None:
        """Returns when the coordinator has answered or refused."""
        if self._asked is not None:
            with contextlib.suppress(RequestError):
                await self._asked.answer

    def close(self) -> None:
        """Withdraw the announcement: nothing more is written because of this request."""
        self._announced.close()

    def refused(self) -> dict[PartitionId, RequestError]:
        """The partitions that are refused, with the code that a producer understands. The others may be written to
        before the next await, not later: the transaction may end."""
        errors: dict[PartitionId, ErrorCode] = {}
        try:
            if self._error is not None:
                raise self._error
            if self._asked is not None:
                errors = self._admissions.refusals(self._asked)
                self._announcement.check()
        except RequestError as error:
            errors = dict.fromkeys(self._request.partitions, error.code)
        return {partition: _translated(code, self._entrant) for partition, code in errors.items()}


class QueuePosition:
    """The position of one request in the queue of its producer. To be left in any case, also unused."""

    def __init__(self, last_in_queue: dict[int, "QueuePosition"], producer_id: int) -> None:
        self._last_in_queue = last_in_queue
        self._producer_id = producer_id
        before = last_in_queue.get(producer_id)
        self._before = before.done if before is not None else None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> None:
        if self._before is not None:
            await asyncio.wait([self._before])

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Let the next request go on; if this one is not first in the queue, as soon as those before it have left."""
        if self._before is None or self._before.done():
            self._pass_on()
        else:
            self._before.add_done_callback(lambda _: self._pass_on())

    def _pass_on(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        if self._last_in_queue.get(self._producer_id) is self:
            del self._last_in_queue[self._producer_id]


def _translated(code: ErrorCode, entrant: Entrant) -> RequestError:
    """The code for a producer: Produce has other codes than the APIs of the coordinator."""
    if code is ErrorCode.PRODUCER_FENCED:
        return RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, "A newer instance of the producer has taken over.")
    if code is ErrorCode.INVALID_TXN_STATE:
        if entrant.understands_abortable:
            code = ErrorCode.TRANSACTION_ABORTABLE
        return RequestError(code, "The partition is not part of the producer's transaction.")
    if code in COORDINATOR_MOVES or (code is ErrorCode.CONCURRENT_TRANSACTIONS and entrant.version < 2):
        return RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, f"The coordinator cannot answer now: {code.name}. Retry.")
    return RequestError(code)
