"""What was said of the groups' offsets: who would move them where, and what readers found."""

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from headwater.testing.oracles.checkers.events import (
    BrokenHistory,
    CallOutcome,
    CommitBegan,
    CommitEnded,
    OffsetsAdded,
    OffsetsRead,
    TopicPartition,
)
from headwater.testing.oracles.checkers.ledger import NEVER, CommitFate, RecordedTransaction


@dataclass(slots=True, eq=False)
class PlainCommit:
    """A commit outside a transaction. It may move a group back: that is a reset."""

    name: str
    commit_began: int
    ended: int = NEVER
    """When the client learnt that it was done. Without an outcome, it may still be on its way."""
    outcome: CallOutcome | None = None

    @property
    def fate(self) -> CommitFate:
        return _FATES[self.outcome or CallOutcome.UNKNOWN]

    def __str__(self) -> str:
        return f"commit {self.name}"


Source: TypeAlias = RecordedTransaction | PlainCommit


class Observation(NamedTuple):
    number: int
    reader: str
    offset: int | None


class CommitEffect(enum.Enum):
    """Whether something took effect, as far as the end of the history shows."""

    THERE = enum.auto()
    MISSING = enum.auto()
    OPEN = enum.auto()


@dataclass(slots=True)
class GroupPartition:
    """One group's offset in one partition."""

    group: str
    partition: TopicPartition
    sources: dict[int, list[Source]] = field(default_factory=dict)
    """By the offset they would set."""
    has_plain_commits: bool = False
    first_reads: dict[int, Observation] = field(default_factory=dict)
    """By offset."""
    last_reads: dict[str, Observation] = field(default_factory=dict)
    """By reader."""
    retreats: list[tuple[Observation, Observation]] = field(default_factory=list)
    """What a reader found, and less that it found later."""
    final: Observation | None = None
    _final_sources: list[Source] | None = None
    """Who may have set the final offset; known when the history is."""
    _final_end: float = NEVER
    """Until when they may have done so."""

    def transactions(self) -> list[RecordedTransaction]:
        """The transactions that would move the offset, each once."""
        found = (source for sources in self.sources.values() for source in sources)
        return list(dict.fromkeys(source for source in found if isinstance(source, RecordedTransaction)))

    def certain_moves(self) -> list[tuple[Source, int]]:
        """Who certainly moved the offset, and where to."""
        offered = ((source, offset) for offset, sources in self.sources.items() for source in sources)
        return [(each, to) for each, to in offered if each.fate is CommitFate.COMMITTED and self._sets(each, to)]

    def possible_sources(self, offset: int | None) -> list[Source]:
        """Who may have set the offset: not who certainly failed, nor who set another one in the end."""
        found = () if offset is None else self.sources.get(offset, ())
        return [source for source in found if source.fate is not CommitFate.ABORTED and self._sets(source, offset)]

    def standing(self, transaction: RecordedTransaction) -> CommitEffect:
        if self.final is None:
            return CommitEffect.OPEN
        if self._final_sources is None:
            self._final_sources = self.possible_sources(self.final.offset)
            self._final_end = max((each.ended or math.inf for each in self._final_sources), default=NEVER)
        intended = transaction.advances[self.group, self.partition].end
        if self.final.offset == intended:
            return CommitEffect.THERE if self._final_sources == [transaction] else CommitEffect.OPEN
        # A lesser offset that was set before the transaction asked to commit: so the transaction set none.
        is_older = is_less(self.final.offset, intended) and self._final_end < transaction.commit_began
        return CommitEffect.MISSING if is_older else CommitEffect.OPEN

    def _sets(self, source: Source, offset: int | None) -> bool:
        return isinstance(source, PlainCommit) or source.advances[self.group, self.partition].end == offset

    def __str__(self) -> str:
        return f"the offset of group {self.group} in {self.partition}"


class ObservedGroupOffsets:
    def __init__(self) -> None:
        self._books: dict[tuple[str, TopicPartition], GroupPartition] = {}
        self._commits: dict[str, PlainCommit] = {}

    def __getitem__(self, key: tuple[str, TopicPartition]) -> GroupPartition:
        book = self._books.get(key)
        if book is None:
            book = self._books[key] = GroupPartition(*key)
        return book

    def all(self) -> Iterable[GroupPartition]:
        return self._books.values()

    def added(self, event: OffsetsAdded, transaction: RecordedTransaction) -> None:
        for partition, offset in event.offsets:
            sources = self[event.group, partition].sources.setdefault(offset, [])
            if transaction not in sources[-1:]:
                sources.append(transaction)

    def commit_began(self, number: int, event: CommitBegan) -> None:
        if event.commit in self._commits:
            raise BrokenHistory(f"operation {number}: commit {event.commit} begins again; names are unique")
        commit = self._commits[event.commit] = PlainCommit(event.commit, number)
        for partition, offset in event.offsets:
            book = self[event.group, partition]
            book.sources.setdefault(offset, []).append(commit)
            book.has_plain_commits = True

    def commit_ended(self, number: int, event: CommitEnded) -> None:
        commit = self._commits.get(event.commit)
        if commit is None or commit.outcome is not None:
            raise BrokenHistory(f"operation {number}: commit {event.commit} ends, but is not under way")
        commit.outcome = event.outcome
        commit.ended = number if event.outcome is CallOutcome.OK else NEVER

    def read(self, number: int, event: OffsetsRead) -> None:
        for partition, offset in event.offsets:
            book = self[event.group, partition]
            found = Observation(number, event.reader, offset)
            if offset is not None:
                book.first_reads.setdefault(offset, found)
            before = book.last_reads.get(event.reader)
            if before is not None and is_less(offset, before.offset):
                book.retreats.append((before, found))
            book.last_reads[event.reader] = found
            if event.is_final:
                book.final = found


def is_less(offset: int | None, other: int | None) -> bool:
    """No offset at all is less than any."""
    return other is not None and (offset is None or offset < other)


_FATES = {
    CallOutcome.OK: CommitFate.COMMITTED,
    CallOutcome.FAILED: CommitFate.ABORTED,
    CallOutcome.UNKNOWN: CommitFate.UNKNOWN,
}
