"""`make bench-transactions`: transactions of Headwater and Apache Kafka on this machine, in this run, taking turns.

Each round starts every broker afresh, one at a time, in an order that rotates, and measures it with two clients:
librdkafka, which speaks the older protocol of transactions, and Apache Kafka's own, which speaks that of KIP-890."""

import argparse
import sys
from dataclasses import asdict, dataclass
from functools import partial

from bench import bars, load, maven, transaction_report
from bench.drain import WrongCount
from bench.measures import Figures, Server, cpu_used, create_topic, delete_topic
from bench.servers import SERVERS
from bench.transaction_clients import Client, JavaClient, Librdkafka, compile_java
from bench.transaction_report import COMMIT, PRODUCE, RATE, VISIBLE
from bench.turns import Say, taking_turns
from rich.console import Console

RECORD_BYTES = 1024
COMMIT_INTERVAL_MS = 100
PARTITION_COUNTS = (1, 4)
SMALL_BYTES = 100
WARM_UP_TRANSACTIONS = 20
"""What both load generators send before they begin to measure the time of commits: see `load.h`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A small transaction."""

    records: int
    partitions: int

    def __str__(self) -> str:
        return "1 record" if self.records == 1 else f"{self.records} records over {self.partitions} partitions"


SHAPES = (Shape(1, 1), Shape(10, 4))


@dataclass(frozen=True, slots=True)
class Volume:
    rounds: int
    messages: int
    """of each throughput"""
    transactions: int
    """of each latency"""
    warm_up_messages: int
    """with each client"""
    warm_up_transactions: int
    """of each kind with each client; Kafka's code is compiled after some six thousand in all"""


FULL = Volume(rounds=5, messages=600_000, transactions=1_000, warm_up_messages=300_000, warm_up_transactions=1_500)
QUICK = Volume(rounds=2, messages=250_000, transactions=300, warm_up_messages=200_000, warm_up_transactions=1_000)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="smaller volumes and fewer rounds")
    options.add_argument("--rounds", type=int, help="instead of the default number of rounds")
    options.add_argument("--only", choices=SERVERS, action="append", help="these brokers alone (may be repeated)")
    chosen = options.parse_args()
    volume = QUICK if chosen.quick else FULL
    rounds = chosen.rounds or volume.rounds
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(f"building the load generators, resolving Apache Kafka {maven.KAFKA_VERSION}")
    load.build()
    maven.class_path("broker", maven.KAFKA_BROKER)
    makers = {name: SERVERS[name] for name in chosen.only or SERVERS}
    with taking_turns(rounds * len(makers), console) as turns:
        taken = turns.rounds("round", rounds, makers, partial(one_turn, volume, compile_java()))
    found = transaction_report.compared(taken)
    transaction_report.show(found, console)
    path = transaction_report.save(found, asdict(volume))
    for written in (path, bars.draw([found], path, transaction_report.NOT_DRAWN)):
        console.print(f"wrote {written}")


def one_turn(volume: Volume, java_class_path: str, server: Server, say: Say) -> Figures:
    server.start()
    figures: Figures = {}
    with JavaClient(java_class_path) as java:
        java.must_speak_kip_890_with(server.bootstrap)
        clients: tuple[Client, ...] = (Librdkafka(), java)
        for client in clients:
            warm_up(volume, server, client, say)
        for client in clients:
            figures |= latency(volume, server, client, say)
            figures |= throughput(volume, server, client, say)
    return figures


def warm_up(volume: Volume, server: Server, client: Client, say: Say) -> None:
    """Brokers and clients are measured warm: code compiled, coordinator found, its log created."""
    say(f"warming up with {client.name}")
    _stream(server, client, "warm-stream", max(PARTITION_COUNTS), volume.warm_up_messages)
    for shape in SHAPES:
        _commits(server, client, "warm-commits", shape, volume.warm_up_transactions)
    _visible(server, client, "warm-visible", volume.warm_up_transactions)


def throughput(volume: Volume, server: Server, client: Client, say: Say) -> Figures:
    figures: Figures = {}
    for partitions in PARTITION_COUNTS:
        case = f"{partitions} partition{'s' if partitions > 1 else ''}, {client.name}"
        say(f"{PRODUCE}, {case}")
        answer = _stream(server, client, "stream", partitions, volume.messages)
        figures[f"{PRODUCE}, {case}"] = answer["bytes"] / 1e6 / answer["seconds"]
        figures[f"{RATE}, {case}"] = answer["transactions"] / answer["seconds"]
        figures[f"CPU, {PRODUCE}, {case}"] = answer["cpu_s"] / (answer["bytes"] / 1e9)
    return figures


def latency(volume: Volume, server: Server, client: Client, say: Say) -> Figures:
    figures: Figures = {}
    for shape in SHAPES:
        case = f"{shape}, {client.name}"
        say(f"{COMMIT}, {case}")
        answer = _commits(server, client, "commits", shape, volume.transactions)
        figures[f"{COMMIT} mean, {case}"] = answer["mean_ms"]
        figures[f"{COMMIT} p50, {case}"] = answer["p50_ms"]
        figures[f"{COMMIT} p99, {case}"] = answer["p99_ms"]
        figures[f"{RATE}, {case}"] = 1e3 / answer["mean_ms"]
        figures[f"CPU, {COMMIT}, {case}"] = answer["cpu_s"] * 1e3 / (volume.transactions + WARM_UP_TRANSACTIONS)
    say(f"{VISIBLE}, {client.name}")
    answer = _visible(server, client, "visible", volume.transactions)
    figures[f"{VISIBLE} p50, {client.name}"] = answer["p50_ms"]
    figures[f"{VISIBLE} p99, {client.name}"] = answer["p99_ms"]
    return figures


def _stream(server: Server, client: Client, name: str, partitions: int, messages: int) -> Figures:
    options = {"messages": messages, "size": RECORD_BYTES, "interval_ms": COMMIT_INTERVAL_MS}
    return _answer(
        server=server,
        client=client,
        what="transactions",
        name=f"{name}-{partitions}",
        partitions=partitions,
        sent=messages,
        options=options,
    )


def _commits(server: Server, client: Client, name: str, shape: Shape, transactions: int) -> Figures:
    sent = (transactions + WARM_UP_TRANSACTIONS) * shape.records
    options = {"messages": transactions, "records": shape.records, "size": SMALL_BYTES, "linger_ms": 0}
    return _answer(
        server=server,
        client=client,
        what="commits",
        name=f"{name}-{shape.records}",
        partitions=shape.partitions,
        sent=sent,
        options=options,
    )


def _visible(server: Server, client: Client, name: str, transactions: int) -> Figures:
    options = {"messages": transactions, "size": SMALL_BYTES, "linger_ms": 0}
    return _answer(
        server=server,
        client=client,
        what="visible",
        name=name,
        partitions=1,
        sent=transactions + WARM_UP_TRANSACTIONS,
        options=options,
    )


def _answer(
    server: Server, client: Client, what: str, name: str, partitions: int, sent: int, options: dict[str, int]
) -> Figures:
    """The client's answer and the broker's CPU time, on a topic of its own in which every record is committed."""
    topic = f"{name}-{client.name}"
    create_topic(server, topic, partitions)
    about: dict[str, str | int] = {"bootstrap": server.bootstrap, "topic": topic, "partitions": partitions}
    with cpu_used(server) as cpu:
        answer = client.ask(what, **about, **options)
    found = load.ask("count", **about, messages=sent)
    if (found["messages"], found["ends"]) != (sent, partitions):
        read = f"{found['messages']} are committed; {found['ends']} of {partitions} partitions were read to the end"
        raise WrongCount(f"{server.name}, {what} with {client.name}: of {sent} records {read}")
    delete_topic(server, topic)
    return {**answer, "cpu_s": cpu()}


if __name__ == "__main__":
    main()
