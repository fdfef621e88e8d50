"""The result of a run of `bench.queues`: what each broker did, and Headwater's ratios to the others beside targets.

A ratio is taken within a round, where all met the same machine; shown are the median and the range."""

import json
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.measures import Figures
from bench.report import KAFKA, OS, OUT, SYNC, circumstances, spread
from rich.console import Console
from rich.table import Table

RABBITMQ, NATS = "rabbitmq", "nats"
OURS, THEIRS = (OS, SYNC), (KAFKA, RABBITMQ, NATS)
PROMISES = {
    KAFKA: "written to the page cache",
    OS: "written to the page cache",
    SYNC: "on disk",
    RABBITMQ: "records on disk; acknowledgements on their way there",
    NATS: "written to the page cache",
}
"""What a broker has done with a record, and with its acknowledgement, when it says so."""


@dataclass(frozen=True, slots=True)
class Kind:
    prefix: str
    unit: str
    more_is_better: bool
    target: dict[tuple[str, str], float] = field(default_factory=dict)
    """by whose ratio to whom"""

    def is_met(self, ratio: float, ours: str, theirs: str) -> bool | None:
        target = self.target.get((ours, theirs))
        if target is None:
            return None
        return ratio >= target if self.more_is_better else ratio <= target

    def wanted(self, ours: str, theirs: str) -> str:
        target = self.target.get((ours, theirs))
        return "" if target is None else f" {'≥' if self.more_is_better else '≤'} {target:g}"


KINDS = (
    Kind("take", "records/s", True, {(OS, KAFKA): 1.0, (OS, RABBITMQ): 3.0, (SYNC, RABBITMQ): 3.0}),
    Kind("CPU", "CPU-s/million", False),
    Kind("pause without", "s", False),
    Kind("pause", "s", False, {(OS, KAFKA): 0.5}),
    Kind("moved", "partitions", False),
)


@dataclass(slots=True)
class QueueResults:
    drains: list[dict[str, Figures]] = field(default_factory=list)
    """by round, then by broker"""
    rebalances: list[dict[str, Figures]] = field(default_factory=list)

    def parts(self) -> dict[str, list[dict[str, Figures]]]:
        both = {"Queues": self.drains, "Changes of membership": self.rebalances}
        return {title: rounds for title, rounds in both.items() if rounds}


def kind_of(name: str) -> Kind:
    return next(kind for kind in KINDS if name.startswith(kind.prefix))


def values(rounds: list[dict[str, Figures]], broker: str, name: str) -> list[float]:
    return [figures[broker][name] for figures in rounds if name in figures[broker]]


def ratios(rounds: list[dict[str, Figures]], ours: str, theirs: str, name: str) -> list[float]:
    both = [(figures[ours].get(name), figures[theirs].get(name)) for figures in rounds]
    return [our / max(their, 1e-9) for our, their in both if our is not None and their is not None]


def names(rounds: list[dict[str, Figures]]) -> list[str]:
    """Every figure that some broker has."""
    return list(dict.fromkeys(name for figures in rounds for by_name in figures.values() for name in by_name))


def pairs(rounds: list[dict[str, Figures]]) -> list[tuple[str, str]]:
    return [(ours, theirs) for ours in OURS for theirs in THEIRS if ours in rounds[0] and theirs in rounds[0]]


def show(results: QueueResults, console: Console) -> None:
    for title, rounds in results.parts().items():
        _show_figures(title, rounds, console)
        if pairs(rounds):
            _show_ratios(title, rounds, console)


def save(results: QueueResults) -> Path:
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-queues.json"
    found = {**circumstances(), **_versions(), "promises": PROMISES, **asdict(results), "summary": _summary(results)}
    path.write_text(json.dumps(found, indent=1))
    return path


def _show_figures(title: str, rounds: list[dict[str, Figures]], console: Console) -> None:
    table = Table(title=f"{title}: median of {len(rounds)} rounds (range)")
    table.add_column("figure")
    table.add_column("unit")
    for broker in rounds[0]:
        table.add_column(broker, justify="right")
    for name in names(rounds):
        found = [values(rounds, broker, name) for broker in rounds[0]]
        table.add_row(name, kind_of(name).unit, *(spread(values) if values else "" for values in found))
    if title == "Queues":
        table.add_section()
        table.add_row("an acknowledgement means", "", *(PROMISES[broker] for broker in rounds[0]))
    console.print(table)


def _show_ratios(title: str, rounds: list[dict[str, Figures]], console: Console) -> None:
    table = Table(title=f"{title}: ratios, median (range) and target")
    table.add_column("figure")
    for ours, theirs in pairs(rounds):
        table.add_column(f"{ours} / {theirs}", justify="right")
    for name in names(rounds):
        kind, row = kind_of(name), [f"{name}  {'↑' if kind_of(name).more_is_better else '↓'}"]
        for ours, theirs in pairs(rounds):
            found = ratios(rounds, ours, theirs, name)
            row.append(_judged(kind, found, ours, theirs) if found else "")
        table.add_row(*row)
    console.print(table)


def _judged(kind: Kind, found: list[float], ours: str, theirs: str) -> str:
    middle = median(found)
    colour = {True: "green", False: "red", None: "default"}[kind.is_met(middle, ours, theirs)]
    around = f" ({min(found):.2f}-{max(found):.2f})" if len(found) > 1 else ""
    return f"[{colour}]{middle:.2f}x[/]{around}{kind.wanted(ours, theirs)}"


def _summary(results: QueueResults) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for rounds in results.parts().values():
        for name in names(rounds):
            kind = kind_of(name)
            medians = {
                broker: median(values(rounds, broker, name)) for broker in rounds[0] if values(rounds, broker, name)
            }
            entry: dict[str, Any] = {"unit": kind.unit, "median": medians, "ratios": {}}
            for ours, theirs in pairs(rounds):
                if taken := ratios(rounds, ours, theirs, name):
                    entry["ratios"][f"{ours} / {theirs}"] = {
                        "median": median(taken),
                        "min": min(taken),
                        "max": max(taken),
                        "target": kind.target.get((ours, theirs)),
                        "met": kind.is_met(median(taken), ours, theirs),
                    }
            found[name] = entry
    return found


def _versions() -> dict[str, str]:
    command = ["dpkg-query", "--show", "--showformat=${Package} ${Version}\n", "rabbitmq-server", "nats-server"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")
    return dict(line.split(" ") for line in listed if " " in line)
