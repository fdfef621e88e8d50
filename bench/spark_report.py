"""The result of a run of `bench.spark`: figures of each contender, ratios to Spark's own connector, and the goals."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import comparison
from bench.comparison import Comparison, Kind, compare
from bench.measures import Figures
from bench.spark_contenders import ONCE, OURS, PROMISES, THEIRS, TUNED
from bench.spark_process import Cpu, Memory
from rich.console import Console

BATCH, STREAM, WRITE = "batch read", "stream read", "write"
LATENCY, MICRO_BATCH, MEMORY = "topic to topic", "micro-batch", "memory"
CPU, OTHERS = "CPU", "busy with others"
TITLES = {"read": "Topic to Spark", "write": "Spark to topic", "copy": "Topic to Spark to topic"}
COLOURS = {OURS: "#1f77b4", ONCE: "#2ca02c", THEIRS: "#888888", TUNED: "#bbbbbb"}

GOAL = {(OURS, THEIRS): 1.0, (OURS, TUNED): 1.0}
KINDS = (
    Kind(BATCH, "1000 rows/s", True, GOAL),
    Kind(STREAM, "1000 rows/s", True, GOAL),
    Kind(WRITE, "1000 rows/s", True, GOAL),
    Kind(LATENCY, "ms", False),
    Kind(MICRO_BATCH, "ms", False),
    Kind(CPU, "CPU-s/million rows", False),
    Kind(MEMORY, "MB", False),
    Kind(OTHERS, "% of all cores", False),
)
NOT_DRAWN = (OTHERS,)


def case(what: str, size_bytes: int, partitions: int | None = None) -> str:
    size = "1 KiB" if size_bytes == 1024 else f"{size_bytes} B"
    if partitions is None:
        return f"{what}, {size}"
    return f"{what}, {size}, {partitions} partition{'s' if partitions > 1 else ''}"


def rate_figures(name: str, answer: Mapping[str, float], used: Cpu) -> Figures:
    cpu_s_per_million = used.all_s / (answer["rows"] / 1e6)
    return {name: answer["rows"] / answer["seconds"] / 1e3, f"{CPU}, {name}": cpu_s_per_million}


def by_kind(figures: Figures) -> Figures:
    """In the order of their kinds, which is that of the tables."""
    numbers = {name: next(at for at, kind in enumerate(KINDS) if name.startswith(kind.prefix)) for name in figures}
    return dict(sorted(figures.items(), key=lambda figure: numbers[figure[0]]))


def memory_figures(doing: str, peak: Memory) -> Figures:
    return {
        f"{MEMORY}, {doing}": peak.all_bytes / 1e6,
        f"{MEMORY}, {doing}, JVM alone": peak.jvm_bytes / 1e6,
    }


def compared(rounds: Mapping[str, Sequence[dict[str, Figures]]]) -> list[Comparison]:
    return [compare(TITLES[part], KINDS, (OURS, ONCE), (THEIRS, TUNED), found) for part, found in rounds.items()]


def show(found: Comparison, console: Console) -> None:
    comparison.show(found, console, {"a row is written": PROMISES} if found.title == TITLES["write"] else {})
    for line in goals(found):
        console.print(line)


def save(found: Sequence[Comparison], about: Mapping[str, Any]) -> Path:
    parts = {
        part.title: {"rounds": part.rounds, "goals": list(goals(part)), "summary": comparison.summary(part)}
        for part in found
    }
    return comparison.save("spark", {**about, "promises": PROMISES, "parts": parts})


def goals(found: Comparison) -> Iterator[str]:
    """For each goal, whether every figure of its kind reaches it by the median of its ratios."""
    for kind in (kind for kind in found.kinds if kind.target):
        names = [name for name in found.names() if found.kind_of(name) is kind]
        for pair in (pair for pair in found.pairs if pair in kind.target and names):
            missed = [name[len(kind.prefix) :].strip(" ,") for name in names if not found.is_met(pair, name)]
            verdict = f"missed by {len(missed)} of {len(names)}: {'; '.join(missed)}" if missed else "reached"
            yield f"goal: {kind.prefix} {kind.goal(pair)} x {pair[1]}, {pair[0]}: {verdict}"
