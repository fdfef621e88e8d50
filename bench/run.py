"""`make bench`: Headwater and Apache Kafka on this machine, in this run, taking turns.

Each round starts every broker afresh, one at a time, in an order that rotates, and measures the same things of it
with the same client. `--quick` is a shorter run of the same; `--only kafka` checks the bench itself."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from bench import load, maven, measures, plot, report
from bench.headwater import HeadwaterServer
from bench.kafka import KafkaServer
from bench.measures import FULL, QUICK, Figures, Say, Server, Volume
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

SERVERS: dict[str, Callable[[], Server]] = {
    report.KAFKA: KafkaServer,
    report.OS: lambda: HeadwaterServer("os"),
    report.SYNC: lambda: HeadwaterServer("sync"),
}
T = TypeVar("T")
PARTS = ("rounds", "partitions", "connections")
COOL_DOWN_S = 0.5
CHUNK_BYTES = 1 << 20
TOUCHED_BYTES = 4 << 30
"""More than a turn leaves in the page cache."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="smaller volumes and fewer rounds")
    options.add_argument("--rounds", type=int, help="instead of the default number of rounds")
    options.add_argument("--only", choices=SERVERS, action="append", help="these brokers alone (may be repeated)")
    options.add_argument("--part", choices=PARTS, action="append", help="these parts alone (may be repeated)")
    chosen = options.parse_args()
    volume = QUICK if chosen.quick else FULL
    names, parts = chosen.only or list(SERVERS), chosen.part or list(PARTS)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(f"building the load generator, resolving Apache Kafka {maven.KAFKA_VERSION}")
    load.build()
    maven.class_path("broker", maven.KAFKA_BROKER)
    results = run(volume, names, parts, chosen.rounds or volume.rounds, console)
    if results.rounds and report.KAFKA in names:
        report.show(results, console)
        path = report.save(results)
        for written in [path, *plot.draw(results, path)]:
            console.print(f"wrote {written}")
    else:
        console.print_json(data={"rounds": results.rounds, **growths(results)})


def run(volume: Volume, names: list[str], parts: list[str], rounds: int, console: Console) -> report.Results:
    results = report.Results(volume)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    turns = len(names) * ((rounds if "rounds" in parts else 0) + sum(part in parts for part in PARTS[1:]))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=turns)

        def turn(name: str, what: str, measure: Callable[[Server, Volume, Say], T]) -> T:
            def say(doing: str) -> None:
                progress.update(task, description=f"{what}, {name}: {doing}")

            say("starting")
            with fresh(name) as server:
                figures = measure(server, volume, say)
            progress.advance(task)
            return figures

        if "rounds" in parts:
            for number in range(rounds):
                figures = {
                    name: turn(name, f"round {number + 1} of {rounds}", one_round) for name in rotated(names, number)
                }
                results.rounds.append({name: figures[name] for name in names})
        if "partitions" in parts:
            results.partitions = {name: turn(name, "partitions", partition_growth) for name in names}
        if "connections" in parts:
            results.connections = {name: turn(name, "connections", connection_growth) for name in names}
    return results


def one_round(server: Server, volume: Volume, say: Say) -> Figures:
    figures = measures.start_time(server, volume)
    say("warming up")
    measures.warm_up(server, volume)
    figures |= measures.latency(server, volume, say)
    figures |= measures.throughput(server, volume, say)
    return figures


def partition_growth(server: Server, volume: Volume, say: Say) -> dict[int, Figures]:
    server.start()
    measures.warm_up(server, QUICK)
    return measures.partition_growth(server, volume, say)


def connection_growth(server: Server, volume: Volume, say: Say) -> dict[int, Figures]:
    server.start()
    measures.warm_up(server, QUICK)
    return measures.connection_growth(server, volume, say)


@contextmanager
def fresh(name: str) -> Iterator[Server]:
    """A broker that has not been started yet, and is gone with its data afterwards."""
    touch_memory(TOUCHED_BYTES)
    os.sync()  # what the last broker left in the page cache is not this one's burden
    time.sleep(COOL_DOWN_S)
    server = SERVERS[name]()
    try:
        yield server
    finally:
        server.stop()


def touch_memory(size_bytes: int) -> None:
    """Have the machine's free memory mapped before a turn. On a virtual machine the first touch of a page can cost ten
    times the write into it (measured: 0.4 against 4 GB/s), and would be paid by whoever's turn comes first."""
    chunk = bytes(CHUNK_BYTES)
    with tempfile.TemporaryFile() as file:
        for _ in range(size_bytes // CHUNK_BYTES):
            file.write(chunk)


def rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]


def growths(results: report.Results) -> dict[str, object]:
    return {"partitions": results.partitions, "connections": results.connections}


if __name__ == "__main__":
    main()
