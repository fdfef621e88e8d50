"""`make bench`: Headwater and Apache Kafka on this machine, in this run, taking turns.

Each round starts every broker afresh, one at a time, in an order that rotates, and measures the same things of it
with the same client. `--quick` is a shorter run of the same; `--only kafka` checks the bench itself."""

import argparse
import subprocess
import sys
from functools import partial

from bench import load, maven, measures, plot, report
from bench.measures import FULL, QUICK, Figures, Server, Volume
from bench.servers import SERVERS
from bench.turns import Say, taking_turns
from rich.console import Console

GROWTHS = ("partitions", "connections")
PROGRAMS = {"queues": "bench.queues", "transactions": "bench.transactions", "cluster": "bench.cluster"}
"""Parts that are programs of their own: the consumers of queues are processes that load no more than they need."""
ALONE = {"http": "bench.http_gateway", "push": "bench.push"}
"""Programs about what Kafka has no like of."""
PARTS = ("rounds", *GROWTHS, *PROGRAMS, *ALONE)


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
    if any(part in ("rounds", *GROWTHS) for part in parts):
        show(run(volume, names, parts, chosen.rounds or volume.rounds, console), names, console)
    passed_on = ["--quick"] if chosen.quick else []
    passed_on += [f"--only={name}" for name in chosen.only or ()]
    for part, program in PROGRAMS.items():
        if part in parts:
            subprocess.run([sys.executable, "-m", program, *passed_on], check=True)
    for part, program in ALONE.items():
        if part in parts:
            subprocess.run([sys.executable, "-m", program], check=True)


def show(results: report.Results, names: list[str], console: Console) -> None:
    if results.rounds and report.KAFKA in names:
        report.show(results, console)
        path = report.save(results)
        for written in [path, *plot.draw(results, path)]:
            console.print(f"wrote {written}")
    else:
        console.print_json(data={"rounds": results.rounds, **growths(results)})


def run(volume: Volume, names: list[str], parts: list[str], rounds: int, console: Console) -> report.Results:
    results, makers = report.Results(volume), {name: SERVERS[name] for name in names}
    in_rounds = rounds if "rounds" in parts else 0
    with taking_turns(len(names) * (in_rounds + sum(part in parts for part in GROWTHS)), console) as turns:
        results.rounds = turns.rounds("round", in_rounds, makers, partial(one_round, volume))
        if "partitions" in parts:
            grow = partial(partition_growth, volume)
            results.partitions = {name: turns.take(name, "partitions", make, grow) for name, make in makers.items()}
        if "connections" in parts:
            grow = partial(connection_growth, volume)
            results.connections = {name: turns.take(name, "connections", make, grow) for name, make in makers.items()}
    return results


def one_round(volume: Volume, server: Server, say: Say) -> Figures:
    figures = measures.start_time(server, volume)
    say("warming up")
    measures.warm_up(server, volume)
    figures |= measures.latency(server, volume, say)
    figures |= measures.throughput(server, volume, say)
    return figures


def partition_growth(volume: Volume, server: Server, say: Say) -> dict[int, Figures]:
    server.start()
    measures.warm_up(server, QUICK)
    return measures.partition_growth(server, volume, say)


def connection_growth(volume: Volume, server: Server, say: Say) -> dict[int, Figures]:
    server.start()
    measures.warm_up(server, QUICK)
    return measures.connection_growth(server, volume, say)


def growths(results: report.Results) -> dict[str, object]:
    return {"partitions": results.partitions, "connections": results.connections}


if __name__ == "__main__":
    main()
