"""`make bench`: Headwater and Apache Kafka on this machine, in this run, taking turns.

Each round starts every broker afresh, one at a time, in an order that rotates, and measures the same things of it
with the same client. `--quick` is a shorter run of the same; `--only kafka` checks the bench itself."""

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import TypeVar

from bench import load, maven, measures, plot, report
from bench.headwater import HeadwaterServer
from bench.kafka import KafkaServer
from bench.measures import FULL, QUICK, Figures, Say, Server, Volume
from bench.turns import fresh, rotated
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

SERVERS: dict[str, Callable[[], Server]] = {
    report.KAFKA: KafkaServer,
    report.OS: lambda: HeadwaterServer("os"),
    report.SYNC: lambda: HeadwaterServer("sync"),
}
T = TypeVar("T")
GROWTHS = ("partitions", "connections")
PARTS = ("rounds", *GROWTHS, "queues")


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
    if parts != ["queues"]:
        show(run(volume, names, parts, chosen.rounds or volume.rounds, console), names, console)
    if "queues" in parts:  # a program of its own: its consumers are processes that load no more than they need
        options_of_queues = ["--quick"] if chosen.quick else []
        options_of_queues += [f"--only={name}" for name in chosen.only or ()]
        subprocess.run([sys.executable, "-m", "bench.queues", *options_of_queues], check=True)


def show(results: report.Results, names: list[str], console: Console) -> None:
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
    turns = len(names) * ((rounds if "rounds" in parts else 0) + sum(part in parts for part in GROWTHS))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=turns)

        def turn(name: str, what: str, measure: Callable[[Server, Volume, Say], T]) -> T:
            def say(doing: str) -> None:
                progress.update(task, description=f"{what}, {name}: {doing}")

            say("starting")
            with fresh(SERVERS[name]) as server:
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


def growths(results: report.Results) -> dict[str, object]:
    return {"partitions": results.partitions, "connections": results.connections}


if __name__ == "__main__":
    main()
