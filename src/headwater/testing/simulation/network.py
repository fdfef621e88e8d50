"""Calls between processes over a network that delays, loses, doubles and cuts.

A call ends in exactly one of three ways: with the answer; with NOT_SENT, when the connection was refused, so that it
certainly had no effect; or with NO_ANSWER, after a time-out or a reset, when it may have had one or may yet. With
`late_answers` an answer that comes after NO_ANSWER is passed on, too, as some shells do.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headwater.model.ids import NodeId
from headwater.model.replica import NoSpace
from headwater.testing.simulation.world import World


class Lost(enum.Enum):
    NOT_SENT = "not sent"
    NO_ANSWER = "no answer"


Reply: TypeAlias = Callable[[Any], None]

ON_ITS_OWN: Final = NodeId(-1)
"""A process that shares its node with no other."""


class Process:
    """Something that can be called and can crash. Each life has a number: what belongs to an earlier one is void."""

    def __init__(self, name: str, node: NodeId = ON_ITS_OWN) -> None:
        self.name = name
        self.node = node
        """Calls between processes of one node do not touch the network."""
        self.is_up = True
        self.life = 0
        self.calls: dict[_Call, None] = {}
        """To this process, not answered yet."""

    def crash(self) -> None:
        self.is_up = False
        self.life += 1


@dataclass(slots=True)
class NetworkConditions:
    """What the network does at the moment."""

    latency_s: float = 0.001
    loss: float = 0.0
    duplication: float = 0.0
    spike: float = 0.0
    """How often a message takes up to `spike_s` longer."""
    spike_s: float = 0.3
    reset: float = 0.5
    """How often the end of a process is noticed at once; otherwise by time-out."""
    late_answers: bool = False


class _Call:
    __slots__ = ("answer", "arrival", "life", "source", "state", "target")

    def __init__(self, source: Process, target: Process, answer: Reply) -> None:
        self.source = source
        self.target = target
        self.life = source.life
        self.answer = answer
        self.state = 0
        """0 waiting, 1 given up, 2 answered."""
        self.arrival = 0
        """0 not yet, 1 arrived, 2 refused. After NOT_SENT, or a refusal that kept nothing, no copy of the call arrives
        later, as none does on a connection."""


class SimulatedNetwork:
    def __init__(self, world: World, conditions: NetworkConditions) -> None:
        self._world = world
        self.conditions = conditions
        self._cuts: dict[tuple[str, str], None] = {}

    def call(
        self,
        source: Process,
        target: Process,
        handler: Callable[..., None],
        arguments: tuple[Any, ...],
        answer: Reply,
        timeout_s: float,
    ) -> None:
        """Have `handler(reply, *arguments)` called at the target; `answer` gets what it replies, or Lost."""
        call = _Call(source, target, answer)
        target.calls[call] = None
        world = self._world
        world.after(timeout_s, self._give_up, call, Lost.NO_ANSWER)
        if self._is_lost(source, target):
            return
        world.after(self._delay(source, target), self._deliver, call, handler, arguments)
        if world.chance(self.conditions.duplication):
            world.counts["duplicated messages"] += 1
            world.after(3 * self._delay(source, target), self._deliver, call, handler, arguments)

    def tell(self, source: Process, target: Process, handler: Callable[..., None], *arguments: Any) -> None:
        """Send a message without an answer."""
        if not self._is_lost(source, target):
            self._world.after(self._delay(source, target), self._arrive, target, handler, arguments)

    def crashed(self, target: Process) -> None:
        """Break the connections to a process that has just ended."""
        calls = list(target.calls)
        target.calls.clear()
        for call in calls:
            if self._world.chance(self.conditions.reset):
                self._world.after(self._delay(target, call.source), self._give_up, call, Lost.NO_ANSWER)

    def cut(self, source: Process, target: Process) -> None:
        """One way; what is under way still arrives."""
        self._cuts[source.name, target.name] = None

    def heal(self) -> None:
        self._cuts.clear()

    @property
    def cuts(self) -> int:
        return len(self._cuts)

    def is_cut(self, source: Process, target: Process) -> bool:
        return (source.name, target.name) in self._cuts

    def _deliver(self, call: _Call, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        target = call.target
        if call.arrival == 2:
            return
        if target.is_up:
            call.arrival = 1
            life = target.life

            def reply(value: Any) -> None:
                if isinstance(value, NoSpace):
                    call.arrival = 2
                if target.life == life and not self._is_lost(target, call.source):
                    self._world.after(self._delay(target, call.source), self._answer, call, value)

            handler(reply, *arguments)
        elif call.state == 0 and call.arrival == 0 and self._world.chance(self.conditions.reset):
            call.arrival = 2
            self._world.after(self._delay(target, call.source), self._give_up, call, Lost.NOT_SENT)

    def _arrive(self, target: Process, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if target.is_up:
            handler(*arguments)

    def _answer(self, call: _Call, value: Any) -> None:
        if call.source.life != call.life or call.state == 2:
            return
        if call.state == 1 and not self.conditions.late_answers:
            return
        call.state = 2
        call.target.calls.pop(call, None)
        call.answer(value)

    def _give_up(self, call: _Call, why: Lost) -> None:
        if call.state or call.source.life != call.life:
            return
        call.state = 1
        call.target.calls.pop(call, None)
        call.answer(why)

    def _is_lost(self, source: Process, target: Process) -> bool:
        if source.node == target.node and source.node >= 0:
            return False
        if self._cuts and (source.name, target.name) in self._cuts:
            return True
        return self._world.chance(self.conditions.loss)

    def _delay(self, source: Process, target: Process) -> float:
        random = self._world.random.random
        if source.node == target.node and source.node >= 0:
            return 0.00002 * random()
        conditions = self.conditions
        delay = conditions.latency_s * (0.5 + random())
        if conditions.spike and random() < conditions.spike:
            delay += conditions.spike_s * random()
        return delay
