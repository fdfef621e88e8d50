"""Many seeds, on as many processes as one likes: what happened in all of them together, and what went wrong."""

import gc
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headwater.testing.simulation.invariants import InvariantViolated
from headwater.testing.simulation.mutants import mutated
from headwater.testing.simulation.simulation import Simulation
from headwater.testing.simulation.world import TraceEntry

CHUNK = 20
TRACE_ENTRIES = 60
"""Of the trace before a violation."""


@dataclass(frozen=True, slots=True)
class Failure:
    seed: int
    message: str
    trace: tuple[TraceEntry, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """Of some seeds."""

    seeds: int
    counts: Counter[str]
    virtual_s: float
    failures: tuple[Failure, ...]


def run_seed(seed: int, mutant: str | None = None, theme: str | None = None) -> Result:
    """Fails if an invariant is violated, or an assertion of the machines that are simulated."""
    message = None
    with mutated(mutant):
        simulation = Simulation(seed, theme)
        try:
            simulation.run()
        except InvariantViolated as violation:
            message = str(violation)
        except AssertionError as violation:
            message = f"an assertion: {violation}"
    failures: tuple[Failure, ...] = ()
    if message is not None:
        failures = (Failure(seed, message, tuple(simulation.world.trace[-TRACE_ENTRIES:])),)
    return Result(1, simulation.world.counts, simulation.world.now, failures)


def run_campaign(seeds: range, jobs: int, mutant: str | None = None) -> Iterator[Result]:
    """The results in chunks, in the order of the seeds."""
    chunks = [(seeds[at : at + CHUNK], mutant) for at in range(0, len(seeds), CHUNK)]
    if jobs == 1:
        yield from map(_run_chunk, chunks)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap(_run_chunk, chunks)


def total(results: Iterable[Result]) -> Result:
    seeds, virtual_s = 0, 0.0
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    for result in results:
        seeds += result.seeds
        virtual_s += result.virtual_s
        counts.update(result.counts)
        failures += result.failures
    return Result(seeds, counts, virtual_s, tuple(failures))


def _run_chunk(chunk: tuple[range, str | None]) -> Result:
    """With garbage collected between chunks only: it finds nothing while a simulation runs."""
    seeds, mutant = chunk
    gc.disable()
    try:
        return total(run_seed(seed, mutant) for seed in seeds)
    finally:
        gc.enable()
        gc.collect()
