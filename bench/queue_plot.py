"""A picture of a run of `bench.queues`: a bar for each broker and figure, with the range of the rounds."""

from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from bench.measures import Figures
from bench.queue_report import NATS, RABBITMQ, QueueResults, kind_of, names, values
from bench.report import KAFKA, OS, SYNC, number

COLOURS = {KAFKA: "#888888", OS: "#1f77b4", SYNC: "#2ca02c", RABBITMQ: "#ff7f0e", NATS: "#9467bd"}
COLUMNS = 4


def draw(results: QueueResults, beside: Path) -> Path:
    """Write a PNG file next to the JSON file `beside`."""
    shown = [(rounds, name) for rounds in results.parts().values() for name in names(rounds) if "moved" not in name[:5]]
    rows = -(-len(shown) // COLUMNS)
    figure, grid = plt.subplots(rows, COLUMNS, figsize=(4.5 * COLUMNS, 3.2 * rows), squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, (rounds, name) in zip(grid.flat, shown, strict=False):
        _bars(axes, rounds, name)
    figure.tight_layout()
    path = beside.with_suffix(".png")
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _bars(axes: Any, rounds: list[dict[str, Figures]], name: str) -> None:
    brokers = [broker for broker in rounds[0] if values(rounds, broker, name)]
    for at, broker in enumerate(brokers):
        found = values(rounds, broker, name)
        middle = median(found)
        around = [[middle - min(found)], [max(found) - middle]]
        axes.bar(at, middle, color=COLOURS[broker], yerr=around, capsize=4)
        axes.annotate(number(middle), (at, middle), ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(brokers)), [broker.replace(" ", "\n") for broker in brokers], fontsize=8)
    kind = kind_of(name)
    axes.set_title(f"{name}, {kind.unit} ({'↑' if kind.more_is_better else '↓'})", fontsize=9)
    axes.grid(axis="y", alpha=0.2)
