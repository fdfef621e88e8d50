"""`python -m headwater.testing.simulation`: run seeds, or show what happens in one."""

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from headwater.testing.simulation.campaign import Failure, Result, run_campaign, total
from headwater.testing.simulation.invariants import InvariantViolated
from headwater.testing.simulation.mutants import MUTANTS, mutated
from headwater.testing.simulation.simulation import Simulation
from headwater.testing.simulation.world import TraceEntry

MAX_FAILURES = 10
"""Shown; a campaign ends when it has found so many."""

app = typer.Typer(add_completion=False)
console = Console(highlight=False, soft_wrap=True)


@app.command()
def main(
    seeds: Annotated[int, typer.Option(help="How many.", min=1)] = 1000,
    first: Annotated[int, typer.Option(help="The first one.", min=0)] = 1,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1, max=256)] = 2,
    mutant: Annotated[str | None, typer.Option(help="Take a rule away: " + ", ".join(MUTANTS))] = None,
    trace: Annotated[int | None, typer.Option(help="Show everything that happens in this seed.")] = None,
) -> None:
    if mutant is not None and mutant not in MUTANTS:
        raise typer.BadParameter(f"there is no mutant {mutant}")
    if trace is not None:
        raise typer.Exit(_show_trace(trace, mutant))
    started = time.monotonic()
    result = total(_watched(range(first, first + seeds), jobs, mutant))
    _report(result, time.monotonic() - started)
    raise typer.Exit(1 if result.failures else 0)


def _watched(seeds: range, jobs: int, mutant: str | None) -> list[Result]:
    results: list[Result] = []
    found = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for result in run_campaign(seeds, jobs, mutant):
            results.append(result)
            progress.advance(task, result.seeds)
            for failure in result.failures:
                found += 1
                _show_failure(failure)
            if found >= MAX_FAILURES or (mutant is not None and found):
                break
    return results


def _report(result: Result, elapsed_s: float) -> None:
    table = Table("what happened", "times", box=None)
    for name, times in sorted(result.counts.items()):
        table.add_row(name, f"{times:,}")
    console.print(table)
    console.print(
        f"{result.seeds:,} seeds, {result.virtual_s / 3600:.1f} virtual hours in {elapsed_s:.0f} s "
        f"({1000 * elapsed_s / result.seeds:.1f} ms each), {len(result.failures)} violations"
    )


def _show_failure(failure: Failure) -> None:
    for entry in failure.trace:
        _show_entry(entry)
    console.print(f"[bold red]seed {failure.seed} violates {failure.message}[/]")


def _show_trace(seed: int, mutant: str | None) -> int:
    failure = None
    with mutated(mutant):
        simulation = Simulation(seed)
        console.print(repr(simulation.swarm))
        try:
            simulation.run()
        except InvariantViolated as violation:
            failure = violation
    for entry in simulation.world.trace:
        _show_entry(entry)
    console.print(f"seed {seed}: {failure or 'every invariant holds'}, trace {simulation.world.trace_hash()[:16]}")
    return 1 if failure else 0


def _show_entry(entry: TraceEntry) -> None:
    now, actor, what, details = entry
    console.print(f"{now:9.4f}  {actor:12} {what} {' '.join(map(str, details))}", markup=False)


if __name__ == "__main__":
    app()
