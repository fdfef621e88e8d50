"""The ends of transactions, for the offset commits that are under way meanwhile.

Offsets are taken into a transaction after its coordinator said that there is one. Between that and the commit the
transaction may end, and what comes after its end would stay pending for ever (KIP-890: a hanging transaction). So a
commit is announced before the coordinator is asked, and an end that comes meanwhile refuses it.

    version 1   a transaction ends in its own epoch, or in a later one if its producer was fenced
    version 2   a transaction ends in a later epoch; an end in its own epoch was that of the transaction before

An end that comes from a coordinator which another one has replaced is refused: it may be of a transaction that is long
over. Nothing of this is stored. What is under way does not outlive the process, nor does a coordinator in it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.model.errors import ErrorCode, RequestError

MAX_COORDINATORS = 10_000
"""Producers whose coordinator epoch is remembered. The producer whose transaction ended longest ago is forgotten
first."""


@dataclass(slots=True, eq=False)
class AnnouncedCommit:
    producer_epoch: int
    version: int
    ended_in: int | None = None
    """The epoch in which its transaction has ended meanwhile."""

    def check(self) -> None:
        """Raise RequestError if the transaction has ended."""
        if self.ended_in is None:
            return
        if self.ended_in > self.producer_epoch:
            raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, "The transaction was ended in a later epoch.")
        raise RequestError(ErrorCode.INVALID_TXN_STATE, "The transaction ended before the offsets were committed.")


class TransactionEnds:
    def __init__(self) -> None:
        self._announced: dict[int, set[AnnouncedCommit]] = {}
        self._coordinators: dict[int, int] = {}

    @contextmanager
    def announced(self, producer_id: int, producer_epoch: int, version: int) -> Iterator[AnnouncedCommit]:
        """Announce a commit that is made within the block."""
        commit = AnnouncedCommit(producer_epoch, version)
        commits = self._announced.setdefault(producer_id, set())
        commits.add(commit)
        try:
            yield commit
        finally:
            commits.discard(commit)
            if not commits and self._announced.get(producer_id) is commits:
                del self._announced[producer_id]

    def ended(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """A transaction has ended in this epoch. Raises TRANSACTION_COORDINATOR_FENCED if a newer coordinator is
        known."""
        newest = self._coordinators.pop(producer_id, coordinator_epoch)
        self._coordinators[producer_id] = max(newest, coordinator_epoch)
        if coordinator_epoch < newest:
            raise RequestError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "Another coordinator has taken over.")
        if len(self._coordinators) > MAX_COORDINATORS:
            del self._coordinators[next(iter(self._coordinators))]
        self.refuse(producer_id, producer_epoch)

    def refuse(self, producer_id: int, producer_epoch: int) -> None:
        """A transaction has ended in this epoch: the commits that were announced for it fail."""
        for commit in self._announced.get(producer_id, ()):
            first = commit.producer_epoch if commit.version == 1 else commit.producer_epoch + 1
            if producer_epoch >= first:
                commit.ended_in = producer_epoch
