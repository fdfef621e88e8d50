"""The result of a run of `bench.queues`: what each broker did, and Headwater's ratios to the others beside targets."""

import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import comparison
from bench.comparison import Comparison, Kind, compare
from bench.measures import Figures
from bench.report import KAFKA, NATS, OS, RABBITMQ, SYNC
from rich.console import Console

OURS, THEIRS = (OS, SYNC), (KAFKA, RABBITMQ, NATS)
PROMISES = {
    KAFKA: "written to the page cache",
    OS: "written to the page cache",
    SYNC: "on disk",
    RABBITMQ: "records on disk; acknowledgements on their way there",
    NATS: "written to the page cache",
}
"""What a broker has done with a record, and with its acknowledgement, when it says so."""

KINDS = (
    Kind("take", "records/s", True, {(OS, KAFKA): 1.0, (OS, RABBITMQ): 3.0, (SYNC, RABBITMQ): 3.0}),
    Kind("CPU", "CPU-s/million", False),
    Kind("pause without", "s", False),
    Kind("pause", "s", False, {(OS, KAFKA): 0.5}),
    Kind("moved", "partitions", False),
)
NOT_DRAWN = ("moved",)


@dataclass(slots=True)
class QueueResults:
    drains: list[dict[str, Figures]] = field(default_factory=list)
    """by round, then by broker"""
    rebalances: list[dict[str, Figures]] = field(default_factory=list)

    def comparisons(self) -> list[Comparison]:
        both = {"Queues": self.drains, "Changes of membership": self.rebalances}
        return [compare(title, KINDS, OURS, THEIRS, rounds) for title, rounds in both.items() if rounds]


def show(results: QueueResults, console: Console) -> None:
    for part in results.comparisons():
        remarks = {"an acknowledgement means": PROMISES} if part.rounds is results.drains else {}
        comparison.show(part, console, remarks)


def save(results: QueueResults) -> Path:
    summary = {name: entry for part in results.comparisons() for name, entry in comparison.summary(part).items()}
    return comparison.save("queues", {**_versions(), "promises": PROMISES, **asdict(results), "summary": summary})


def _versions() -> dict[str, str]:
    command = ["dpkg-query", "--show", "--showformat=${Package} ${Version}\n", "rabbitmq-server", "nats-server"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")
    return dict(line.split(" ") for line in listed if " " in line)
