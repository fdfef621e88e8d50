"""The transactional ids whose state lives in one partition of the internal topic: finds the transaction, decides, keeps
deadlines, and remembers which markers are out.

Decide, log, apply: a decision returns the events to log and has applied them already, in the order in which they are to
be logged. The caller must let out neither replies nor markers before the events decided up to then are durable; if they
cannot be made durable, it must drop the shard and replay the log into a new one.

    shard = TransactionShard(settings)
    for event in log: shard.apply(event)
    shard.resume(now)                        then init_producer, add_partitions, end, markers_written, ..., tick

Refusals are replies, too: PRODUCER_FENCED is as much of a promise as an epoch, and must not be taken back by a crash.
"""

from collections.abc import Iterable, Iterator

from headwater.model.deadlines import Deadlines
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.model.moment import Moment
from headwater.transactions import decisions
from headwater.transactions.connections import Connections
from headwater.transactions.decisions import Decision, refuse
from headwater.transactions.effects import Answer, ReplyTo, TransactionEffects, WriteMarkers
from headwater.transactions.events import Event, TransactionForgotten, TransactionStored
from headwater.transactions.parked import ParkedRequests
from headwater.transactions.requests import AddPartitions, EndTransaction, InitProducer, Request
from headwater.transactions.settings import MAX_EXPIRED_AT_ONCE, TransactionSettings
from headwater.transactions.transaction import ProducerIdentity, Transaction, TransactionState, is_transactional_id


class TransactionShard:
    def __init__(self, settings: TransactionSettings, connections: Connections | None = None) -> None:
        """`connections`: of the shard that was dropped, if this one takes its place in the same process."""
        self._settings = settings
        self._transactions: dict[str, Transaction] = {}
        self._size_bytes = 0
        self._unmarked: dict[str, set[PartitionId]] = {}
        """Of each prepared transaction, the partitions whose markers are out."""
        self._timeouts: Deadlines[str] = Deadlines()
        self._parked = ParkedRequests(settings.max_parked, settings.concurrent_wait_ms)
        """Anybody waits only while the transaction is prepared."""
        self._connections = Connections() if connections is None else connections

    def __len__(self) -> int:
        return len(self._transactions)

    # What is remembered

    def apply(self, event: Event) -> None:
        match event:
            case TransactionStored(transaction):
                self._size_bytes += transaction.size_bytes - self._size_of(transaction.transactional_id)
                self._transactions[transaction.transactional_id] = transaction
            case TransactionForgotten(transactional_id):
                self._size_bytes -= self._size_of(transactional_id)
                self._transactions.pop(transactional_id, None)

    def resume(self, now: Moment) -> TransactionEffects:
        """The log has been replayed: take up what it tells of. All markers that may be missing are due again."""
        effects = TransactionEffects()
        for transaction in list(self._transactions.values()):
            self._follow(transaction, now, effects)
        return effects

    def durable_state(self) -> dict[str, Transaction]:
        """What a replay of the log would bring back."""
        return dict(self._transactions)

    # What producers ask

    def init_producer(self, request: InitProducer, to: ReplyTo, now: Moment) -> TransactionEffects:
        return self._handle(request, to, now)

    def add_partitions(self, request: AddPartitions, to: ReplyTo, now: Moment) -> TransactionEffects:
        return self._handle(request, to, now)

    def end(self, request: EndTransaction, to: ReplyTo, now: Moment) -> TransactionEffects:
        return self._handle(request, to, now)

    def needs_spare_producer_id(self, transactional_id: str) -> bool:
        """Whether ending the transaction, in version 2, takes a new producer id."""
        transaction = self._transactions.get(transactional_id)
        return transaction is not None and transaction.is_exhausted

    # What happens to partitions

    def markers_written(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[PartitionId],
        now: Moment,
    ) -> TransactionEffects:
        """Partitions have their markers. With the last one the transaction is complete, and who waited goes on."""
        effects = TransactionEffects()
        transaction = self._transactions.get(transactional_id)
        producer = (producer_id, producer_epoch)
        if transaction is not None and producer == (transaction.producer_id, transaction.producer_epoch):
            self._mark(transaction, partitions, now, effects)
        return effects

    def forget_partitions(self, partitions: Iterable[PartitionId], now: Moment) -> TransactionEffects:
        """They were deleted: there is nothing to mark."""
        effects = TransactionEffects()
        gone = frozenset(partitions)
        for transaction in list(self._transactions.values()):
            if transaction.partitions.isdisjoint(gone):
                continue
            if transaction.state.is_prepared:
                self._mark(transaction, gone, now, effects)
            else:
                self._store(transaction.without_partitions(gone, now.wall_ms), now, effects)
        return effects

    # The passing of time

    def next_deadline_ms(self) -> int | None:
        deadlines = (self._timeouts.next_ms(), self._parked.next_ms())
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def tick(self, now: Moment) -> TransactionEffects:
        """Abort transactions that run for too long, and refuse requests that waited for too long."""
        effects = TransactionEffects()
        while (transactional_id := self._timeouts.take_due(now.monotonic_ms)) is not None:
            transaction = self._transactions[transactional_id]
            assert transaction.state is TransactionState.ONGOING, "only what is under way has a time-out"
            self._store(transaction.fenced(is_same_instance=False, now_ms=now.wall_ms), now, effects)
        for parked in self._parked.take_due(now.monotonic_ms):
            effects.reply(parked.to, refuse(parked.request, ErrorCode.CONCURRENT_TRANSACTIONS))
        return effects

    def expire(self, now: Moment) -> TransactionEffects:
        """Forget transactional ids that no producer has used for long."""
        effects = TransactionEffects()
        idle_since_ms = now.wall_ms - self._settings.id_expiration_ms
        for transaction in list(self._transactions.values()):
            is_open = transaction.state is TransactionState.ONGOING or transaction.state.is_prepared
            if transaction.updated_ms <= idle_since_ms and not is_open:
                self._log(TransactionForgotten(transaction.transactional_id), effects)
                self._connections.forget(transaction.transactional_id)
            if len(effects.events) >= MAX_EXPIRED_AT_ONCE:
                break
        return effects

    def kill(self, error: ErrorCode) -> TransactionEffects:
        """This shard is no longer ours to run: answer everyone who waits."""
        effects = TransactionEffects()
        for parked in self._parked.take_all():
            effects.reply(parked.to, refuse(parked.request, error))
        return effects

    # Views

    def writes_to(self, transactional_id: str, producer: ProducerIdentity, partition: PartitionId) -> bool:
        """Whether the producer's transaction is under way, and the partition is part of it."""
        transaction = self._transactions.get(transactional_id)
        return (
            transaction is not None
            and transaction.state is TransactionState.ONGOING
            and transaction.producer == producer
            and partition in transaction.partitions
        )

    def listed(self) -> Iterator[Transaction]:
        return iter(list(self._transactions.values()))

    def described(self, transactional_id: str) -> Transaction:
        """Raises RequestError for an id that is not known."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise RequestError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"{transactional_id} is not known.")
        return transaction

    # Inside

    def _handle(self, request: Request, to: ReplyTo, now: Moment) -> TransactionEffects:
        effects = TransactionEffects()
        answer = self._carry_out(request, now, effects)
        if answer is None and not self._parked.add(request, to, now.monotonic_ms):
            answer = refuse(request, ErrorCode.CONCURRENT_TRANSACTIONS)
        if answer is not None:
            effects.reply(to, answer)
        else:
            self._go_on(request.transactional_id, now, effects)
        return effects

    def _go_on(self, transactional_id: str, now: Moment, effects: TransactionEffects) -> None:
        """Decide about the requests that wait, in their order, until one has to wait again."""
        while (parked := self._parked.first(transactional_id)) is not None:
            answer = self._carry_out(parked.request, now, effects)
            if answer is not None:
                self._parked.take_first(transactional_id)
                effects.reply(parked.to, answer)
            elif self._transactions[transactional_id].state.is_prepared:
                return

    def _carry_out(self, request: Request, now: Moment, effects: TransactionEffects) -> Answer | None:
        decision = self._decide(request, now)
        if decision.transaction is not None:
            self._store(decision.transaction, now, effects)
        return decision.answer

    def _decide(self, request: Request, now: Moment) -> Decision:
        if not is_transactional_id(request.transactional_id):
            return Decision(refuse(request, ErrorCode.INVALID_REQUEST))
        transaction = self._transactions.get(request.transactional_id)
        if transaction is not None and self._is_late(transaction, request):
            return Decision(refuse(request, ErrorCode.INVALID_TXN_STATE))
        match request:
            case InitProducer():
                decision = decisions.init_producer(transaction, request, self._settings, now.wall_ms)
            case AddPartitions():
                decision = decisions.add_partitions(transaction, request, self._settings, now.wall_ms)
            case EndTransaction():
                decision = decisions.end(transaction, request, now.wall_ms)
        if decision.transaction is not None and not self._has_room(decision.transaction):
            return Decision(refuse(request, ErrorCode.POLICY_VIOLATION))
        return decision

    def _is_late(self, transaction: Transaction, request: Request) -> bool:
        """Whether its producer has gone on by another connection. Only the older protocol needs to know."""
        if isinstance(request, InitProducer) or request.version != 1 or request.producer != transaction.producer:
            return False
        if isinstance(request, AddPartitions) and request.is_verify_only:
            return False  # A partition's leader asks, for a batch that came by another connection.
        return not self._connections.heard(request.transactional_id, request.producer, request.connection)

    def _has_room(self, transaction: Transaction) -> bool:
        growth = transaction.size_bytes - self._size_of(transaction.transactional_id)
        if growth > 0 and self._size_bytes + growth > self._settings.max_shard_bytes:
            return False
        return transaction.transactional_id in self._transactions or len(self) < self._settings.max_ids

    def _size_of(self, transactional_id: str) -> int:
        transaction = self._transactions.get(transactional_id)
        return 0 if transaction is None else transaction.size_bytes

    def _store(self, transaction: Transaction, now: Moment, effects: TransactionEffects) -> None:
        self._log(TransactionStored(transaction), effects)
        self._follow(transaction, now, effects)

    def _log(self, event: Event, effects: TransactionEffects) -> None:
        effects.events.append(event)
        self.apply(event)

    def _follow(self, transaction: Transaction, now: Moment, effects: TransactionEffects) -> None:
        """Do what a state calls for: a time-out for one that is under way, markers for one that is decided."""
        transactional_id = transaction.transactional_id
        if transaction.state is not TransactionState.ONGOING:
            self._timeouts.clear(transactional_id)
        elif transactional_id not in self._timeouts:
            # Set once, and in monotonic time: a step of the wall clock must not abort anybody.
            left_ms = transaction.started_ms + transaction.timeout_ms - now.wall_ms
            self._timeouts.set(transactional_id, now.monotonic_ms + min(max(left_ms, 0), transaction.timeout_ms))
        if not transaction.state.is_prepared:
            return
        if not transaction.partitions:
            self._store(transaction.completed(now.wall_ms), now, effects)
            return
        self._unmarked[transactional_id] = set(transaction.partitions)
        effects.markers.append(
            WriteMarkers(
                transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.state is TransactionState.PREPARE_COMMIT,
                tuple(sorted(transaction.partitions)),
            )
        )

    def _mark(
        self, transaction: Transaction, partitions: Iterable[PartitionId], now: Moment, effects: TransactionEffects
    ) -> None:
        unmarked = self._unmarked.get(transaction.transactional_id)
        if unmarked is None:
            return
        unmarked.difference_update(partitions)
        if not unmarked:
            del self._unmarked[transaction.transactional_id]
            self._store(transaction.completed(now.wall_ms), now, effects)
            self._go_on(transaction.transactional_id, now, effects)
