"""Does a group's offset move by commits alone, and never back?

What a reader finds must have a source, a transaction or a plain commit, that had asked for its commit by then and did
not certainly fail. At the end the offset is the one that was set last. Plain commits may rewind a group, so what one of
them explains is no violation. A group without any commit in the history has clients that commit on their own, and only
its readers are compared.
"""

from headwater.testing.oracles.checkers.group_offsets import (
    GroupPartition,
    Observation,
    ObservedGroupOffsets,
    PlainCommit,
    Source,
    is_less,
)
from headwater.testing.oracles.checkers.violations import MAX_NAMED, ViolationKind, Violations, listed


class OffsetChecker:
    def __init__(self, offsets: ObservedGroupOffsets, findings: Violations) -> None:
        self._offsets = offsets
        self._findings = findings

    def judge(self) -> None:
        recorded = {book.group for book in self._offsets.all() if book.sources}
        for book in self._offsets.all():
            if book.group in recorded:
                self._judge_sources(book)
                self._judge_last(book)
            self._judge_readers(book)
            if not book.has_plain_commits:
                self._judge_transactions(book)

    def _judge_sources(self, book: GroupPartition) -> None:
        for offset, found in book.first_reads.items():
            sources, possible = book.sources.get(offset, []), book.possible_sources(offset)
            if not sources:
                why = "which no client committed"
            elif not possible:
                why = f"which only {_named(sources)} tried to commit, and did not"
            elif all(source.commit_began > found.number for source in possible):
                why = f"before {_named(possible)} asked to commit it"
            else:
                continue
            self._findings.add(
                ViolationKind.DIRTY_OFFSET,
                (book.group, book.partition, offset, "source"),
                f"{found.reader} found {book} to be {offset}, {why}",
                found.number,
                *(source.commit_began for source in sources[:1]),
            )

    def _judge_last(self, book: GroupPartition) -> None:
        """The final offset must not be one that was certainly replaced by a later commit."""
        last = max(book.certain_moves(), key=lambda move: move[0].commit_began, default=None)
        if book.final is None or last is None:
            return
        latest, offset = last
        possible = book.possible_sources(book.final.offset)
        is_explained = any(not source.ended or source.ended > latest.commit_began for source in possible)
        if latest in possible or is_explained or (not possible and book.final.offset is not None):
            return
        self._findings.add(
            ViolationKind.DIRTY_OFFSET,
            (book.group, book.partition, "last"),
            f"{book} is {_shown(book.final)} at the end, though {latest} set it to {offset} later",
            latest.commit_began,
            latest.ended,
            book.final.number,
        )

    def _judge_readers(self, book: GroupPartition) -> None:
        retreats = list(book.retreats)
        if book.final is not None and book.first_reads:
            highest = book.first_reads[max(book.first_reads)]
            if is_less(book.final.offset, highest.offset):
                retreats.append((highest, book.final))
        for before, after in retreats:
            if not any(isinstance(source, PlainCommit) for source in book.possible_sources(after.offset)):
                self._findings.add(
                    ViolationKind.DIRTY_OFFSET,
                    (book.group, book.partition, before.offset, after.offset, "readers"),
                    f"{book} went back: {before.reader} found {before.offset}, and later {after.reader} found "
                    f"{_shown(after)}",
                    before.number,
                    after.number,
                )

    def _judge_transactions(self, book: GroupPartition) -> None:
        """A transaction must not move the group below where one had moved it that was committed before."""
        moves = book.certain_moves()
        ended = sorted((move for move in moves if move[0].ended), key=lambda move: move[0].ended, reverse=True)
        highest: tuple[Source, int] | None = None
        for transaction, offset in sorted(moves, key=lambda move: move[0].commit_began):
            while ended and ended[-1][0].ended < transaction.commit_began:
                move = ended.pop()
                if highest is None or move[1] > highest[1]:
                    highest = move
            if highest is not None and offset < highest[1]:
                self._findings.add(
                    ViolationKind.DIRTY_OFFSET,
                    (book.group, book.partition, transaction, "moves"),
                    f"{transaction} moved {book} back to {offset}, though {highest[0]} had moved it to {highest[1]}",
                    highest[0].ended,
                    transaction.commit_began,
                )


def _named(sources: list[Source]) -> str:
    return listed([str(source) for source in sources[:MAX_NAMED]], len(sources))


def _shown(found: Observation) -> str:
    return "gone" if found.offset is None else str(found.offset)
