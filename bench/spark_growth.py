"""A picture of how reading grows with the partitions of a topic: a panel for each kind of query and size of record."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from bench.measures import Figures
from bench.spark_report import BATCH, COLOURS, STREAM, case


def draw(rounds: Sequence[dict[str, Figures]], counts: Sequence[int], sizes: Sequence[int], beside: Path) -> Path:
    """Write a PNG file next to the JSON file `beside`."""
    panels = [(how, size_bytes) for how in (BATCH, STREAM) for size_bytes in sizes]
    figure, grid = plt.subplots(1, len(panels), figsize=(4.5 * len(panels), 3.6))
    for axes, (how, size_bytes) in zip(grid, panels, strict=True):
        for contender in rounds[0]:
            found = [[taken[contender][case(how, size_bytes, count)] for taken in rounds] for count in counts]
            colour = COLOURS[contender]
            axes.plot(counts, [median(values) for values in found], "o-", color=colour, label=contender)
            axes.fill_between(
                counts, [min(values) for values in found], [max(values) for values in found], color=colour, alpha=0.2
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("partitions")
        axes.set_title(f"{case(how, size_bytes)}, 1000 rows/s", fontsize=9)
        axes.grid(alpha=0.2)
    grid[0].legend(fontsize=8)
    figure.tight_layout()
    path = beside.with_name(f"{beside.stem}-growth.png")
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
