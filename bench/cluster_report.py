"""The result of a run of `bench.cluster`: figures, ratios to Kafka, stalls, growth, and which goals are reached."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench import comparison
from bench.cluster_measures import CONSUME, END_TO_END, LATENCY, PRODUCE, STALL, STEADY
from bench.comparison import Comparison, Kind, compare
from bench.measures import Figures
from bench.report import KAFKA, OS, SYNC, number
from rich.console import Console
from rich.table import Table

Stalls = Mapping[str, Sequence[float]]
"""seconds, by the fault that caused them"""

KINDS = (
    Kind(LATENCY, "ms", False, {(OS, KAFKA): 1.0}),
    Kind(STEADY, "ms", False, {(OS, KAFKA): 1.0}),
    Kind(END_TO_END, "ms", False, {(OS, KAFKA): 1.0}),
    Kind(PRODUCE, "MB/s", True, {(OS, KAFKA): 1.0}),
    Kind(CONSUME, "MB/s", True),
    Kind("CPU", "CPU-s/GB", False),
    Kind("memory", "MB", False),
)
LIMITS_S = {f"{STALL}, replica killed": 0.3, f"{STALL}, leader killed": 2.0}
"""What the 99th percentile of all kills of a run may be, for Headwater."""
GROWTH_UNITS = {
    "create": "s", "memory, a": "kB", "memory": "MB", "idle": "% of a core", "failover": "s", "restart": "s",
    "CPU": "CPU-s",
}  # fmt: skip
LINEAR = 1.5
"""What a partition costs with the largest number of them, against the number before, if costs are linear."""


@dataclass(slots=True)
class Results:
    load: list[dict[str, Figures]] = field(default_factory=list)
    """by round, then by cluster; so is the next one"""
    stalls: list[dict[str, Stalls]] = field(default_factory=list)
    growth: dict[str, dict[int, Figures]] = field(default_factory=dict)
    """by cluster, then by number of partitions"""

    def all_stalls(self) -> dict[str, dict[str, list[float]]]:
        """Of all rounds, by cluster and fault."""
        found: dict[str, dict[str, list[float]]] = {}
        for by_cluster in self.stalls:
            for name, stalls in by_cluster.items():
                for fault, seconds in stalls.items():
                    found.setdefault(name, {}).setdefault(fault, []).extend(seconds)
        return found


def compared(results: Results) -> Comparison | None:
    if not results.load:
        return None
    ordered = [
        {name: dict(sorted(figures.items(), key=_kind_number)) for name, figures in by_cluster.items()}
        for by_cluster in results.load
    ]
    return compare("Three nodes, three replicas", KINDS, (OS, SYNC), (KAFKA,), ordered)


def show(results: Results, console: Console) -> None:
    found = compared(results)
    if found is not None:
        comparison.show(found, console)
    if results.stalls:
        console.print(_stall_table(results.all_stalls()))
    if results.growth:
        console.print(_growth_table(results.growth))
    for line in goals(results):
        console.print(line)


def save(results: Results, volume: Mapping[str, object]) -> Path:
    found = compared(results)
    figures: dict[str, Any] = {"volume": volume, "load": results.load, "stalls": results.stalls}
    verdicts = {"goals": list(goals(results)), "summary": comparison.summary(found) if found is not None else {}}
    return comparison.save("cluster", {**figures, "growth": results.growth, **verdicts})


def goals(results: Results) -> Iterator[str]:
    """A sentence for each goal, and whether it is reached."""
    found = compared(results)
    if found is not None and (OS, KAFKA) in found.pairs:
        for kind in (kind for kind in KINDS if kind.target):
            names = [name for name in found.names() if found.kind_of(name) is kind]
            missed = [name for name in names if found.is_met((OS, KAFKA), name) is False]
            verdict = f"missed: {'; '.join(missed)}" if missed else "reached"
            yield f"goal: {kind.prefix} {kind.goal((OS, KAFKA))} x {KAFKA}, {OS}: {verdict}"
    for name, stalls in results.all_stalls().items():
        for fault, limit_s in LIMITS_S.items():
            if name != KAFKA and fault in stalls:
                reached_s = p99(stalls[fault])
                verdict = "reached" if reached_s < limit_s else "missed"
                of = f"p99 of {len(stalls[fault])} is {number(reached_s)} s"
                yield f"goal: {fault} < {limit_s:g} s, {name}: {verdict}, {of}"
    for name, by_count in results.growth.items():
        yield from (f"growth of {name}: {line}" for line in linearity(by_count))


def linearity(by_count: Mapping[int, Figures]) -> Iterator[str]:
    """Whether times and memory grow no faster than the number of partitions, between the two largest numbers."""
    if len(by_count) < 2:
        return
    few, many = sorted(by_count)[-2:]
    for name in by_count[many]:
        if name.startswith(("create", "memory, largest", "failover", "restart", "CPU")):
            ratio = by_count[many][name] / max(by_count[few][name], 1e-9) / (many / few)
            verdict = "linear or better" if ratio <= LINEAR else "more than linear"
            yield f"{name}: {number(ratio)} of what {few} to {many} partitions would make it: {verdict}"


def p99(seconds: Sequence[float]) -> float:
    """By nearest rank: of fewer than a hundred it is the largest."""
    ordered = sorted(seconds)
    return ordered[-(-99 * len(ordered) // 100) - 1]


def _stall_table(stalls: Mapping[str, Mapping[str, Sequence[float]]]) -> Table:
    table = Table(title="Seconds without an acknowledgement, of a record each millisecond: median, p99, largest")
    table.add_column("fault")
    table.add_column("times", justify="right")
    for name in stalls:
        table.add_column(name, justify="right")
    for fault, seconds in next(iter(stalls.values())).items():
        cells = [stalls[name][fault] for name in stalls]
        shown = [f"{number(median(each))}  {number(p99(each))}  {number(max(each))}" for each in cells]
        table.add_row(fault.removeprefix(f"{STALL}, "), str(len(seconds)), *shown)
    return table


def _growth_table(growth: Mapping[str, Mapping[int, Figures]]) -> Table:
    table = Table(title="Partitions, three replicas of each")
    table.add_column("partitions", justify="right")
    table.add_column("cluster")
    names = list(next(figures for by_count in growth.values() for figures in by_count.values()))
    for name in names:
        unit = next(unit for prefix, unit in GROWTH_UNITS.items() if name.startswith(prefix))
        table.add_column(f"{name}\n{unit}", justify="right")
    for count in sorted({count for by_count in growth.values() for count in by_count}):
        for cluster, by_count in growth.items():
            if count in by_count:
                table.add_row(str(count), cluster, *(number(by_count[count][name]) for name in names))
        table.add_section()
    return table


def _kind_number(figure: tuple[str, float]) -> int:
    return next(at for at, kind in enumerate(KINDS) if figure[0].startswith(kind.prefix))
