"""Pictures of a run: the ratios on one page, the cost of partitions and connections on another."""

from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from bench.measures import Figures
from bench.report import KAFKA, OS, SYNC, Results, kind_of
from matplotlib.ticker import LogLocator, NullFormatter

COLOURS = {KAFKA: "#888888", OS: "#1f77b4", SYNC: "#2ca02c"}
OFFSETS = {OS: -0.15, SYNC: 0.15}


def draw(results: Results, beside: Path) -> list[Path]:
    """Write the PNG files next to the JSON file `beside`."""
    drawn = [_ratios(results, beside.with_name(beside.stem + "-ratios.png"))]
    for what, growth in (("partitions", results.partitions), ("connections", results.connections)):
        if growth:
            drawn.append(_growth(what, growth, beside.with_name(f"{beside.stem}-{what}.png")))
    return drawn


def _ratios(results: Results, path: Path) -> Path:
    names = results.names()
    figure, axes = plt.subplots(figsize=(10, 0.36 * len(names) + 1.5))
    for server in (OS, SYNC):
        if server not in results.servers():
            continue
        for at, name in enumerate(names):
            ratios, kind = results.ratios(server, name), kind_of(name)
            height = at + OFFSETS[server]
            axes.plot([min(ratios), max(ratios)], [height, height], color=COLOURS[server], alpha=0.4, lw=3)
            label = server if at == 0 else None
            axes.plot(median(ratios), height, "o", color=COLOURS[server], ms=5, label=label)
            if server in kind.target:
                axes.plot(kind.target[server], height, "|", color="red", ms=9, mew=1.5)
    axes.axvline(1, color="#888888", lw=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(names)), [f"{name}  ({'↑' if kind_of(name).more_is_better else '↓'})" for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("Headwater / Kafka   (↑ more is better, ↓ less is better; red: target)")
    axes.grid(axis="x", which="both", alpha=0.2)
    axes.legend(loc="best")
    return _save(figure, path)


def _growth(what: str, growth: dict[str, dict[int, Figures]], path: Path) -> Path:
    names = list(next(iter(next(iter(growth.values())).values())))
    columns = 4
    rows = -(-len(names) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4 * columns, 3 * rows), squeeze=False)
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(grid.flat, names, strict=False):
        for server, by_count in growth.items():
            counts = list(by_count)
            axes.plot(counts, [by_count[count][name] for count in counts], "o-", color=COLOURS[server], label=server)
        axes.set_xscale("log")
        axes.set_title(f"{name}, {kind_of(name).unit}")
        axes.set_xlabel(what)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.2)
    grid.flat[0].legend()
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
