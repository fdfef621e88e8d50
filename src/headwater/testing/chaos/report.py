"""What a run of faults showed, in numbers and sentences."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.testing.chaos.nemesis import Happened
from headwater.testing.chaos.replicas import ReplicaComparison


@dataclass(slots=True)
class Report:
    seed: int
    faults: list[Happened] = field(default_factory=list)
    stall_s: dict[str, list[float]] = field(default_factory=dict)
    """By kind, the longest gap between acknowledgements around each fault that was alone."""
    acknowledged: int = 0
    events: int = 0
    seconds: float = 0.0
    replicas: ReplicaComparison = field(default_factory=ReplicaComparison)
    violations: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Kinds of faults that cannot be made here, and why."""

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {len(self.faults)} faults in {self.seconds:.0f} s, {self.acknowledged:,} records "
            f"acknowledged, {self.replicas.replicas} replicas of {self.replicas.segments} sealed segments compared, "
            f"{len(self.violations)} violations"
        )

    def rows(self) -> list[list[str]]:
        """Kind, times, of them alone, and their stalls: p50, p99 and the longest, in seconds."""
        found = []
        for kind, count in sorted(Counter(fault.kind for fault in self.faults).items()):
            stalls = sorted(self.stall_s.get(kind, []))
            figures = [percentile(stalls, 50), percentile(stalls, 99), stalls[-1]] if stalls else []
            found.append([kind, str(count), str(len(stalls)), *(f"{figure:.2f}" for figure in figures)])
        return found


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest rank."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]
