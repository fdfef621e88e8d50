"""What a leader does with sealed segments: it drops the oldest (retention), and puts one in the place of two neighbours
(compaction, here without leaving anything out, so that every batch can still be asked for).

Data moves first, keys last. The output of a compaction begins before the open segment, where garbage collection takes
what has no key for dead; so it is announced under a staged key, which the swap deletes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headwater.model.ids import StoreId
from headwater.model.replica import Buffer
from headwater.model.segments import SealedSegment
from headwater.testing.simulation.broker import SimulatedBroker
from headwater.testing.simulation.metadata import HEAD, SEALED, STAGED, Item
from headwater.testing.simulation.network import Lost
from headwater.testing.simulation.world import World

KEPT_SEGMENTS = 3
"""Retention leaves so many sealed segments."""


class Housekeeping:
    def __init__(self, world: World, broker: SimulatedBroker) -> None:
        self._world = world
        self._broker = broker

    def start(self) -> None:
        swarm = self._broker.swarm
        if swarm.retain_every_s:
            self._world.after(swarm.retain_every_s * self._world.random.random(), self._retain)
        if swarm.compact_every_s:
            self._world.after(swarm.compact_every_s * self._world.random.random(), self._compact)

    # Retention

    def _retain(self) -> None:
        every_s = self._broker.swarm.retain_every_s
        self._world.after(every_s * (0.5 + self._world.random.random()), self._retain)
        if self._broker.leader is not None:
            self._list(self._drop_oldest)

    def _drop_oldest(self, sealed: list[Item]) -> None:
        broker = self._broker
        if len(sealed) <= KEPT_SEGMENTS or broker.leader is None or broker.is_writing_head:
            return
        oldest: SealedSegment = sealed[0].value
        assert broker.head is not None, "a leader has read its head"
        if oldest.base != broker.head.start:
            return
        head = replace(broker.head, start=oldest.end)
        conditions = [(HEAD, broker.version), (SEALED + oldest.id, sealed[0].version)]
        broker.is_writing_head = True

        def written(answer: int | Lost) -> None:
            if isinstance(answer, Lost):
                return broker.give_up("what became of retention is not known")
            if answer:
                self._world.counts["segments retired"] += 1
                self._world.note(broker.name, "retires", oldest.id)
                broker.head, broker.version = head, answer
            broker.head_written()

        operations = [(HEAD, head), (SEALED + oldest.id, None)]
        self._ask(broker.metadata.txn, (conditions, operations), written)

    # Compaction

    def _compact(self) -> None:
        every_s = self._broker.swarm.compact_every_s
        self._world.after(every_s * (0.5 + self._world.random.random()), self._compact)
        if self._broker.leader is None:
            return
        if self._world.chance(0.3):
            self._unstage()
        self._list(self._merge)

    def _unstage(self) -> None:
        """Forget what leaders before this one began and did not finish. Some of them may not know that they are over:
        their swap finds its key gone."""

        def listed(answer: Any) -> None:
            if isinstance(answer, dict) and answer:
                self._ask(self._broker.metadata.txn, ([], [(key, None) for key in answer]), _ignore)

        self._ask(self._broker.metadata.list_below, (STAGED,), listed)

    def _merge(self, sealed: list[Item]) -> None:
        if len(sealed) < 2 or self._broker.leader is None:
            return
        at = self._world.random.randrange(len(sealed) - 1)
        one, other = sealed[at], sealed[at + 1]
        if one.value.end == other.value.base:
            Merge(self, self._broker, self._world, one, other).announce()

    def _list(self, then: Callable[[list[Item]], None]) -> None:
        def listed(answer: Any) -> None:
            if isinstance(answer, dict):
                then(sorted(answer.values(), key=lambda item: (item.value.base, item.value.end)))

        self._ask(self._broker.metadata.list_below, (SEALED,), listed)

    def _ask(self, handler: Any, arguments: tuple[Any, ...], answer: Any) -> None:
        broker = self._broker
        answered = broker.of_this_term(answer)
        broker.network.call(broker, broker.metadata, handler, arguments, answered, broker.timeout_s)


class Merge:
    """Announce, read both, write the output to stores, swap. A failure on the way leaves garbage only."""

    def __init__(
        self, housekeeping: Housekeeping, broker: SimulatedBroker, world: World, one: Item, other: Item
    ) -> None:
        self._ask = housekeeping._ask
        self._broker = broker
        self._world = world
        self._inputs = (one, other)
        self._batches: list[Buffer] = []
        self._header = b""
        self._staged = 0
        self._written: list[StoreId] = []
        first, last = one.value, other.value
        output = broker.new_segment_id()
        count = broker.swarm.rules.replication_factor
        stores = broker.membership.choose(broker, count, frozenset(), output)
        self._output = replace(
            last, id=output, base=first.base, replicas=stores, adding=(), compacted=True,
            earlier_epochs=(*first.earlier_epochs, (first.epoch, first.epoch_start), *last.earlier_epochs),
            size_bytes=first.size_bytes + last.size_bytes,
        )  # fmt: skip

    def announce(self) -> None:
        if len(self._output.replicas) < self._broker.swarm.rules.min_insync:
            return
        key = STAGED + self._output.id
        self._ask(self._broker.metadata.txn, ([(key, 0)], [(key, self._output)]), self._announced)

    def _announced(self, answer: int | Lost) -> None:
        if isinstance(answer, int) and answer:
            self._staged = answer
            self._read(0)

    def _read(self, index: int) -> None:
        segment: SealedSegment = self._inputs[index].value
        source = self._world.random.choice(segment.replicas)

        def read(answer: Any) -> None:
            if not isinstance(answer, tuple):
                return
            self._batches += answer[1]
            if index == 0:
                self._header = answer[0]
                self._read(1)
            else:
                self._write(0)

        self._call(source, "read", (segment.id, segment.base, segment.end), read)

    def _write(self, index: int) -> None:
        if index == len(self._output.replicas):
            return self._swap()
        store_id = self._output.replicas[index]

        def written(answer: Any) -> None:
            if answer is None:
                self._written.append(store_id)
            self._write(index + 1)

        self._call(store_id, "receive", (self._output, self._header, list(self._batches)), written)

    def _swap(self) -> None:
        if len(self._written) < self._broker.swarm.rules.min_insync:
            return
        output = replace(self._output, replicas=tuple(self._written))
        keys = [SEALED + item.value.id for item in self._inputs]
        conditions = [(key, item.version) for key, item in zip(keys, self._inputs, strict=True)]
        staged = STAGED + output.id
        operations = [*((key, None) for key in keys), (staged, None), (SEALED + output.id, output)]
        self._ask(self._broker.metadata.txn, ([*conditions, *self.still_staged()], operations), self._swapped)

    def still_staged(self) -> list[tuple[str, int]]:
        """Without the staged key the output may be collected already."""
        return [(STAGED + self._output.id, self._staged)]

    def _swapped(self, answer: int | Lost) -> None:
        if isinstance(answer, int) and answer:
            self._world.counts["compactions"] += 1
            self._world.note(self._broker.name, "swaps in", self._output.id)

    def _call(self, store_id: StoreId, call: str, arguments: tuple[Any, ...], answer: Any) -> None:
        broker, store = self._broker, self._broker.stores[store_id]
        answered = broker.of_this_term(answer)
        broker.network.call(broker, store, getattr(store, call), (store_id, *arguments), answered, broker.timeout_s)


def _ignore(answer: Any) -> None:
    """The next one looks again."""
