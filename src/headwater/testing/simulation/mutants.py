"""Deliberate errors: each takes one rule away, from a production module or from what surrounds it, and must be caught.

They are the measure of the simulator. A rule whose mutant survives is a rule that is not checked.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from headwater.model.ids import Offset
from headwater.replication import garbage, takeover
from headwater.replication.ack_tracker import AckTracker
from headwater.replication.copies import CopyLedger, CopyState
from headwater.replication.effects import Append
from headwater.replication.leader import Leader
from headwater.replication.takeover import Takeover
from headwater.testing.simulation.batches import Producers, decode
from headwater.testing.simulation.collector import Round
from headwater.testing.simulation.errands import Errands
from headwater.testing.simulation.housekeeping import Merge
from headwater.testing.simulation.metadata import HEAD, SEALED, STAGED, SimulatedMetadata
from headwater.testing.simulation.network import Lost
from headwater.testing.simulation.publishing import Publication
from headwater.testing.simulation.store import SimulatedStore

Wrapper = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    error: str
    target: Any
    attribute: str
    make: Callable[[Any], Any]
    """From what is there to what is there instead."""
    theme: str | None = None
    """The faults among which it shows soonest."""


MUTANTS: dict[str, Mutant] = {}


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Without a name nothing is changed."""
    if name is None:
        yield
        return
    mutant = MUTANTS[name]
    original = mutant.target.__dict__[mutant.attribute]
    setattr(mutant.target, mutant.attribute, mutant.make(original))
    try:
        yield
    finally:
        setattr(mutant.target, mutant.attribute, original)


def _mutant(
    target: Any, attribute: str, error: str, theme: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorated function gets the original first, and is named like the mutant."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def make(original: Any) -> Any:
            @wraps(original)
            def replacement(*arguments: Any, **named: Any) -> Any:
                return function(original, *arguments, **named)

            return property(lambda self: function(original, self)) if isinstance(original, property) else replacement

        MUTANTS[function.__name__] = Mutant(function.__name__, error, target, attribute, make, theme)
        return function

    return register


# Fencing and taking over


@_mutant(SimulatedStore, "fence", "a store answers a fence and goes on to take appends")
def no_fence(fence: Wrapper, store: SimulatedStore, reply: Any, store_id: Any, segment: Any) -> None:
    known = store.replicas.get(segment)
    was_fenced = known is not None and known.is_fenced
    fence(store, reply, store_id, segment)
    if known is not None:
        known.is_fenced = was_fenced


@_mutant(SimulatedStore, "_flushed", "a fence is kept in memory only")
def volatile_fence(
    flushed: Wrapper, store: SimulatedStore, life: int, replica: Any, count: int, lac: Offset, *rest: Any, **named: Any
) -> None:
    was_durable = replica.is_fence_durable
    flushed(store, life, replica, count, lac, *rest, **named)
    replica.is_fence_durable = was_durable


@_mutant(Takeover, "_plant", "a new leader publishes before the tail is on all replicas of its segment")
def cas_before_tail(plant: Wrapper, takeover: Any, now: float) -> Any:
    effects = plant(takeover, now)
    planting = takeover._planting
    if planting is None or not effects:
        return effects
    planting.planted.extend(planting.segment.replicas)
    return [*effects, *takeover._publish(planting.segment)]


@_mutant(takeover, "decide", "a replica that may have lost its tail is believed", theme="takeover")
def ignore_doubt(decide: Wrapper, replicas: Any, answers: Mapping[Any, Any]) -> Any:
    return decide(replicas, {store: replace(state, in_doubt=False) for store, state in answers.items()})


@_mutant(takeover, "decide", "the shortest of the answers is taken, not the longest", theme="takeover")
def shortest_answer(decide: Wrapper, replicas: Any, answers: Mapping[Any, Any]) -> Any:
    found = decide(replicas, answers)
    if found is None:
        return None
    source = min(answers, key=lambda store: answers[store].end)
    return replace(found, source=source, end=answers[source].end, committed=min(found.committed, answers[source].end))


@_mutant(Errands, "tail_for", "the tail that is carried over gets the new leader's epoch")
def epoch_rewrite(tail_for: Wrapper, errands: Errands, plant: Any) -> Any:
    return tuple(decode(batch)._replace(epoch=plant.segment.epoch).encode() for batch in tail_for(errands, plant))


@_mutant(Errands, "replay", "a new leader does not learn what producers wrote after the segment's header")
def producers_not_replayed(replay: Wrapper, errands: Errands, header: bytes, batches: Any) -> Producers:
    return Producers.from_snapshot(header)


# Committing and rolling


@_mutant(SimulatedStore, "_flush", "a store acknowledges before it has flushed, and sees no tear after a power cut")
def ack_before_sync(flush: Wrapper, store: SimulatedStore, replica: Any, reply: Any, value: Any) -> None:
    answer = replica.state() if value is replica else value
    store._invariants.acknowledged(replica, answer)
    reply(answer)
    flush(store, replica, lambda late: None, value)


@_mutant(AckTracker, "_advance", "all but one acknowledgement commit, while one answer is enough to recover")
def quorum_ack_one_recover(advance: Wrapper, tracker: Any) -> bool:
    acked = sorted(tracker._acked.values())
    committed = acked[1] if len(acked) > 1 else acked[0]
    if tracker._is_frozen or committed <= tracker.high_watermark:
        return False
    tracker.high_watermark = committed
    return True


@_mutant(
    AckTracker, "freeze", "the old segment commits past the point at which it is about to be sealed", theme="network"
)
def no_freeze(freeze: Wrapper, tracker: AckTracker) -> Offset:
    return tracker.high_watermark


@_mutant(Leader, "_maybe_publish", "a roll takes whatever stores it gets", theme="network")
def roll_ignores_min_isr(maybe_publish: Wrapper, leader: Any, roll: Any, now: float) -> Any:
    rules = leader.rules
    leader.rules = replace(rules, min_insync=1)
    try:
        return maybe_publish(leader, roll, now)
    finally:
        leader.rules = rules


@_mutant(Leader, "_append_to", "replicas learn that everything sent so far is committed")
def lac_is_log_end(append_to: Wrapper, leader: Leader, store: Any, sender: Any, now: float) -> Append:
    effect: Append = append_to(leader, store, sender, now)
    return replace(effect, lac=effect.end)


@_mutant(Leader, "drop_unstored", "entries are dropped though a replica may hold them")
def drop_unstored_always(drop: Wrapper, leader: Any) -> Any:
    dropped = list(leader._entries)
    leader._entries.clear()
    leader.log_end = leader.high_watermark
    for sender in leader._senders.values():
        sender.sent = leader.log_end
    return dropped


@_mutant(SimulatedMetadata, "holds", "versions are not compared before writing")
def publish_unguarded(holds: Wrapper, metadata: SimulatedMetadata, conditions: Any) -> bool:
    return True


@_mutant(Publication, "_answered", "a publication without an answer counts as not written", theme="publication")
def publish_unknown_taken_as_failed(answered: Wrapper, publication: Any, answer: Any) -> None:
    if isinstance(answer, Lost):
        publication._done(None)
    else:
        answered(publication, answer)


@_mutant(
    Publication,
    "is_mine",
    "a head that names the segment is taken for one's own, though another leads by now",
    theme="publication",
)
def later_head_taken_for_own(is_mine: Wrapper, publication: Any, head: Any) -> bool:
    return head.open is not None and head.open.id == publication._head.open.id


# Repair and garbage


@_mutant(
    Merge, "still_staged", "a compaction is swapped in though its output may have been collected", theme="compaction"
)
def swap_though_unstaged(still_staged: Wrapper, merge: Any) -> list[tuple[str, int]]:
    return []


@_mutant(SimulatedStore, "_draw_identity", "an emptied disk comes back under the old identity")
def reuse_disk_identity(draw: Wrapper, store: SimulatedStore) -> None:
    if store.generation == 0:
        draw(store)


@_mutant(SimulatedStore, "copy", "a copy takes what is there for what should be there", theme="repair")
def copy_exists_ok(
    copy: Wrapper, store: SimulatedStore, reply: Any, store_id: Any, sealed_segment: Any, *rest: Any
) -> None:
    replica = store.replicas.get(sealed_segment.id)
    if replica is not None and not replica.in_doubt:
        store._flush(replica, reply, None)
    else:
        copy(store, reply, store_id, sealed_segment, *rest)


@_mutant(SimulatedStore, "_adopt", "a complete replica is adopted without a new instance", theme="repair")
def adopt_same_instance(adopt: Wrapper, store: SimulatedStore, reply: Any, sealed_segment: Any) -> None:
    replica = store.replicas[sealed_segment.id]
    replica.is_fenced = replica.is_sealed = True
    store._flush(replica, reply, None)


@_mutant(CopyLedger, "state", "a copy that runs counts as done")
def running_copy_is_done(state: Wrapper, ledger: CopyLedger, key: Any, version: int, target: Any) -> Any:
    known = state(ledger, key, version, target)
    return CopyState.DONE if known is CopyState.RUNNING else known


@_mutant(garbage, "collect", "garbage collection does not spare a store that is about to get a copy")
def no_adding(
    collect: Wrapper, inventory: Any, store: Any, heads: Any, staged: Any, sealed: Mapping[Any, Any], topics: Any
) -> Any:
    blind = {segment: replace(sealed_segment, adding=()) for segment, sealed_segment in sealed.items()}
    return collect(inventory, store, heads, staged, blind, topics)


@_mutant(
    garbage, "collect", "garbage collection does not spare the outputs of a compaction under way", theme="compaction"
)
def gc_base_clause_with_compaction(
    collect: Wrapper, inventory: Any, store: Any, heads: Any, staged: Any, sealed: Any, topics: Any
) -> Any:
    return collect(inventory, store, heads, (), sealed, topics)


@_mutant(garbage, "collect", "garbage collection takes what the present leader may be about to publish")
def gc_of_this_epoch(
    collect: Wrapper, inventory: Any, store: Any, heads: Mapping[str, Any], staged: Any, sealed: Any, topics: Any
) -> Any:
    later = {partition: replace(head, epoch=head.epoch + 1) for partition, head in heads.items()}
    return collect(inventory, store, later, staged, sealed, topics)


@_mutant(Round, "_decide", "garbage collection judges replicas that came after it had read the metadata")
def gc_no_snapshot(decide: Wrapper, round_: Any) -> None:
    round_._inventory = round_._collector.store.inventory()
    decide(round_)


MUTANTS["gc_sealed_first"] = Mutant(
    "gc_sealed_first",
    "garbage collection reads the sealed segments before the head",
    Round,
    "ORDER",
    lambda order: (SEALED, STAGED, HEAD),
)
