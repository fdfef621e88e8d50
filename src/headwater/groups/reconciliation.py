"""One member's next step towards its target (KIP-848).

    STABLE ── the target moved ──▶ something to give up? ── yes ──▶ UNREVOKED ── the member says it did ──┐
       ▲                                   │ no                                                           │
       │                                   ▼                                                              │
       └──── all of them are free ─── takes what is free ◀────────────────────────────────────────────────┘
                                           │ others still hold some
                                           ▼
                                      UNRELEASED ── asks again with each heartbeat

- A partition is assigned only when no other member has it or has still to give it up: no two own one at once.
- The epoch of the target is reached only after everything was given up that the target does not contain.
- A partition that a member was given is given up when the member says so after it was asked to. A member that says
  before that it owns less may not have begun to read what it was given last: it will.
"""

from collections.abc import Callable
from dataclasses import replace

from headwater.groups.assignment import NOTHING, Assignment, chosen, difference, intersection, overlap, union
from headwater.groups.consumer_events import CurrentStored, MemberState
from headwater.model.ids import TopicId


def reconcile(
    current: CurrentStored,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: Callable[[TopicId, int], bool],
    *,
    joins: bool = False,
) -> CurrentStored:
    """The member's state after a request. `owned` is what it says it has; None if it did not say. A member that joins
    has done all that it was told before, so that what it does not own is given up."""
    if current.state is MemberState.STABLE and current.epoch == target_epoch:
        return current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _holds(owned, current.revoking):
        return current
    kept = intersection(current.assigned, target)
    revoking = difference(current.assigned, target)
    if revoking and (not joins or _holds(owned, revoking)):
        return replace(
            current,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=revoking,
        )
    missing = difference(target, kept)
    free = chosen(missing, is_free)
    return replace(
        current,
        epoch=target_epoch,
        previous_epoch=current.epoch if current.epoch != target_epoch else current.previous_epoch,
        state=MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS,
        assigned=union(kept, free),
        revoking=NOTHING,
    )


def _holds(owned: Assignment | None, partitions: Assignment) -> bool:
    """Whether the member still has some of the partitions; one that does not say has kept them."""
    return owned is None or overlap(owned, partitions)
