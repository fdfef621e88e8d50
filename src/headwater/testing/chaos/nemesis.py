"""Brings faults over a cluster, one or several at a time, and lets it recover, or not quite, before the next."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headwater.model.ids import NodeId
from headwater.testing.chaos.arsenal import Arsenal, Drawn
from headwater.testing.chaos.pulse import Pulse
from headwater.testing.processes.cluster import ProcessCluster

TICK_S: Final = 0.02
MAX_AT_ONCE: Final = 3
RECOVERY_TIMEOUT_S: Final = 60.0
"""Without any fault writes must go on within this. A machine that has other work makes nodes start slowly."""
RELAUNCH_S: Final = 0.5
IMPATIENT: Final = 0.3
"""How often the next faults come before writes work again."""
REST_MAX_S: Final = 1.0
MAX_LOG_LINES: Final = 12


@dataclass(slots=True)
class Happened:
    """One fault, when it was there, when writes worked again, and whether it was alone from the one to the other."""

    kind: str
    target: str
    began_s: float
    ended_s: float = 0.0
    recovered_s: float = 0.0
    is_alone: bool = False
    partition: int | None = None
    """Of the pulse, if it was aimed at the leader or a replica of one."""


@dataclass(slots=True)
class _Active:
    drawn: Drawn
    until_s: float
    happened: Happened


@dataclass(slots=True)
class Nemesis:
    cluster: ProcessCluster
    arsenal: Arsenal
    pulse: Pulse
    dice: random.Random
    log: Callable[[str], None]
    happened: list[Happened] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    """Nodes that ended without a fault that ends them, with the last lines of their logs."""
    stalls: list[str] = field(default_factory=list)
    """Times when writes did not come back."""
    _active: list[_Active] = field(default_factory=list)
    _relaunch_s: dict[NodeId, float] = field(default_factory=dict)
    _is_well: bool = True
    """Writes work, and nothing happens to the cluster."""

    def run(self, faults: int, progress: Callable[[int], None]) -> None:
        while len(self.happened) < faults:
            count = min(self.dice.choice((1, 1, 2, MAX_AT_ONCE)), faults - len(self.happened))
            round_began, was_well = len(self.happened), self._is_well
            self._is_well = False
            for _ in range(count):
                self._begin()
                self._pass(self.dice.uniform(0.0, 0.5))
            while self._active:
                self._pass(TICK_S)
            progress(len(self.happened))
            if len(self.happened) >= faults or self.dice.random() >= IMPATIENT:
                self._recover()
                if was_well and len(self.happened) == round_began + 1:
                    self.happened[-1].is_alone = True
                for each in self.happened[round_began:]:
                    each.recovered_s = time.monotonic()
                self._pass(self.dice.uniform(0.0, REST_MAX_S))

    def look_after(self, seconds: float) -> None:
        """Wait, and start again what ends meanwhile."""
        self._pass(seconds)

    def _begin(self) -> None:
        claimed = frozenset(claim for active in self._active for claim in active.drawn.fault.claims)
        down = frozenset(f"node {node}" for node in self.cluster.nodes if not self.cluster.is_running(node))
        drawn = self.arsenal.draw(claimed | down)
        if drawn is None:
            return
        now = time.monotonic()
        happened = Happened(drawn.kind, drawn.target, now, partition=drawn.partition)
        self.log(f"{drawn.kind}: {drawn.target} for {drawn.duration_s:.1f} s")
        drawn.fault.begin()
        self.happened.append(happened)
        self._active.append(_Active(drawn, now + drawn.duration_s, happened))

    def _pass(self, seconds: float) -> None:
        """Let time pass: faults do what they do, end when they are due, and nodes are looked after."""
        until_s = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            for active in list(self._active):
                active.drawn.fault.step()
                if now >= active.until_s and active.drawn.fault.end():
                    self._active.remove(active)
                    active.happened.ended_s = now
                    self.log(f"over: {active.drawn.kind}: {active.drawn.target}")
            self._look_after_nodes(now)
            if now >= until_s:
                return
            time.sleep(min(TICK_S, until_s - now))

    def _look_after_nodes(self, now: float) -> None:
        """What ends by itself is started again, as a service manager would."""
        claimed = {claim for active in self._active for claim in active.drawn.fault.claims}
        for node in self.cluster.nodes:
            if f"node {node}" in claimed or self.cluster.is_running(node):
                self._relaunch_s.pop(node, None)
            elif node not in self._relaunch_s:
                self._relaunch_s[node] = now + RELAUNCH_S
                lines = self.cluster.log_path(node).read_text(errors="replace").splitlines()[-MAX_LOG_LINES:]
                status = self.cluster.exit_status(node)
                self.log(f"node {node} ended by itself with status {status}")
                self.deaths.append(f"node {node} ended by itself with status {status}:\n  " + "\n  ".join(lines))
            elif now >= self._relaunch_s[node]:
                del self._relaunch_s[node]
                self.cluster.launch(node)

    def _recover(self) -> None:
        """Until every partition of the pulse has an acknowledgement from now on."""
        healed_s = time.monotonic()
        self._is_well = True
        while self.pulse.silent_since() < healed_s:
            if time.monotonic() - healed_s > RECOVERY_TIMEOUT_S:
                self.stalls.append(f"no writes for {RECOVERY_TIMEOUT_S:.0f} s after {self.happened[-1].kind} was over")
                self.log(self.stalls[-1])
                self._is_well = False
                return
            self._pass(TICK_S)
