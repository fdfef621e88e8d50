"""Brokers beside each other: what each did, and ratios of ours to theirs beside their targets.

A ratio is taken within a round, where all met the same machine; shown and judged are the median and the range."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.measures import Figures
from bench.report import OUT, circumstances, spread
from rich.console import Console
from rich.table import Table

Pair = tuple[str, str]
"""One of ours, and one of theirs that it is compared with."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of figures: what its names begin with, its unit, and what ratio is good enough."""

    prefix: str
    unit: str
    more_is_better: bool
    target: dict[Pair, float] = field(default_factory=dict)
    """none where nothing was promised"""

    @property
    def arrow(self) -> str:
        return "↑" if self.more_is_better else "↓"

    def is_met(self, ratio: float, pair: Pair) -> bool | None:
        if pair not in self.target:
            return None
        return ratio >= self.target[pair] if self.more_is_better else ratio <= self.target[pair]

    def goal(self, pair: Pair) -> str:
        return f"{'≥' if self.more_is_better else '≤'} {self.target[pair]:g}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rounds of one part of a run. A broker may lack a figure that others have."""

    title: str
    kinds: Sequence[Kind]
    pairs: Sequence[Pair]
    """those of which both took part"""
    rounds: Sequence[Mapping[str, Figures]]
    """by round, then by broker"""

    def brokers(self) -> list[str]:
        return list(self.rounds[0])

    def names(self) -> list[str]:
        """Every figure that some broker has."""
        return list(dict.fromkeys(name for figures in self.rounds for found in figures.values() for name in found))

    def kind_of(self, name: str) -> Kind:
        return next(kind for kind in self.kinds if name.startswith(kind.prefix))

    def values(self, broker: str, name: str) -> list[float]:
        return [figures[broker][name] for figures in self.rounds if name in figures[broker]]

    def ratios(self, pair: Pair, name: str) -> list[float]:
        both = [[figures[broker].get(name) for broker in pair] for figures in self.rounds]
        return [our / max(their, 1e-9) for our, their in both if our is not None and their is not None]

    def is_met(self, pair: Pair, name: str) -> bool | None:
        """Whether the median of the ratios reaches the target; none where there is nothing to judge."""
        ratios = self.ratios(pair, name)
        return self.kind_of(name).is_met(median(ratios), pair) if ratios else None


def compare(
    title: str, kinds: Sequence[Kind], ours: Sequence[str], theirs: Sequence[str], rounds: Sequence[dict[str, Figures]]
) -> Comparison:
    there = rounds[0]
    pairs = [(our, their) for our in ours for their in theirs if our in there and their in there]
    return Comparison(title, kinds, pairs, rounds)


def show(comparison: Comparison, console: Console, remarks: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """Two tables. Remarks are rows below the figures: a title, and text by broker."""
    console.print(_figures(comparison, remarks or {}))
    if comparison.pairs:
        console.print(_ratios(comparison))


def summary(comparison: Comparison) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in comparison.names():
        by_broker = {broker: comparison.values(broker, name) for broker in comparison.brokers()}
        medians = {broker: median(values) for broker, values in by_broker.items() if values}
        found[name] = {"unit": comparison.kind_of(name).unit, "median": medians, "ratios": {}}
        for pair in comparison.pairs:
            if ratios := comparison.ratios(pair, name):
                found[name]["ratios"][" / ".join(pair)] = {
                    "median": median(ratios),
                    "min": min(ratios),
                    "max": max(ratios),
                    "target": comparison.kind_of(name).target.get(pair),
                    "met": comparison.is_met(pair, name),
                }
    return found


def goals(found: Comparison) -> Iterator[str]:
    """A sentence for each goal: whether every figure of its kind reaches it by the median of its ratios."""
    for kind in (kind for kind in found.kinds if kind.target):
        names = [name for name in found.names() if found.kind_of(name) is kind]
        for pair in (pair for pair in found.pairs if pair in kind.target):
            missed = [name[len(kind.prefix) :].strip(" ,") for name in names if not found.is_met(pair, name)]
            verdict = f"missed by {len(missed)} of {len(names)}: {'; '.join(missed)}" if missed else "reached"
            yield f"goal: {kind.prefix} {kind.goal(pair)} x {pair[1]}, {pair[0]}: {verdict}"


def save(what: str, found: Mapping[str, Any]) -> Path:
    """A JSON file with the circumstances of the run and its results."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-{what}.json"
    path.write_text(json.dumps({**circumstances(), **found}, indent=1))
    return path


def _figures(comparison: Comparison, remarks: Mapping[str, Mapping[str, str]]) -> Table:
    table = Table(title=f"{comparison.title}: median of {len(comparison.rounds)} rounds (range)")
    table.add_column("figure")
    table.add_column("unit")
    for broker in comparison.brokers():
        table.add_column(broker, justify="right")
    for name in comparison.names():
        found = [comparison.values(broker, name) for broker in comparison.brokers()]
        table.add_row(name, comparison.kind_of(name).unit, *(spread(values) if values else "" for values in found))
    if remarks:
        table.add_section()
    for remark, by_broker in remarks.items():
        table.add_row(remark, "", *(by_broker[broker] for broker in comparison.brokers()))
    return table


def _ratios(comparison: Comparison) -> Table:
    table = Table(title=f"{comparison.title}: ratios, median (range) and target")
    table.add_column("figure")
    for pair in comparison.pairs:
        table.add_column(" / ".join(pair), justify="right")
    for name in comparison.names():
        cells = [_judged(comparison, pair, name) for pair in comparison.pairs]
        table.add_row(f"{name}  {comparison.kind_of(name).arrow}", *cells)
    return table


def _judged(comparison: Comparison, pair: Pair, name: str) -> str:
    ratios, kind, met = comparison.ratios(pair, name), comparison.kind_of(name), comparison.is_met(pair, name)
    if not ratios:
        return ""
    around = f" ({min(ratios):.2f}-{max(ratios):.2f})" if len(ratios) > 1 else ""
    if met is None:
        return f"{median(ratios):.2f}x{around}"
    colour, mark = ("green", "✓") if met else ("red", "✗")
    return f"[{colour}]{median(ratios):.2f}x[/]{around} {kind.goal(pair)} [{colour}]{mark}[/]"
