"""Any interleaving of clients, strangers, time, crashes and late requests, against what may be said of transactions
without knowing how they are decided."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from headwater.model.errors import ErrorCode
from headwater.model.ids import PartitionId
from headwater.transactions.effects import AddAnswer, EndAnswer, ProducerAnswer
from headwater.transactions.requests import AddPartitions, EndTransaction, InitProducer, Request
from headwater.transactions.transaction import LAST_EPOCH, MAX_EPOCH, ProducerIdentity
from tests.transactions.driven_transactions import at
from tests.transactions.model_of_coordinator import IDS, PARTITIONS, SETTINGS, TIMEOUT_MS, History, ModelOfCoordinator

CLIENTS = ((IDS[0], 1), (IDS[0], 2), (IDS[1], 2))
"""Transactional id and protocol of each: two instances of one producer, and one that is alone."""
clients = st.integers(0, len(CLIENTS) - 1)
some_partitions = st.frozensets(st.sampled_from(PARTITIONS), min_size=1, max_size=3)


@dataclass(frozen=True)
class Unit:
    """One transaction, as its client counts them."""

    client: int
    number: int


@dataclass
class Client:
    """An instance of a producer that does as it should."""

    index: int
    transactional_id: str
    version: int
    connection: int
    producer: ProducerIdentity | None = None
    number: int = 0
    is_begun: bool = False
    ending: bool | None = None
    """What it has asked for, and not heard of."""
    token: object | None = None

    @property
    def unit(self) -> Unit:
        return Unit(self.index, self.number)

    def next_unit(self, producer: ProducerIdentity) -> None:
        self.producer, self.number, self.is_begun, self.ending = producer, self.number + 1, False, None


class Clients(ModelOfCoordinator):
    """Producers of both protocols that give connections up, with requests in them that arrive later or never."""

    def __init__(self) -> None:
        self.clients = [Client(index, *each, connection=index + 1) for index, each in enumerate(CLIENTS)]
        self.connections = len(CLIENTS)
        self.late: list[tuple[Client, Request, Unit]] = []
        self.senders: dict[object, tuple[Client, Unit]] = {}
        self.owners: dict[tuple[str, int], Unit] = {}
        """Whose each transaction in the log is."""
        self.wanted: dict[Unit, set[PartitionId]] = defaultdict(set)
        self.added: dict[object, set[PartitionId]] = {}
        self.promised: dict[Unit, set[PartitionId]] = defaultdict(set)
        """What was decided to be added, by request; and of what each client has heard. Without deleted partitions."""
        self.asked_outcomes: dict[Unit, set[bool]] = defaultdict(set)
        self.given: dict[tuple[str, ProducerIdentity], int] = {}
        self.fenced: set[tuple[str, ProducerIdentity]] = set()
        super().__init__()

    def send(self, client: Client, request: Request, unit: Unit) -> object:
        self.senders[self.tokens + 1] = (client, unit)  # it may be answered before `ask` returns
        return self.ask(request)

    def free(self, index: int) -> Client | None:
        client = self.clients[index]
        return client if client.token is None else None

    # What clients do

    @rule(index=clients, claims=st.booleans())
    def init(self, index: int, claims: bool) -> None:
        client = self.free(index)
        if client is not None:
            claimed = (client.producer if claims else None) or (-1, -1)
            request = InitProducer(client.transactional_id, TIMEOUT_MS, *claimed, self.spare())
            client.token = self.send(client, request, client.unit)

    @rule(index=clients, partitions=some_partitions)
    def add(self, index: int, partitions: frozenset[PartitionId]) -> None:
        client = self.free(index)
        if client is not None and client.producer is not None and client.ending is None:
            self.wanted[client.unit] |= partitions
            request = AddPartitions(
                client.transactional_id, *client.producer, partitions, False, client.version, client.connection
            )
            client.token = self.send(client, request, client.unit)

    @rule(index=clients, is_commit=st.booleans(), is_late=st.booleans())
    def end(self, index: int, is_commit: bool, is_late: bool) -> None:
        client = self.free(index)
        if client is None or client.producer is None:
            return
        if client.ending is not None:
            is_commit = client.ending
        elif not client.is_begun and (client.version == 1 or is_commit):
            return
        client.ending = is_commit
        self.asked_outcomes[client.unit].add(is_commit)
        request = EndTransaction(
            client.transactional_id,
            *client.producer,
            is_commit,
            client.version,
            self.spare_for_end(client.transactional_id),
            client.connection,
        )
        if is_late:
            self.late.append((client, request, client.unit))
            self.reconnect(client)
        else:
            client.token = self.send(client, request, client.unit)

    @precondition(lambda self: self.late)
    @rule(pick=st.integers(0, 5))
    def late_request_arrives(self, pick: int) -> None:
        self.send(*self.late.pop(pick % len(self.late)))

    @rule(index=clients)
    def give_up(self, index: int) -> None:
        self.reconnect(self.clients[index])

    def reconnect(self, client: Client) -> None:
        self.connections += 1
        client.connection, client.token = self.connections, None

    # What producers do all day, which random steps seldom add up to

    @rule(index=clients, partitions=some_partitions)
    def begin(self, index: int, partitions: frozenset[PartitionId]) -> None:
        if self.clients[index].producer is None:
            self.init(index, False)
            self.drain()
        self.add(index, partitions)
        self.drain()

    @rule(index=clients, is_commit=st.booleans(), leaves_one_behind=st.booleans())
    def finish(self, index: int, is_commit: bool, leaves_one_behind: bool) -> None:
        """Perhaps with an end that seems to be lost, is repeated, and comes in some day."""
        if leaves_one_behind:
            self.end(index, is_commit, True)
        self.end(index, is_commit, False)
        self.drain()

    def drain(self) -> None:
        self.log_takes_everything()
        self.write_all_markers()
        self.log_takes_everything()

    # What they hear

    def decided(self, token: object, answer: Any) -> None:
        request, (_, unit) = self.asked[token], self.senders[token]
        transactional_id = request.transactional_id
        if isinstance(answer, AddAnswer) and answer.error is ErrorCode.NONE:
            assert isinstance(request, AddPartitions)
            assert (transactional_id, request.producer) not in self.fenced, "who was told so is fenced"
            self.added[token] = set(request.partitions)
            number = len(self.history.begun[transactional_id])
            assert self.owners.setdefault((transactional_id, number), unit) == unit, "nobody joins another transaction"
        begun = self.history.begun[transactional_id]
        if begun and begun[-1].is_commit is not None and isinstance(answer, EndAnswer):
            owner = self.owners[transactional_id, len(begun)]
            assert begun[-1].partitions <= self.wanted[owner]
            if begun[-1].is_commit:
                assert True in self.asked_outcomes[owner], "only its own producer commits a transaction: it is not torn"

    def delivered(self, token: object, answer: Any) -> None:
        request, (client, unit) = self.asked[token], self.senders[token]
        if answer.error is ErrorCode.NONE:
            self.promised[unit] |= self.added.get(token, set())
            self.check_promise(request, unit, answer)
        elif answer.error is ErrorCode.PRODUCER_FENCED and isinstance(request, AddPartitions):
            self.fenced.add((request.transactional_id, request.producer))
        if client.token != token:
            return
        client.token = None
        match answer:
            case ProducerAnswer(ErrorCode.NONE) | EndAnswer(ErrorCode.NONE):
                client.next_unit(ProducerIdentity(answer.producer_id, answer.producer_epoch))
            case AddAnswer(ErrorCode.NONE):
                client.is_begun = True
            case _ if answer.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                client.producer = None

    def check_promise(self, request: Request, unit: Unit, answer: Any) -> None:
        """What a client is told is in the log, and no crash can take it back."""
        transactional_id = request.transactional_id
        history = History(self.durable)
        owned = [
            begun
            for number, begun in enumerate(history.begun[transactional_id], 1)
            if self.owners.get((transactional_id, number)) == unit
        ]
        if isinstance(answer, AddAnswer):
            assert owned, "what was added to is there"
        if isinstance(request, EndTransaction) and (owned or request.is_commit):
            (begun,) = owned
            assert begun.is_commit == request.is_commit, "what is said to be committed is, and no other"
        if isinstance(answer, ProducerAnswer | EndAnswer):
            producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            assert producer.epoch <= LAST_EPOCH
            assert producer in history.producers[transactional_id]
            assert self.given.setdefault((transactional_id, producer), unit.client) == unit.client, "each has its own"
        for begun in owned:
            assert self.promised[unit] <= begun.partitions, "what was added is there"

    def forgot(self, partition: PartitionId) -> None:
        for partitions in (*self.promised.values(), *self.added.values()):
            partitions.discard(partition)

    def dropped(self, is_crash: bool) -> None:
        for key in [key for key in self.owners if key[1] > len(self.history.begun[key[0]])]:
            del self.owners[key]
        if is_crash:
            self.late.clear()
        for client in self.clients:
            if is_crash:
                self.reconnect(client)
            client.token = None


class Strangers(ModelOfCoordinator):
    """Requests that make no sense, from producers that may never have been."""

    @rule(
        transactional_id=st.sampled_from(IDS),
        timeout_ms=st.sampled_from([0, 1, TIMEOUT_MS]),
        is_claiming=st.booleans(),
        data=st.data(),
    )
    def init(self, transactional_id: str, timeout_ms: int, is_claiming: bool, data: st.DataObject) -> None:
        claimed = self.somebody(transactional_id, data) if is_claiming else ProducerIdentity(-1, -1)
        self.ask(InitProducer(transactional_id, timeout_ms, *claimed, self.spare()))

    @rule(
        transactional_id=st.sampled_from(IDS),
        partitions=some_partitions,
        is_verify_only=st.booleans(),
        version=st.sampled_from([1, 2]),
        connection=st.integers(0, 3),
        data=st.data(),
    )
    def add(
        self,
        transactional_id: str,
        partitions: frozenset[PartitionId],
        is_verify_only: bool,
        version: int,
        connection: int,
        data: st.DataObject,
    ) -> None:
        producer = self.somebody(transactional_id, data)
        self.ask(AddPartitions(transactional_id, *producer, partitions, is_verify_only, version, connection))

    @rule(
        transactional_id=st.sampled_from(IDS),
        is_commit=st.booleans(),
        version=st.sampled_from([1, 2]),
        connection=st.integers(0, 3),
        has_spare=st.booleans(),
        data=st.data(),
    )
    def end(
        self,
        transactional_id: str,
        is_commit: bool,
        version: int,
        connection: int,
        has_spare: bool,
        data: st.DataObject,
    ) -> None:
        producer = self.somebody(transactional_id, data)
        spare = self.spare_for_end(transactional_id) if has_spare else -1
        self.ask(EndTransaction(transactional_id, *producer, is_commit, version, spare, connection))

    @rule()
    def nobody_comes_for_long(self) -> None:
        self.time_passes(SETTINGS.id_expiration_ms)
        now = at(self.now_ms)
        self.take(self.shard.expire(now))
        for each in self.shard.listed():
            assert each.state.is_prepared or each.updated_ms > now.wall_ms - SETTINGS.id_expiration_ms

    def somebody(self, transactional_id: str, data: st.DataObject) -> ProducerIdentity:
        transaction = self.shard.durable_state().get(transactional_id)
        known = [] if transaction is None else [transaction.producer, transaction.producer_before]
        epochs = st.sampled_from([-1, 0, 1, LAST_EPOCH, MAX_EPOCH])
        strangers = st.builds(ProducerIdentity, st.sampled_from([-1, 0, 500, self.spare_id]), epochs)
        known_producers = [each for each in known if each is not None] or [ProducerIdentity(0, 0)]
        return data.draw(st.sampled_from(known_producers) | strangers)


TestClients = Clients.TestCase
TestClients.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestStrangers = Strangers.TestCase
TestStrangers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
