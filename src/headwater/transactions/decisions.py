"""What becomes of a request: the answer and the new state, from the present state of its transactional id alone.

A request that comes while the markers of a decided transaction are being written waits. Kafka would have the client
ask again and again; here it is decided anew when the transaction is complete.

    unknown id, other producer id    INVALID_PRODUCER_ID_MAPPING
    other epoch                      PRODUCER_FENCED, also for a producer whose transaction timed out
    cannot be done in this state     INVALID_TXN_STATE
"""

from dataclasses import dataclass

from headwater.model.errors import ErrorCode
from headwater.transactions.effects import AddAnswer, Answer, EndAnswer, ProducerAnswer
from headwater.transactions.requests import AddPartitions, EndTransaction, InitProducer, Request
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.transaction import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    ProducerIdentity,
    Transaction,
    TransactionState,
    created,
)


@dataclass(frozen=True, slots=True)
class Decision:
    answer: Answer | None
    """None: the request waits until the transaction is complete."""
    transaction: Transaction | None = None
    """The new state, if there is one."""


WAIT = Decision(None)


def refuse(request: Request, error: ErrorCode) -> Answer:
    match request:
        case InitProducer():
            return ProducerAnswer(error)
        case AddPartitions():
            return AddAnswer(error)
        case EndTransaction():
            return EndAnswer(error)


def init_producer(
    transaction: Transaction | None, request: InitProducer, settings: TransactionSettings, now_ms: int
) -> Decision:
    """Give the id and epoch to work with. What an instance before left open is aborted first, and it is fenced."""
    error = _malformed(request, settings)
    if error is not ErrorCode.NONE:
        return Decision(ProducerAnswer(error))
    assert request.spare_producer_id != NO_ID, "the request brings a producer id, in case a new one is needed"
    claimed = request.producer
    if transaction is None:
        # Also for a client that names the producer id it had: the id was forgotten, and no other producer can have
        # taken over.
        return _initialized(created(request.transactional_id, request.spare_producer_id, request.timeout_ms, now_ms))
    is_current = claimed is not None and claimed == transaction.producer
    # With a transaction under way the bumped epoch is in use, so its holder has the answer: nothing is to be repeated.
    is_repeated = (
        claimed is not None
        and claimed == transaction.producer_before
        and transaction.state is not TransactionState.ONGOING
    )
    if claimed is not None and not is_current and not is_repeated:
        return Decision(ProducerAnswer(ErrorCode.PRODUCER_FENCED))
    if transaction.state.is_prepared:
        return WAIT
    if transaction.state is TransactionState.ONGOING:
        return Decision(None, transaction.fenced(is_same_instance=is_current, now_ms=now_ms))
    if is_repeated and transaction.producer_epoch <= LAST_EPOCH:
        return _initialized(transaction.emptied(request.timeout_ms, now_ms))
    return _initialized(
        transaction.initialized(
            request.spare_producer_id, request.timeout_ms, is_same_instance=claimed is not None, now_ms=now_ms
        )
    )


def add_partitions(
    transaction: Transaction | None, request: AddPartitions, settings: TransactionSettings, now_ms: int
) -> Decision:
    """Make partitions part of the transaction, and begin it with the first ones; or say which are not part of it."""
    error = _foreign(transaction, request.producer)
    if transaction is None or error is not ErrorCode.NONE:
        return Decision(AddAnswer(error))
    missing = request.partitions - transaction.partitions
    if transaction.state.is_prepared:
        return Decision(AddAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)) if request.is_verify_only else WAIT
    if request.is_verify_only:
        return Decision(AddAnswer(ErrorCode.NONE, missing))
    if not missing:
        return Decision(AddAnswer(ErrorCode.NONE))
    if len(transaction.partitions) + len(missing) > settings.max_partitions:
        return Decision(AddAnswer(ErrorCode.POLICY_VIOLATION))
    return Decision(AddAnswer(ErrorCode.NONE), transaction.with_partitions(request.partitions, request.version, now_ms))


def end(transaction: Transaction | None, request: EndTransaction, now_ms: int) -> Decision:
    """Commit or abort. The answer needs the decision on disk only: the markers follow in their own time."""
    if request.version == 1:
        return _end_older(transaction, request, now_ms)
    return _end_newer(transaction, request, now_ms)


def _end_older(transaction: Transaction | None, request: EndTransaction, now_ms: int) -> Decision:
    """The epoch stays: a transaction that has ended in the same way is taken for this one, and the request for a
    repeated one."""
    error = _foreign(transaction, request.producer)
    if transaction is None or error is not ErrorCode.NONE:
        return Decision(EndAnswer(error))
    if transaction.state is TransactionState.ONGOING:
        return _ended(transaction.prepared(request.is_commit, now_ms))
    if transaction.version != 1 or transaction.state.is_committed != request.is_commit:
        return Decision(EndAnswer(ErrorCode.INVALID_TXN_STATE))
    return WAIT if transaction.state.is_prepared else Decision(_end_answer(transaction))


def _end_newer(transaction: Transaction | None, request: EndTransaction, now_ms: int) -> Decision:
    """The epoch tells a repeated request, which has the one before, from that of the next transaction."""
    if transaction is not None and _is_repeated(transaction, request):
        if transaction.state.is_committed == request.is_commit:
            return Decision(_end_answer(transaction))
        return Decision(EndAnswer(ErrorCode.INVALID_TXN_STATE))
    error = _foreign(transaction, request.producer)
    if transaction is None or error is not ErrorCode.NONE:
        return Decision(EndAnswer(error))
    if transaction.state.is_prepared:
        return WAIT
    is_ongoing = transaction.state is TransactionState.ONGOING
    if request.is_commit and not is_ongoing:
        return Decision(EndAnswer(ErrorCode.INVALID_TXN_STATE))
    spare = request.spare_producer_id
    if transaction.is_exhausted and spare == NO_ID:
        # The last epoch was reached after the caller looked: it will bring an id when it asks again.
        return Decision(EndAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))
    if is_ongoing:
        return _ended(transaction.prepared_with_bump(request.is_commit, spare, now_ms))
    return _ended(transaction.aborted_without_partitions(spare, now_ms))


def _is_repeated(transaction: Transaction, request: EndTransaction) -> bool:
    return (
        transaction.version == 2
        and transaction.state.is_committed is not None
        and transaction.producer_before == request.producer
        and transaction.producer.epoch <= LAST_EPOCH  # Above it, a fence ended the transaction.
    )


def _initialized(transaction: Transaction) -> Decision:
    return Decision(ProducerAnswer(ErrorCode.NONE, *transaction.producer), transaction)


def _ended(transaction: Transaction) -> Decision:
    return Decision(_end_answer(transaction), transaction)


def _end_answer(transaction: Transaction) -> EndAnswer:
    return EndAnswer(ErrorCode.NONE, *transaction.producer)


def _malformed(request: InitProducer, settings: TransactionSettings) -> ErrorCode:
    if not 0 < request.timeout_ms <= settings.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _foreign(transaction: Transaction | None, producer: ProducerIdentity) -> ErrorCode:
    """Why this producer does not speak for the transactional id, or NONE."""
    if transaction is None or producer.id != transaction.producer.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.epoch != transaction.producer.epoch or producer.epoch > LAST_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE
