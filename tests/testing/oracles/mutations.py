"""Ways in which a broker breaks its promises, done to a history that keeps them.

Each takes the events and chance, and returns the events of the broken run with the kinds that a checker may call it, or
None when the history has nothing to break in this way.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from headwater.testing.oracles.checkers import CallOutcome, Isolation, ViolationKind
from headwater.testing.oracles.checkers.events import (
    Event,
    FinalRead,
    OffsetsAdded,
    OffsetsRead,
    Polled,
    SendBegan,
    SendEnded,
    TopicPartition,
    TransactionEnded,
    TransactionEnding,
)

Broken = tuple[list[Event], set[ViolationKind]]
Mutation = Callable[[list[Event], Random], Broken | None]
Spot = tuple[int, int]
"""(event, record in it)"""


def drop_from_the_log(events: list[Event], dice: Random) -> Broken | None:
    """A write that a final read shows was never there."""
    if (spot := _choose(_spots(events, FinalRead, Isolation.READ_COMMITTED), dice)) is None:
        return None
    read = events[spot[0]]
    assert isinstance(read, FinalRead)
    value = read.records[spot[1]][1]
    begun = next(each for each in events if isinstance(each, SendBegan) and each.value == value)
    is_told = any(
        isinstance(each, SendEnded) and each.value == value and each.outcome is CallOutcome.OK for each in events
    )
    if begun.transaction is None and not is_told:
        return None  # nobody was promised anything
    if begun.transaction is not None and begun.transaction not in _committed(events):
        return None
    return [_without(each, value) for each in events], {ViolationKind.LOST_WRITE, ViolationKind.TORN_TRANSACTION}


def drop_from_a_poll(events: list[Event], dice: Random) -> Broken | None:
    """A consumer is not given a record between two others of one poll."""
    spots = [spot for spot in _spots(events, Polled) if 0 < spot[1] < len(_records(events[spot[0]])) - 1]
    if (spot := _choose(spots, dice)) is None:
        return None
    records = list(_records(events[spot[0]]))
    del records[spot[1]]
    return _with_records(events, spot[0], records), {ViolationKind.SKIPPED_RECORDS}


def swap_two_values(events: list[Event], dice: Random) -> Broken | None:
    """Two final reads do not agree."""
    spots = [spot for spot in _spots(events, FinalRead, Isolation.READ_COMMITTED) if spot[1] > 0]
    if (spot := _choose(spots, dice)) is None:
        return None
    records = list(_records(events[spot[0]]))
    (first, one), (second, other) = records[spot[1] - 1], records[spot[1]]
    records[spot[1] - 1 : spot[1] + 1] = [(first, other), (second, one)]
    return _with_records(events, spot[0], records), {ViolationKind.INCONSISTENT_OFFSET}


def repeat_at_the_end(events: list[Event], dice: Random) -> Broken | None:
    """A retry is appended a second time."""
    if (spot := _choose(_spots(events, FinalRead), dice)) is None:
        return None
    read = events[spot[0]]
    assert isinstance(read, FinalRead)
    records = (*read.records, (read.end + 5, read.records[spot[1]][1]))
    broken = replace(read, records=records, end=read.end + 6)
    return [*events[: spot[0]], broken, *events[spot[0] + 1 :]], {ViolationKind.DUPLICATE}


def tear_a_transaction(events: list[Event], dice: Random) -> Broken | None:
    """One partition has the marker of a commit, another that of an abort."""
    by_transaction: dict[str, list[tuple[str, Spot]]] = {}
    transaction_of = {
        (each.topic, each.value): each.transaction
        for each in events
        if isinstance(each, SendBegan) and each.transaction
    }
    for spot in _spots(events, FinalRead, Isolation.READ_COMMITTED):
        read = events[spot[0]]
        assert isinstance(read, FinalRead)
        value = read.records[spot[1]][1]
        if transaction := transaction_of.get((read.partition.topic, value)):
            by_transaction.setdefault(transaction, []).append((value, spot))
    torn = [spots for spots in by_transaction.values() if len(spots) > 1]
    if not torn:
        return None
    value, _ = dice.choice(dice.choice(torn))
    return [_without(each, value, Isolation.READ_COMMITTED) for each in events], {ViolationKind.TORN_TRANSACTION}


def leak_an_aborted_value(events: list[Event], dice: Random) -> Broken | None:
    """A read_committed reader is given what only others may see."""
    at = {
        (type(each), each.isolation, each.partition): i for i, each in enumerate(events) if isinstance(each, FinalRead)
    }
    may_be_there = _committed(events) | _undecided(events)
    aborted = {
        (each.topic, each.value)
        for each in events
        if isinstance(each, SendBegan) and each.transaction and each.transaction not in may_be_there
    }
    spots = [
        spot
        for spot in _spots(events, FinalRead, Isolation.READ_UNCOMMITTED)
        if (_partition(events[spot[0]]).topic, _records(events[spot[0]])[spot[1]][1]) in aborted
    ]
    if (spot := _choose(spots, dice)) is None:
        return None
    leaked = _records(events[spot[0]])[spot[1]]
    target = at[FinalRead, Isolation.READ_COMMITTED, _partition(events[spot[0]])]
    return _with_records(events, target, sorted([*_records(events[target]), leaked])), {ViolationKind.ABORTED_READ}


def rewind_a_group(events: list[Event], dice: Random) -> Broken | None:
    """The end shows an offset below one that was committed for certain."""
    spots = [
        (index, place, offset)
        for index, each in enumerate(events)
        if isinstance(each, OffsetsRead) and each.is_final
        for place, offset in each.offsets
        if offset and place.topic == "in" and each.reader == "end"
    ]
    if not spots:
        return None
    index, place, offset = dice.choice(spots)
    read = events[index]
    assert isinstance(read, OffsetsRead)
    # A commit without an outcome may happen late, so an offset that one of them would set proves nothing.
    undecided = _undecided(events) - _committed(events)
    open_offsets = {
        added
        for each in events
        if isinstance(each, OffsetsAdded) and each.transaction in undecided
        for at, added in each.offsets
        if at == place
    }
    less = dice.choice([None, *(set(range(offset)) - open_offsets)])
    offsets = tuple((each, less if each == place else kept) for each, kept in read.offsets)
    return [*events[:index], replace(read, offsets=offsets), *events[index + 1 :]], {
        ViolationKind.DIRTY_OFFSET,
        ViolationKind.TORN_TRANSACTION,
    }


def rewind_a_poll(events: list[Event], dice: Random) -> Broken | None:
    if (spot := _choose(list(_spots(events, Polled)), dice)) is None:
        return None
    records = list(_records(events[spot[0]]))
    records.insert(spot[1] + 1, records[spot[1]])
    return _with_records(events, spot[0], records), {ViolationKind.BACKWARD_POLL}


def make_up_a_value(events: list[Event], dice: Random) -> Broken | None:
    if (spot := _choose([*_spots(events, Polled), *_spots(events, FinalRead)], dice)) is None:
        return None
    records = list(_records(events[spot[0]]))
    records[spot[1]] = (records[spot[1]][0], "nobody:0")
    return _with_records(events, spot[0], records), {ViolationKind.PHANTOM}


MUTATIONS: list[Mutation] = [
    drop_from_the_log,
    drop_from_a_poll,
    swap_two_values,
    repeat_at_the_end,
    tear_a_transaction,
    leak_an_aborted_value,
    rewind_a_group,
    rewind_a_poll,
    make_up_a_value,
]


def _spots(events: list[Event], kind: type, isolation: Isolation | None = None) -> Iterator[Spot]:
    for index, event in enumerate(events):
        if isinstance(event, Polled | FinalRead) and isinstance(event, kind) and isolation in (None, event.isolation):
            yield from ((index, position) for position in range(len(event.records)))


def _choose(spots: Iterator[Spot] | list[Spot], dice: Random) -> Spot | None:
    found = list(spots)
    return dice.choice(found) if found else None


def _records(event: Event) -> tuple[tuple[int, str], ...]:
    assert isinstance(event, Polled | FinalRead)
    return event.records


def _partition(event: Event) -> TopicPartition:
    assert isinstance(event, Polled | FinalRead)
    return event.partition


def _with_records(events: list[Event], index: int, records: list[tuple[int, str]]) -> list[Event]:
    event = events[index]
    assert isinstance(event, Polled | FinalRead)
    return [*events[:index], replace(event, records=tuple(records)), *events[index + 1 :]]


def _without(event: Event, value: str, isolation: Isolation | None = None) -> Event:
    """No reader of this isolation was given the value."""
    if isinstance(event, Polled | FinalRead) and isolation in (None, event.isolation):
        return replace(event, records=tuple(each for each in event.records if each[1] != value))
    return event


def _committed(events: list[Event]) -> set[str]:
    return {name for name, outcomes in _commits(events).items() if CallOutcome.OK in outcomes}


def _undecided(events: list[Event]) -> set[str]:
    """Commits that had no outcome, and no abort that was confirmed."""
    aborted = {name for name, outcomes in _commits(events, is_commit=False).items() if CallOutcome.OK in outcomes}
    unknown = {name for name, outcomes in _commits(events).items() if CallOutcome.FAILED not in outcomes}
    return unknown - aborted


def _commits(events: list[Event], is_commit: bool = True) -> dict[str, list[CallOutcome]]:
    asked: dict[str, bool] = {}
    outcomes: dict[str, list[CallOutcome]] = {}
    for event in events:
        if isinstance(event, TransactionEnding):
            asked[event.transaction] = event.is_commit
            if event.is_commit is is_commit:
                outcomes.setdefault(event.transaction, [])
        elif isinstance(event, TransactionEnded) and asked[event.transaction] is is_commit:
            outcomes[event.transaction].append(event.outcome)
    return outcomes
