"""The result of a run: ratios Headwater / Kafka beside their targets, as a table, as JSON and as pictures.

A ratio is taken within a round, where both brokers met the same machine; shown are the median and the range."""

import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from bench import maven
from bench.measures import Figures, Volume
from rich.console import Console
from rich.table import Table

KAFKA, OS, SYNC = "kafka", "headwater os", "headwater sync"
RABBITMQ, NATS = "rabbitmq", "nats"
OUT = Path(__file__).with_name("out")
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of figures: what its names begin with, its unit, and what ratio is good enough."""

    prefix: str
    unit: str
    more_is_better: bool
    target: dict[str, float] = field(default_factory=dict)
    """by Headwater's durability; none where nothing was promised"""

    def is_met(self, ratio: float, ours: str) -> bool | None:
        if ours not in self.target:
            return None
        return ratio >= self.target[ours] if self.more_is_better else ratio <= self.target[ours]

    def goal(self, ours: str) -> str:
        if ours not in self.target:
            return ""
        return f"{'≥' if self.more_is_better else '≤'} {self.target[ours]:g}"


KINDS = (
    Kind("produce latency", "ms", False, {OS: 0.7, SYNC: 0.7}),
    Kind("end-to-end latency", "ms", False, {OS: 0.7, SYNC: 0.7}),
    Kind("produce", "MB/s", True, {OS: 1.0, SYNC: 0.7}),
    Kind("consume", "MB/s", True, {OS: 1.0, SYNC: 0.7}),
    Kind("CPU, idle", "% of a core", False),
    Kind("CPU", "CPU-s/GB", False, {OS: 1.0, SYNC: 1.0}),
    Kind("start", "s", False, {OS: 0.2, SYNC: 0.2}),
    Kind("memory, idle", "MB", False, {OS: 0.25, SYNC: 0.25}),
    Kind("memory", "MB", False),
    Kind("create", "s", False),
    Kind("open", "s", False),
)
GROUPS = ("start", "memory", "produce latency", "end-to-end", "produce", "consume", "CPU")


@dataclass(slots=True)
class Results:
    volume: Volume
    rounds: list[dict[str, Figures]] = field(default_factory=list)
    partitions: dict[str, dict[int, Figures]] = field(default_factory=dict)
    """by server, then by count"""
    connections: dict[str, dict[int, Figures]] = field(default_factory=dict)

    def servers(self) -> list[str]:
        return list(self.rounds[0]) if self.rounds else []

    def names(self) -> list[str]:
        found = list(self.rounds[0][self.servers()[0]])
        return sorted(found, key=lambda name: next(at for at, start in enumerate(GROUPS) if name.startswith(start)))

    def values(self, server: str, name: str) -> list[float]:
        return [figures[server][name] for figures in self.rounds]

    def ratios(self, server: str, name: str) -> list[float]:
        return [figures[server][name] / max(figures[KAFKA][name], 1e-9) for figures in self.rounds]


def kind_of(name: str) -> Kind:
    return next(kind for kind in KINDS if name.startswith(kind.prefix))


def show(results: Results, console: Console) -> None:
    ours = [server for server in results.servers() if server != KAFKA]
    rounds = len(results.rounds)
    table = Table(title=f"Headwater and Apache Kafka {maven.KAFKA_VERSION}: median of {rounds} rounds (range)")
    table.add_column("figure")
    table.add_column("unit")
    table.add_column("Kafka", justify="right")
    for server in ours:
        table.add_column(server.title(), justify="right")
        table.add_column("ratio", justify="right")
        table.add_column("target")
    for name in results.names():
        kind = kind_of(name)
        row = [name, kind.unit, spread(results.values(KAFKA, name))]
        for server in ours:
            ratios = results.ratios(server, name)
            row += [spread(results.values(server, name)), _judged(kind, ratios, server), kind.goal(server)]
        table.add_row(*row)
    console.print(table)
    _show_growth("partitions", results.partitions, console)
    _show_growth("connections", results.connections, console)


def save(results: Results) -> Path:
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}.json"
    path.write_text(json.dumps({**circumstances(), **asdict(results), "summary": summary(results)}, indent=1))
    return path


def summary(results: Results) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for server in results.servers():
        for name in results.names():
            kind, ratios = kind_of(name), results.ratios(server, name)
            entry = {"unit": kind.unit, "median": median(results.values(server, name))}
            if server != KAFKA:
                entry |= {"ratio": median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}
                entry |= {"target": kind.target.get(server), "met": kind.is_met(median(ratios), server)}
            found.setdefault(name, {})[server] = entry
    return found


def _show_growth(what: str, growth: dict[str, dict[int, Figures]], console: Console) -> None:
    if not growth:
        return
    table = Table(title=f"Cost of {what}")
    table.add_column(what, justify="right")
    table.add_column("broker")
    names = list(next(iter(next(iter(growth.values())).values())))
    for name in names:
        table.add_column(f"{name}\n{kind_of(name).unit}", justify="right")
    for count in next(iter(growth.values())):
        for server, by_count in growth.items():
            table.add_row(str(count), server, *(number(by_count[count][name]) for name in names))
        table.add_section()
    console.print(table)


def _judged(kind: Kind, ratios: list[float], server: str) -> str:
    middle = median(ratios)
    met = kind.is_met(middle, server)
    colour = {True: "green", False: "red", None: "default"}[met]
    spread = f" ({min(ratios):.2f}-{max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"[{colour}]{middle:.2f}x[/]{spread}"


def spread(values: list[float]) -> str:
    around = f" ({number(min(values))}-{number(max(values))})" if len(values) > 1 else ""
    return f"{number(median(values))}{around}"


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def circumstances() -> dict[str, Any]:
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kafka": maven.KAFKA_VERSION,
        "headwater": revision.stdout.strip(),
        "python": sys.version,
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
    }
