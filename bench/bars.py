"""A picture of comparisons: a bar for each broker and figure, with the range of the rounds."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from bench.comparison import Comparison
from bench.report import KAFKA, NATS, OS, RABBITMQ, SYNC, number

COLOURS = {KAFKA: "#888888", OS: "#1f77b4", SYNC: "#2ca02c", RABBITMQ: "#ff7f0e", NATS: "#9467bd"}
COLUMNS = 4


def draw(
    comparisons: Iterable[Comparison],
    beside: Path,
    without: tuple[str, ...] = (),
    colours: Mapping[str, str] = COLOURS,
) -> Path:
    """Write a PNG file next to the JSON file `beside`, without figures whose names begin so."""
    shown = [(of, name) for of in comparisons for name in of.names() if not name.startswith(without)]
    rows = -(-len(shown) // COLUMNS)
    figure, grid = plt.subplots(rows, COLUMNS, figsize=(4.5 * COLUMNS, 3.2 * rows), squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, (comparison, name) in zip(grid.flat, shown, strict=False):
        _bars(axes, comparison, name, colours)
    figure.tight_layout()
    path = beside.with_suffix(".png")
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _bars(axes: Any, comparison: Comparison, name: str, colours: Mapping[str, str]) -> None:
    brokers = [broker for broker in comparison.brokers() if comparison.values(broker, name)]
    labels = []
    for at, broker in enumerate(brokers):
        found = comparison.values(broker, name)
        middle = median(found)
        around = [[middle - min(found)], [max(found) - middle]]
        axes.bar(at, middle, color=colours[broker], yerr=around, capsize=4)
        # The number stands below, where the range does not cross it out; names in two lines do not overlap.
        labels.append("\n".join([*broker.split(), number(middle)]))
    axes.set_xticks(range(len(brokers)), labels, fontsize=8)
    kind = comparison.kind_of(name)
    axes.set_title(f"{name}, {kind.unit} ({kind.arrow})", fontsize=8)
    axes.grid(axis="y", alpha=0.2)
