"""What a check finds: promises that were broken, each in a sentence that says where to look."""

import enum
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

MAX_NAMED = 3
"""Things that one sentence names."""
MAX_LISTED = 100
"""Of each kind. One lost segment would otherwise be a million sentences."""


class ViolationKind(enum.StrEnum):
    """The promises, each named by how it is broken."""

    PHANTOM = "phantom"
    """A value was seen that no producer sent."""
    FUTURE_READ = "read of the future"
    """A value was seen before it was sent."""
    ABORTED_READ = "aborted read"
    """A value was seen that certainly was not written, or, by a read_committed reader, certainly not committed."""
    UNCOMMITTED_READ = "uncommitted read"
    """A read_committed reader saw a value before a commit was asked for."""
    LOST_WRITE = "lost write"
    """A value that was acknowledged, or seen before, is not there."""
    INCONSISTENT_OFFSET = "inconsistent offset"
    """Two values at one offset, or a value elsewhere than acknowledged."""
    DUPLICATE = "duplicate"
    """One value at two offsets, though its producer is idempotent."""
    REORDERED = "reordered writes"
    """Values of one producer in another order than sent."""
    TORN_TRANSACTION = "torn transaction"
    """Some of a transaction's writes and offsets took effect, and others did not."""
    DIRTY_OFFSET = "dirty offset commit"
    """A group's offset that no commit explains, that went back, or that covers input that was not processed."""
    PROCESSED_TWICE = "processed twice"
    """Two committed transactions processed the same input."""
    BACKWARD_POLL = "poll went back"
    """A consumer was given an offset again without a seek."""
    SKIPPED_RECORDS = "skipped records"
    """A consumer was not given records that lie between those it was given."""


@dataclass(frozen=True, slots=True)
class Violation:
    kind: ViolationKind
    sentence: str
    operations: tuple[int, ...] = ()
    """The numbers of the events in question, counted from 1."""

    def __str__(self) -> str:
        if not self.operations:
            return f"{self.kind}: {self.sentence}"
        noun = "operation" if len(self.operations) == 1 else "operations"
        return f"{self.kind}: {self.sentence} ({noun} {', '.join(map(str, self.operations))})"


class Violations:
    """Collects violations: each subject once per kind, and of each kind at most MAX_LISTED."""

    def __init__(self) -> None:
        self._listed: list[Violation] = []
        self._known: set[tuple[ViolationKind, Hashable]] = set()
        self._counts: Counter[ViolationKind] = Counter()

    def add(self, kind: ViolationKind, about: Hashable, sentence: str, *operations: int) -> None:
        if (kind, about) in self._known:
            return
        self._known.add((kind, about))
        self._counts[kind] += 1
        if self._counts[kind] <= MAX_LISTED:
            self._listed.append(Violation(kind, sentence, tuple(sorted({each for each in operations if each}))))

    def violations(self) -> list[Violation]:
        """In the order of `ViolationKind`: what is wrong with single records comes before what follows from it."""
        order = list(ViolationKind)
        found = sorted(self._listed, key=lambda violation: order.index(violation.kind))
        for kind, count in self._counts.items():
            if count > MAX_LISTED:
                found.append(Violation(kind, f"{count - MAX_LISTED} more of this kind are not listed"))
        return found


def listed(things: Sequence[str], count: int | None = None) -> str:
    """The first few, and how many more there are; `count` is their number when not all are given."""
    more = (len(things) if count is None else count) - MAX_NAMED
    return ", ".join(things[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
