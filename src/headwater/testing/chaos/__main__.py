"""`python -m headwater.testing.chaos`: a cluster of real processes under faults, and what its clients say to that."""

import random
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from headwater.testing.chaos.campaign import Options, run
from headwater.testing.chaos.report import Report

MAX_SHOWN = 20

app = typer.Typer(add_completion=False)
console = Console(highlight=False, soft_wrap=True)


@app.command()
def main(
    faults: Annotated[int, typer.Option(help="How many.", min=1)] = 500,
    seed: Annotated[int | None, typer.Option(help="Of the faults: which, when, and how long.")] = None,
    pace: Annotated[float, typer.Option(help="How long faults last, of what they last by default.", min=0.05)] = 1.0,
    rate: Annotated[float, typer.Option(help="Records of each producer in a second.", min=1)] = 100.0,
    secure: Annotated[bool, typer.Option("--secure", help="With TLS everywhere, logins and access control.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Where to leave logs and history; must not exist yet.")] = None,
) -> None:
    directory = keep or Path(tempfile.mkdtemp(prefix="headwater-chaos-"))
    directory.mkdir(parents=True, exist_ok=keep is None)
    chosen = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    columns = (TextColumn("faults"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console.print(f"seed {chosen}, logs in {directory}")
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("faults", total=faults)
        report = run(
            Options(directory, faults, chosen, pace, rate, secure), lambda done: progress.update(task, completed=done)
        )
    _show(report)
    if not report.violations and keep is None:
        shutil.rmtree(directory, ignore_errors=True)
    raise typer.Exit(1 if report.violations else 0)


def _show(report: Report) -> None:
    table = Table("fault", "times", "alone", "stall p50 s", "p99 s", "longest s", box=None)
    for row in report.rows():
        table.add_row(*row)
    console.print(table)
    for title, sentences in (
        ("cannot be done here", report.skipped),
        ("nodes that ended by themselves", report.deaths),
        ("what clients got over", report.troubles),
        ("violations", report.violations),
    ):
        if sentences:
            console.print(f"[bold]{title}: {len(sentences)}[/]")
            for sentence in sentences[:MAX_SHOWN]:
                console.print(f"  {sentence}", markup=False)
    console.print(str(report))


if __name__ == "__main__":
    app()
