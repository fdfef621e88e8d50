"""A run that keeps every promise: a log in memory, clients of all sorts, and the history they record.

The log is a list per partition, with markers where transactions end and a last stable offset, as Kafka has them. Calls
take effect at once, but acknowledgements may be told late, never, or as unknown, and clients vanish in the middle.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from headwater.testing.oracles.checkers import History, Isolation, Recorder

Place = tuple[str, int]

COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
PLACES: list[Place] = [("in", 0), ("in", 1), ("out", 0), ("out", 1)]
GROUP = "transformers"


@dataclass(eq=False)
class OpenTransaction:
    name: str
    places: set[Place] = field(default_factory=set)
    offsets: dict[Place, int] = field(default_factory=dict)
    is_committed: bool | None = None


@dataclass
class Entry:
    value: str | None
    """None for a marker."""
    transaction: OpenTransaction | None = None


class SimulatedLog:
    def __init__(self) -> None:
        self.partitions: dict[Place, list[Entry]] = {place: [] for place in PLACES}
        self.group_offsets: dict[Place, int] = {}

    def append(self, place: Place, value: str, transaction: OpenTransaction | None = None) -> int:
        if transaction is not None:
            transaction.places.add(place)
        self.partitions[place].append(Entry(value, transaction))
        return len(self.partitions[place]) - 1

    def end(self, transaction: OpenTransaction, is_committed: bool) -> None:
        transaction.is_committed = is_committed
        for place in transaction.places:
            self.partitions[place].append(Entry(None, transaction))
        if is_committed:
            self.group_offsets |= transaction.offsets

    def read(self, place: Place, isolation: Isolation, start: int, limit: int) -> tuple[list[tuple[int, str]], int]:
        """Records, and the position after them."""
        found: list[tuple[int, str]] = []
        position = start
        for offset in range(start, len(self.partitions[place])):
            entry = self.partitions[place][offset]
            is_open = entry.transaction is not None and entry.transaction.is_committed is None
            if len(found) == limit or (isolation is COMMITTED and is_open):
                break
            is_aborted = entry.transaction is not None and entry.transaction.is_committed is False
            if entry.value is not None and not (isolation is COMMITTED and is_aborted):
                found.append((offset, entry.value))
            position = offset + 1
        return found, position


class SimulatedRun:
    def __init__(self, seed: int, steps: int = 120) -> None:
        self.dice = Random(seed)
        self.recorder = Recorder()
        self.log = SimulatedLog()
        self._late: list[tuple[str, str, int, int]] = []
        """Acknowledgements that are still on their way."""
        self._values = 0
        self._clients = 0
        actors: list[_Actor] = [_Writer(self), _Writer(self), _Transactor(self), _Transactor(self), _Transformer(self)]
        actors += [_Observer(self, COMMITTED), _Observer(self, UNCOMMITTED), _Committer(self)]
        for _ in range(steps):
            self.dice.choice(actors).step()
            if self._late and self.dice.random() < 0.5:
                self.recorder.acknowledged(*self._late.pop(self.dice.randrange(len(self._late))))
        for actor in actors:
            actor.stop()
        self._read_all()

    def history(self) -> History:
        return self.recorder.history()

    def client(self, kind: str) -> str:
        self._clients += 1
        return f"{kind}-{self._clients}"

    def send(self, producer: str, place: Place, transaction: OpenTransaction | None = None) -> bool:
        """Whether the client may go on with its transaction."""
        self._values += 1
        value = f"{producer}:{self._values}"
        topic, partition = place
        told = self.dice.choice([partition, None])
        name = None if transaction is None else transaction.name
        self.recorder.send(producer, topic, value, partition=told, transaction=name)
        chance = self.dice.random()
        if chance < 0.05:
            self.recorder.send_failed(topic, value)
            return False
        if chance < 0.15 and transaction is None:
            if self.dice.random() < 0.5:
                self.log.append(place, value)
            if self.dice.random() < 0.5:
                self.recorder.send_unknown(topic, value)
            return False
        offset = self.log.append(place, value, transaction)
        self._late.append((topic, value, partition, offset if self.dice.random() < 0.9 else -1))
        return True

    def _read_all(self) -> None:
        for late in self._late:
            self.recorder.acknowledged(*late)
        for topic, partition in PLACES:
            for isolation in Isolation:
                records, end = self.log.read((topic, partition), isolation, 0, 1 << 30)
                self.recorder.final_read(isolation, topic, partition, records, end=end)
        offsets = {place: self.log.group_offsets.get(place) for place in PLACES[:2]}
        self.recorder.offsets_read("end", GROUP, offsets, is_final=True)


class _Actor(Protocol):
    def step(self) -> None: ...
    def stop(self) -> None: ...


class _Writer:
    """An idempotent producer without transactions."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run
        self._name = run.client("writer")

    def step(self) -> None:
        self._run.send(self._name, self._run.dice.choice(PLACES))

    def stop(self) -> None:
        pass


class _Transactor:
    """Writes to several partitions in transactions that end in every possible way."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run
        self._name = run.client("transactor")
        self._open: OpenTransaction | None = None
        self._undecided: OpenTransaction | None = None

    def step(self) -> None:
        run = self._run
        if self._undecided is not None:
            _decide(run, self._undecided)  # at the latest when the producer comes back
            self._undecided = None
        if self._open is None:
            self._open = OpenTransaction(name=run.recorder.begin(self._name))
        if run.dice.random() < 0.7:
            if not run.send(self._name, run.dice.choice(PLACES), self._open):
                _abort(run, self._open)
                self._open = None
        else:
            if not _end(run, self._open):
                self._undecided = self._open
            self._open = None

    def stop(self) -> None:
        if self._undecided is not None:
            _decide(self._run, self._undecided)
        if self._open is not None:
            self._run.log.end(self._open, is_committed=False)  # the broker's time-out, of which nobody is told


class _Transformer:
    """Reads `in`, writes `out`, and moves its group, all in one transaction."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run
        self._start_again()

    def step(self) -> None:
        run, place = self._run, self._run.dice.choice(PLACES[:2])
        records, position = run.log.read(place, COMMITTED, self._positions[place], run.dice.randrange(1, 6))
        run.recorder.polled(self._name, COMMITTED, [(*place, offset, value) for offset, value in records])
        if not records:
            return
        transaction = OpenTransaction(name=run.recorder.begin(self._name))
        is_whole = all(run.send(self._name, run.dice.choice(PLACES[2:]), transaction) for _ in records)
        self._positions[place] = position
        transaction.offsets = {place: position}
        run.recorder.send_offsets(transaction.name, GROUP, transaction.offsets, consumer=self._name)
        is_known = _end(run, transaction) if is_whole else _abort(run, transaction)
        if not is_known:
            _decide(run, transaction)
            self._start_again()
        elif not transaction.is_committed:
            self._positions[place] = run.log.group_offsets.get(place, 0)
            run.recorder.sought(self._name, *place, self._positions[place])
        if run.dice.random() < 0.3:
            run.recorder.offsets_read("watcher", GROUP, {place: run.log.group_offsets.get(place)})

    def stop(self) -> None:
        pass

    def _start_again(self) -> None:
        run = self._run
        self._name = run.client("transformer")
        self._positions = {place: run.log.group_offsets.get(place, 0) for place in PLACES[:2]}
        run.recorder.assigned(self._name, self._positions)


class _Observer:
    """Follows all partitions, and seldom goes back to look again."""

    def __init__(self, run: SimulatedRun, isolation: Isolation) -> None:
        self._run = run
        self._isolation = isolation
        self._name = run.client("observer")
        self._positions = dict.fromkeys(PLACES, 0)
        run.recorder.assigned(self._name, self._positions)

    def step(self) -> None:
        run, place = self._run, self._run.dice.choice(PLACES)
        if run.dice.random() < 0.05:
            self._positions[place] = run.dice.randrange(self._positions[place] + 1)
            run.recorder.sought(self._name, *place, self._positions[place])
        before = self._positions[place]
        records, after = run.log.read(place, self._isolation, before, run.dice.randrange(1, 10))
        self._positions[place] = after
        found = [(*place, offset, value) for offset, value in records]
        if run.dice.random() < 0.5:
            run.recorder.polled(self._name, self._isolation, found, before={place: before}, after={place: after})
        else:
            run.recorder.polled(self._name, self._isolation, found)

    def stop(self) -> None:
        pass


class _Committer:
    """A group that commits without transactions, forwards and back."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run
        self._group = run.client("group")
        self._offset: int | None = None

    def step(self) -> None:
        run, place = self._run, PLACES[0]
        wanted = run.dice.randrange(20)
        commit = run.recorder.commit_offsets(self._group, {place: wanted})
        outcome = run.dice.choice(["ok", "ok", "ok", "failed", "unknown"])
        if outcome == "ok" or (outcome == "unknown" and run.dice.random() < 0.5):
            self._offset = wanted
        run.recorder.commit_ended(commit, outcome)
        run.recorder.offsets_read(self._group, self._group, {place: self._offset})

    def stop(self) -> None:
        final = {PLACES[0]: self._offset}
        self._run.recorder.offsets_read(self._group, self._group, final, is_final=True)


def _end(run: SimulatedRun, transaction: OpenTransaction) -> bool:
    """Whether the client knows how it ended. If not, it may not even have ended yet."""
    chance = run.dice.random()
    if chance < 0.25:
        return _abort(run, transaction)
    run.recorder.commit(transaction.name)
    if chance < 0.35:
        run.recorder.ended(transaction.name, "failed")
        return _abort(run, transaction)
    if chance < 0.55:
        if run.dice.random() < 0.5:
            _decide(run, transaction)
        if run.dice.random() < 0.5:
            run.recorder.ended(transaction.name, "unknown")
        return False
    run.log.end(transaction, is_committed=True)
    run.recorder.ended(transaction.name, "ok")
    return True


def _decide(run: SimulatedRun, transaction: OpenTransaction) -> None:
    """What becomes of a commit without an outcome."""
    if transaction.is_committed is None:
        run.log.end(transaction, is_committed=run.dice.random() < 0.5)


def _abort(run: SimulatedRun, transaction: OpenTransaction) -> bool:
    run.recorder.abort(transaction.name)
    run.log.end(transaction, is_committed=False)
    is_known = run.dice.random() < 0.8
    run.recorder.ended(transaction.name, "ok" if is_known else "unknown")
    return is_known
