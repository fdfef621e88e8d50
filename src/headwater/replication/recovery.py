"""What a new leader makes of the answers to its fences (docs/replication.md, 7, steps 3 and 4).

One answer without doubt is enough: every committed offset is on every replica, and after its fence that replica takes
no more. If all who answered are in doubt, all must have answered, and the longest is taken.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headwater.model.ids import Offset, StoreId
from headwater.model.replica import ReplicaState


@dataclass(frozen=True, slots=True)
class Recovered:
    committed: Offset
    """Known to be on every replica: the old segment ends here."""
    end: Offset
    """What may have been committed: [committed, end) is carried over into the new segment."""
    source: StoreId
    """A replica that holds all of it."""


def answers_needed(replicas: int, ack_quorum: int) -> int:
    """How many sound answers cover every committed offset."""
    return replicas - ack_quorum + 1


def decide(replicas: Collection[StoreId], answers: Mapping[StoreId, ReplicaState]) -> Recovered | None:
    """The decision, or None while too few have answered."""
    sound = [store for store, state in answers.items() if not state.in_doubt]
    everyone_answered = all(store in answers for store in replicas)
    if len(sound) < answers_needed(len(replicas), len(replicas)) and not everyone_answered:
        return None
    source = max(answers, key=lambda store: answers[store].end)
    base = answers[source].base
    end = answers[source].end
    committed = max(base, *(state.lac for state in answers.values()))
    return Recovered(min(committed, end), end, source)
