"""One write of a partition's head, whatever happens to its answer.

Without an answer the head is read. If it names the new open segment under this leader and epoch, the write was applied;
if it has another version otherwise, another broker was faster. If nothing has changed, the write may still arrive: the
same one is sent again, with the same condition, so that at most one of them is applied.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.model.segments import Head, SealedSegment
from headwater.testing.simulation.metadata import HEAD, SEALED, Item
from headwater.testing.simulation.network import Lost

if TYPE_CHECKING:
    from headwater.testing.simulation.broker import SimulatedBroker


def publish(
    publisher: "SimulatedBroker",
    head: Head,
    version: int,
    sealed: SealedSegment | None,
    done: Callable[[int | None], None],
) -> None:
    """`done` gets the head's new version, 0 if another broker wrote it, None if certainly nothing was written."""
    Publication(publisher, head, version, sealed, done).send()


class Publication:
    def __init__(
        self,
        publisher: "SimulatedBroker",
        head: Head,
        version: int,
        sealed: SealedSegment | None,
        done: Callable[[int | None], None],
    ) -> None:
        self._source = publisher
        self._head = head
        self._version = version
        self._operations: list[tuple[str, Any]] = [(HEAD, head)]
        if sealed is not None:
            self._operations.append((SEALED + sealed.id, sealed))
        self._done = done
        self._may_be_applied = False

    def send(self) -> None:
        conditions = [(HEAD, self._version)]
        self._call(self._source.metadata.txn, (conditions, self._operations), self._answered)

    def _answered(self, answer: int | Lost) -> None:
        if answer is Lost.NO_ANSWER or (self._may_be_applied and not (isinstance(answer, int) and answer)):
            self._may_be_applied = True
            self._source.world.after(self._pause(), self._look)
        elif isinstance(answer, Lost):
            self._done(None)
        else:
            self._done(answer)

    def _pause(self) -> float:
        """None or, now and then, one in which much happens."""
        world = self._source.world
        return 0.3 * world.random.random() if world.chance(5 * self._source.swarm.buggify) else 0.0

    def _look(self) -> None:
        self._call(self._source.metadata.get, (HEAD,), self._read)

    def _read(self, item: Item | Lost) -> None:
        if isinstance(item, Lost):
            self._look()
        elif self.is_mine(item.value):
            self._done(item.version)
        elif item.version != self._version:
            self._done(0)
        else:
            self.send()

    def is_mine(self, head: Head) -> bool:
        """All of it: a head that names the segment under a later leader is not this one's to write any more."""
        return head == self._head

    def _call(self, handler: Callable[..., None], arguments: tuple[Any, ...], answer: Callable[[Any], None]) -> None:
        source = self._source
        source.network.call(source, source.metadata, handler, arguments, answer, source.timeout_s)
