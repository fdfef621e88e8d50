"""What the machines ask of stores, carried there and back.

Each effect becomes a call, and each answer an input of the machine that asked.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.model.ids import Offset, StoreId
from headwater.model.replica import Buffer, Fenced, NoSpace, ReplicaState
from headwater.replication.effects import Append, Create, Effect, Fence, Plant, Refusal, Replay
from headwater.testing.simulation.batches import Producers, decode, span
from headwater.testing.simulation.network import Lost
from headwater.testing.simulation.store import SimulatedStore

if TYPE_CHECKING:
    from headwater.testing.simulation.broker import SimulatedBroker


class Errands:
    def __init__(self, broker: "SimulatedBroker") -> None:
        self._broker = broker
        self._world = broker.world
        self._replay: Replay | None = None
        """The one whose answer counts. The machine does not ask which replica was read, so no late one may reach it."""

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case Append():
                arguments = (effect.segment, effect.first, effect.end, effect.lac, effect.batches)
                self._ask(effect.store, SimulatedStore.append, arguments, partial(self._appended, effect))
            case Create():
                header = self._broker.producers.snapshot(effect.segment.base)
                create = (effect.segment.id, effect.segment.base, effect.segment.epoch, header)
                self._ask(effect.store, SimulatedStore.create, create, partial(self._created, effect))
            case Fence():
                self._ask(effect.store, SimulatedStore.fence, (effect.segment,), partial(self._fenced, effect))
            case Replay():
                self._replay = effect
                read = (effect.segment.id, effect.segment.base, effect.end)
                self._ask(effect.source, SimulatedStore.read, read, partial(self._replayed, effect))
            case Plant():
                self._plant(effect)
            case _:
                raise AssertionError(f"{effect} is not for a store")

    def _ask(
        self, store_id: StoreId, call: Callable[..., None], arguments: tuple[Any, ...], answer: Callable[[Any], None]
    ) -> None:
        """One call of a store; the answer counts only in the same term."""
        broker, store = self._broker, self._broker.stores[store_id]
        answered = broker.of_this_term(answer)
        broker.network.call(broker, store, partial(call, store), (store_id, *arguments), answered, broker.timeout_s)

    def _appended(self, effect: Append, answer: Any) -> None:
        leader, now = self._broker.leader, self._world.now
        if leader is None:
            return
        if isinstance(answer, int):
            return self._broker.run(leader.acknowledged(effect.store, effect.segment, Offset(answer), now))
        refusal = _refusal(answer)
        self._world.note(self._broker.name, "append refused", effect.store, refusal.value)
        if isinstance(answer, Lost) and self._world.chance(0.3):
            self._broker.run(leader.store_lost(effect.store, now))  # the shell heard of the connection first
        else:
            self._broker.run(leader.refused(effect.store, effect.segment, refusal, now))
        if refusal is Refusal.NO_SPACE or self._world.chance(self._broker.swarm.buggify):
            self._broker.drop_unstored()

    def _created(self, effect: Create, answer: Any) -> None:
        if self._broker.leader is None:
            return
        if answer is None:
            return self._broker.run(self._broker.leader.created(effect.store, effect.segment.id, self._world.now))
        self._broker.run(
            self._broker.leader.create_failed(effect.store, effect.segment.id, _refusal(answer), self._world.now)
        )

    def _fenced(self, effect: Fence, answer: Any) -> None:
        if self._broker.takeover is None:
            return
        if isinstance(answer, ReplicaState):
            return self._broker.run(self._broker.takeover.fenced(effect.store, answer, self._world.now))
        self._broker.run(self._broker.takeover.fence_failed(effect.store, self._world.now))

    def _replayed(self, effect: Replay, answer: Any) -> None:
        if self._broker.takeover is None or self._replay is not effect:
            return
        self._replay = None
        if not isinstance(answer, tuple):
            return self._broker.run(self._broker.takeover.replay_failed(effect.source, self._world.now))
        header, batches = answer
        self._broker.tail = [batch for batch in batches if span(batch)[0] >= effect.committed]
        self._broker.producers = self.replay(header, batches)
        self._broker.run(self._broker.takeover.replayed(self._world.now))

    def replay(self, header: bytes, batches: Sequence[Buffer]) -> Producers:
        producers = Producers.from_snapshot(header)
        for batch in map(decode, batches):
            producers.wrote(batch.producer, batch.sequence, batch.base, batch.end)
        return producers

    def _plant(self, effect: Plant) -> None:
        segment, tail = effect.segment, self.tail_for(effect)
        header = self._broker.producers.snapshot(segment.base)

        def failed(answer: Any) -> None:
            if self._broker.takeover is not None:
                refusal = _refusal(answer)
                self._broker.run(self._broker.takeover.plant_failed(effect.store, segment.id, refusal, self._world.now))

        def appended(answer: Any) -> None:
            if answer is not None and not isinstance(answer, int):
                return failed(answer)
            if self._broker.takeover is not None:
                self._broker.run(self._broker.takeover.planted(effect.store, segment.id, self._world.now))

        def created(answer: Any) -> None:
            if answer is not None:
                return failed(answer)
            if not tail:
                return appended(None)
            arguments = (segment.id, segment.base, effect.end, effect.committed, tail)
            self._ask(effect.store, SimulatedStore.append, arguments, appended)

        self._ask(effect.store, SimulatedStore.create, (segment.id, segment.base, segment.epoch, header), created)

    def tail_for(self, plant: Plant) -> tuple[Buffer, ...]:
        """Unchanged: a batch keeps the epoch in which it was written."""
        return tuple(self._broker.tail)


def _refusal(answer: Any) -> Refusal:
    if isinstance(answer, Lost):
        return Refusal.UNREACHABLE
    if isinstance(answer, Fenced):
        return Refusal.FENCED
    return Refusal.NO_SPACE if isinstance(answer, NoSpace) else Refusal.BROKEN
