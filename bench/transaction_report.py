"""The result of a run of `bench.transactions`: figures, Headwater's ratios to Kafka, and which goals they reach."""

from collections.abc import Sequence
from pathlib import Path

from bench import comparison
from bench.comparison import Comparison, Kind, compare
from bench.measures import Figures
from bench.report import KAFKA, OS, SYNC
from rich.console import Console

PRODUCE, COMMIT, VISIBLE, RATE = "produce", "commit", "begin to visible", "transactions"
PROMISES = {
    KAFKA: "written to the page cache",
    OS: "written to the page cache",
    SYNC: "on disk",
}
"""What a broker has done with records and with the decision to commit when it says that a transaction is committed."""

KINDS = (
    Kind(PRODUCE, "MB/s", True, {(OS, KAFKA): 1.0, (SYNC, KAFKA): 1.0}),
    Kind(COMMIT, "ms", False, {(OS, KAFKA): 0.8, (SYNC, KAFKA): 0.8}),
    Kind(VISIBLE, "ms", False),
    Kind(RATE, "1/s", True),
    Kind(f"CPU, {PRODUCE}", "CPU-s/GB", False),
    Kind(f"CPU, {COMMIT}", "CPU-ms each", False),
)
NOT_DRAWN = (RATE,)


def compared(rounds: Sequence[dict[str, Figures]]) -> Comparison:
    """The figures in the order of their kinds."""
    ordered = [
        {broker: dict(sorted(figures.items(), key=_kind_number)) for broker, figures in by_broker.items()}
        for by_broker in rounds
    ]
    return compare("Transactions", KINDS, (OS, SYNC), (KAFKA,), ordered)


def show(found: Comparison, console: Console) -> None:
    comparison.show(found, console, {"a commit means": PROMISES})
    for line in comparison.goals(found):
        console.print(line)


def save(found: Comparison, volume: dict[str, object]) -> Path:
    figures = {"volume": volume, "promises": PROMISES, "rounds": found.rounds}
    verdicts = {"goals": list(comparison.goals(found)), "summary": comparison.summary(found)}
    return comparison.save("transactions", {**figures, **verdicts})


def _kind_number(figure: tuple[str, float]) -> int:
    return next(at for at, kind in enumerate(KINDS) if figure[0].startswith(kind.prefix))
