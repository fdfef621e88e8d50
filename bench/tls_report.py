"""The result of a run of `bench.tls`: figures, ratios beside their goals, and bars that are plain numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import comparison
from bench.comparison import Comparison, Kind
from bench.measures import Figures
from rich.console import Console

PLAIN, TLS, ACLS = "headwater", "headwater SASL_SSL", "headwater SASL_SSL ACLs"
KAFKA_PLAIN, KAFKA_TLS = "kafka", "kafka SASL_SSL"
COLOURS = {PLAIN: "#9ecae1", TLS: "#1f77b4", ACLS: "#08306b", KAFKA_PLAIN: "#bbbbbb", KAFKA_TLS: "#777777"}
PAIRS = ((TLS, KAFKA_TLS), (TLS, PLAIN), (ACLS, TLS), (PLAIN, KAFKA_PLAIN), (KAFKA_TLS, KAFKA_PLAIN))
"""The last two tell what the first is to be held against."""
_THROUGHPUT = {(TLS, KAFKA_TLS): 1.0, (TLS, PLAIN): 0.75, (ACLS, TLS): 0.98}
_P99 = {(TLS, KAFKA_TLS): 1.0}

LOGINS, LOGIN_CPU, IDLE_MEMORY = "logins", "CPU, login", "memory, idle connection"
KINDS = (
    Kind("produce latency p99", "ms", False, _P99),
    Kind("end-to-end latency p99", "ms", False, _P99),
    Kind("produce latency", "ms", False, {(ACLS, TLS): 1.01}),
    Kind("end-to-end latency", "ms", False),
    Kind("produce", "MB/s", True, _THROUGHPUT),
    Kind("consume", "MB/s", True, _THROUGHPUT),
    Kind(LOGINS, "1/s", True),
    Kind(LOGIN_CPU, "CPU-ms", False),
    Kind(IDLE_MEMORY, "KiB", False),
    Kind("CPU", "CPU-s/GB", False),
    Kind("memory", "MB", False),
)
NOT_DRAWN = ("CPU, produce", "CPU, consume", "memory, after")


@dataclass(frozen=True, slots=True)
class Bar:
    """A goal that is a number, for one broker."""

    broker: str
    figure: str
    at_least: float | None = None
    at_most: float | None = None

    def said(self, found: Comparison) -> str | None:
        values = found.values(self.broker, self.figure) if self.broker in found.brokers() else []
        if not values:
            return None
        value = median(values)
        is_met = value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0)
        goal = f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"
        unit = found.kind_of(self.figure).unit
        return f"goal: {self.figure} {goal} {unit}, {self.broker}: {value:.1f}, {'reached' if is_met else 'missed'}"


BARS = (Bar(TLS, LOGINS, at_least=400), Bar(TLS, IDLE_MEMORY, at_most=32))


def compared(rounds: Sequence[dict[str, Figures]]) -> Comparison:
    there = rounds[0]
    pairs = [pair for pair in PAIRS if set(pair) <= there.keys()]
    return Comparison("TLS and logins", KINDS, pairs, rounds)


def show(found: Comparison, console: Console) -> None:
    comparison.show(found, console)
    for line in goals(found):
        console.print(line)


def save(found: Comparison, volume: dict[str, object]) -> Path:
    verdicts = {"goals": list(goals(found)), "summary": comparison.summary(found)}
    return comparison.save("tls", {"volume": volume, "rounds": found.rounds, **verdicts})


def goals(found: Comparison) -> Iterator[str]:
    """A sentence for each goal."""
    yield from comparison.goals(found)
    for bar in BARS:
        if said := bar.said(found):
            yield said
