"""Whoever runs a shard, as a model: the log takes decisions in order, and only what it took counts. It crashes.

Checks, of any requests whatever, what must hold of the log, of markers, and of answers. Knows nothing of how the shard
decides."""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.model.ids import PartitionId
from headwater.transactions.connections import Connections
from headwater.transactions.effects import TransactionEffects, WriteMarkers
from headwater.transactions.event_bytes import encode
from headwater.transactions.events import Event, TransactionForgotten, TransactionStored
from headwater.transactions.requests import AddPartitions, EndTransaction, InitProducer, Request
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.transaction import LAST_EPOCH, ProducerIdentity, Transaction, TransactionState, created
from tests.transactions.driven_transactions import P0, P1, P2, at, replayed

SETTINGS = TransactionSettings(concurrent_wait_ms=2_000, max_parked=3, id_expiration_ms=10**9)
TIMEOUT_MS = 10_000
PARTITIONS = (P0, P1, P2)
IDS = ("fresh", "worn")
SEED = TransactionStored(replace(created("worn", 500, TIMEOUT_MS, 0), producer_epoch=LAST_EPOCH - 1))
"""One id whose epochs are nearly used up: else no test lives long enough to see that."""

_S = TransactionState
STEPS = {
    _S.EMPTY: {_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT},
    _S.ONGOING: {_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT},
    _S.PREPARE_COMMIT: {_S.COMPLETE_COMMIT},
    _S.PREPARE_ABORT: {_S.COMPLETE_ABORT},
    _S.COMPLETE_COMMIT: {_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT},
    _S.COMPLETE_ABORT: {_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT},
}


@dataclass(frozen=True)
class Begun:
    """One transaction, as the log tells of it."""

    partitions: frozenset[PartitionId]
    is_commit: bool | None
    """None while it is open."""


class History:
    """What a log says, event by event."""

    def __init__(self, events: list[Event]) -> None:
        self.current: dict[str, Transaction] = {}
        self.begun: dict[str, list[Begun]] = defaultdict(list)
        self.producers: dict[str, set[ProducerIdentity]] = defaultdict(set)
        self.producer_ids: set[int] = set()
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        if isinstance(event, TransactionForgotten):
            assert event.transactional_id in self.current, "only what is there is forgotten"
            del self.current[event.transactional_id]
            return
        new = event.transaction
        old = self.current.get(new.transactional_id)
        self._check_step(old, new)
        self.producer_ids.add(new.producer_id)
        self.producers[new.transactional_id].add(new.producer)
        self.current[new.transactional_id] = new
        begun = self.begun[new.transactional_id]
        if new.state is _S.ONGOING and (old is None or old.state is not _S.ONGOING):
            begun.append(Begun(new.partitions, None))
        elif new.state is _S.ONGOING or new.state.is_prepared:
            begun[-1] = Begun(new.partitions, new.state.is_committed)

    def _check_step(self, old: Transaction | None, new: Transaction) -> None:
        assert old is None or new.state in STEPS[old.state], "an outcome is never changed, and nothing is left out"
        if old is None or old.producer_id != new.producer_id:
            assert new.producer_id not in self.producer_ids, "a producer id is new when it is given"
        else:
            assert old.producer_epoch <= new.producer_epoch, "epochs never go back"


class ModelOfCoordinator(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.tokens = 0
        self.spare_id = 1_000
        self.durable: list[Event] = [SEED]
        self.history = History(self.durable)
        """Of what is decided: durable, or on its way into the log."""
        self.undurable: list[TransactionEffects] = []
        self.waiting: dict[object, tuple[Request, int]] = {}
        """Not answered yet, and since when."""
        self.asked: dict[object, Request] = {}
        self.unwritten: list[tuple[WriteMarkers, PartitionId]] = []
        self.marked: dict[str, set[PartitionId]] = defaultdict(set)
        self.outcomes: dict[tuple[str, int], bool] = {}
        """Of each transaction that was marked anywhere: with what."""
        self.connections_heard = Connections()
        self.shard = replayed(self.durable, SETTINGS, self.connections_heard)
        self.take(self.shard.resume(at(0)))

    # To be filled in

    def decided(self, token: object, answer: Any) -> None:
        """The shard answered; the answer is not given yet."""

    def delivered(self, token: object, answer: Any) -> None:
        """The answer was given."""

    def dropped(self, is_crash: bool) -> None:
        """What was not in the log is gone; with a crash, connections are, too."""

    # Asking

    def ask(self, request: Request) -> object:
        self.tokens += 1
        token = self.tokens
        self.waiting[token] = (request, self.now_ms)
        self.asked[token] = request
        match request:
            case InitProducer():
                self.take(self.shard.init_producer(request, token, at(self.now_ms)))
            case AddPartitions():
                self.take(self.shard.add_partitions(request, token, at(self.now_ms)))
            case EndTransaction():
                self.take(self.shard.end(request, token, at(self.now_ms)))
        return token

    def spare(self) -> int:
        self.spare_id += 1
        return self.spare_id

    def spare_for_end(self, transactional_id: str) -> int:
        return self.spare() if self.shard.needs_spare_producer_id(transactional_id) else -1

    def take(self, effects: TransactionEffects) -> None:
        for event in effects.events:
            self._check_complete(event)
            self.history.add(event)
        self.undurable.append(effects)
        for reply in effects.replies:
            assert reply.to in self.waiting, "a request is answered once"
            del self.waiting[reply.to]
            self.decided(reply.to, reply.answer)

    def _check_complete(self, event: Event) -> None:
        if isinstance(event, TransactionForgotten):
            return
        new, old = event.transaction, self.history.current.get(event.transaction.transactional_id)
        if new.state.is_prepared:
            self.marked[new.transactional_id] = set()
        if old is not None and old.state.is_prepared:
            assert old.partitions <= self.marked[new.transactional_id], "complete means marked everywhere"

    # The log

    @precondition(lambda self: self.undurable)
    @rule(count=st.integers(1, 4))
    def log_takes(self, count: int) -> None:
        for _ in range(min(count, len(self.undurable))):
            effects = self.undurable.pop(0)
            self.durable += effects.events
            for markers in effects.markers:
                self._release(markers)
            for reply in effects.replies:
                self.delivered(reply.to, reply.answer)

    def _release(self, markers: WriteMarkers) -> None:
        history = History(self.durable)
        transaction = history.current[markers.transactional_id]
        assert transaction.state.is_prepared, "markers follow the decision"
        assert markers.is_commit == transaction.state.is_committed
        assert frozenset(markers.partitions) == transaction.partitions
        assert (markers.producer_id, markers.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
        number = len(history.begun[markers.transactional_id])
        assert self.outcomes.setdefault((markers.transactional_id, number), markers.is_commit) == markers.is_commit
        self.unwritten += [(markers, partition) for partition in markers.partitions]

    @rule()
    def log_takes_everything(self) -> None:
        self.log_takes(len(self.undurable))

    @rule(is_crash=st.booleans())
    def drop(self, is_crash: bool) -> None:
        """The process crashes; or the log did not take an append, and the shard is read again."""
        if is_crash:
            self.connections_heard = Connections()
        self.undurable.clear()
        self.waiting.clear()
        self.unwritten.clear()
        self.marked.clear()
        self.history = History(self.durable)
        self.dropped(is_crash)
        self.shard = replayed(self.durable, SETTINGS, self.connections_heard)
        self.take(self.shard.resume(at(self.now_ms)))

    # The world

    @precondition(lambda self: self.unwritten)
    @rule(pick=st.integers(0, 10))
    def write_marker(self, pick: int) -> None:
        markers, partition = self.unwritten.pop(pick % len(self.unwritten))
        self.marked[markers.transactional_id].add(partition)
        producer = (markers.producer_id, markers.producer_epoch)
        self.take(self.shard.markers_written(markers.transactional_id, *producer, [partition], at(self.now_ms)))

    @rule()
    def write_all_markers(self) -> None:
        while self.unwritten:
            self.write_marker(0)

    @rule(partition=st.sampled_from(PARTITIONS))
    def delete(self, partition: PartitionId) -> None:
        for transactional_id in IDS:
            self.marked[transactional_id].add(partition)
        self.forgot(partition)
        self.take(self.shard.forget_partitions([partition], at(self.now_ms)))

    def forgot(self, partition: PartitionId) -> None:
        """A partition was deleted."""

    @rule(ms=st.sampled_from([10, 1_000, 2_000, 9_000]))
    def time_passes(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (next_ms := self.shard.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.take(self.shard.tick(at(self.now_ms)))
        self.now_ms = end_ms
        for _, since_ms in self.waiting.values():
            assert self.now_ms < since_ms + SETTINGS.concurrent_wait_ms, "nobody waits for longer than that"

    # What holds at any time

    @invariant()
    def a_replay_of_the_log_or_of_its_compacted_form_gives_the_durable_state(self) -> None:
        log = self.durable + [event for effects in self.undurable for event in effects.events]
        newest = {encode(event)[0]: event for event in log}
        assert replayed(log, SETTINGS).durable_state() == self.shard.durable_state() == self.history.current
        assert replayed(list(newest.values()), SETTINGS).durable_state() == self.shard.durable_state()

    @invariant()
    def a_deadline_is_set_while_anybody_waits_or_a_transaction_is_open(self) -> None:
        is_open = any(each.state is _S.ONGOING for each in self.shard.listed())
        if self.waiting or is_open:
            assert self.shard.next_deadline_ms() is not None

    @invariant()
    def whoever_waits_waits_for_a_decided_transaction(self) -> None:
        for request, _ in self.waiting.values():
            assert self.shard.described(request.transactional_id).state.is_prepared
