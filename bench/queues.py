"""`make bench-queues`: Headwater as a queue beside Apache Kafka, RabbitMQ and NATS, and how it hands partitions over.

Each round starts every broker afresh, one at a time, in an order that rotates. Consumers are Python processes with the
client that people use for the broker: share consumers of confluent-kafka for Headwater and Kafka, pika, nats-py."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench import maven, queue_report, rebalance
from bench.drain import QueueBroker, drain
from bench.measures import Figures, Server
from bench.nats import NatsServer
from bench.queue_report import QueueResults
from bench.rabbitmq import RabbitMQServer
from bench.report import KAFKA, NATS, OS, RABBITMQ, SYNC
from bench.servers import SERVERS
from bench.share_groups import ShareGroups
from bench.turns import Say, taking_turns
from rich.console import Console

QUEUES: dict[str, Callable[[], QueueBroker]] = {
    KAFKA: lambda: ShareGroups(SERVERS[KAFKA]()),
    OS: lambda: ShareGroups(SERVERS[OS]()),
    SYNC: lambda: ShareGroups(SERVERS[SYNC]()),
    RABBITMQ: RabbitMQServer,
    NATS: NatsServer,
}
GROUPS = {name: SERVERS[name] for name in (KAFKA, OS)}
PARTS = ("drain", "rebalance")
CONSUMER_COUNTS = (1, 8)


@dataclass(frozen=True, slots=True)
class Volume:
    rounds: int
    records: dict[str, int]
    """by broker: enough for a few seconds"""
    warm_up_records: dict[str, int]
    """Kafka needs more than half a million until its code is compiled."""
    rebalance_rounds: int
    rebalance: rebalance.Scale


FULL = Volume(
    rounds=5,
    records={KAFKA: 1_000_000, OS: 1_000_000, SYNC: 1_000_000, RABBITMQ: 150_000, NATS: 80_000},
    warm_up_records={KAFKA: 400_000, OS: 400_000, SYNC: 400_000, RABBITMQ: 20_000, NATS: 10_000},
    rebalance_rounds=2,
    rebalance=rebalance.FULL,
)
QUICK = Volume(
    rounds=2,
    records={KAFKA: 400_000, OS: 400_000, SYNC: 400_000, RABBITMQ: 60_000, NATS: 30_000},
    warm_up_records={KAFKA: 300_000, OS: 300_000, SYNC: 300_000, RABBITMQ: 10_000, NATS: 5_000},
    rebalance_rounds=1,
    rebalance=rebalance.QUICK,
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="smaller volumes and fewer rounds")
    options.add_argument("--rounds", type=int, help="instead of the default number of rounds")
    options.add_argument("--only", choices=QUEUES, action="append", help="these brokers alone (may be repeated)")
    options.add_argument("--part", choices=PARTS, action="append", help="these parts alone (may be repeated)")
    chosen = options.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 200)
    maven.class_path("broker", maven.KAFKA_BROKER)
    volume = QUICK if chosen.quick else FULL
    results = measure(volume, chosen.rounds, chosen.only or list(QUEUES), chosen.part or PARTS, console)
    queue_report.show(results, console)
    path = queue_report.save(results)
    console.print(f"wrote {path}")
    from bench import bars  # not at the top: each consumer process would load it too

    console.print(f"wrote {bars.draw(results.comparisons(), path, queue_report.NOT_DRAWN)}")


def measure(
    volume: Volume, rounds: int | None, names: list[str], parts: Sequence[str], console: Console
) -> QueueResults:
    drains = rounds or volume.rounds if "drain" in parts else 0
    moves = rounds or volume.rebalance_rounds if "rebalance" in parts else 0
    queues = {name: QUEUES[name] for name in names}
    groups = {name: GROUPS[name] for name in names if name in GROUPS}
    with taking_turns(drains * len(queues) + moves * len(groups), console) as turns:
        return QueueResults(
            drains=turns.rounds("queues, round", drains, queues, partial(drain_figures, volume)),
            rebalances=turns.rounds("rebalance, round", moves, groups, partial(rebalance_figures, volume)),
        )


def drain_figures(volume: Volume, broker: QueueBroker, say: Say) -> Figures:
    broker.start()
    say("warming up")
    for consumers in CONSUMER_COUNTS:
        drain(broker, f"warm-{consumers}", consumers, volume.warm_up_records[broker.name])
    figures: Figures = {}
    for consumers in CONSUMER_COUNTS:
        case = "1 consumer" if consumers == 1 else f"{consumers} consumers"
        say(case)
        drained = drain(broker, f"queue-{consumers}", consumers, volume.records[broker.name])
        figures[f"take and accept, {case}"] = drained.records_per_s
        figures[f"CPU, {case}"] = drained.cpu_s_per_million
    return figures


def rebalance_figures(volume: Volume, server: Server, say: Say) -> Figures:
    return rebalance.measure(server, volume.rebalance, say)


if __name__ == "__main__":
    main()
