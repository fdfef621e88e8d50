"""`make bench-tls`: what TLS, logins and access control cost, and Apache Kafka with the same, taking turns.

Each round starts every broker afresh, one at a time, in an order that rotates: Headwater without any of it, with TLS
and SCRAM-SHA-512, the same with 10,000 bindings of 100 users that are asked, and Kafka without and with. All are
measured by the same client, with certificates of the same kind."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial

from bench import bars, load, maven, measures, tls_report
from bench.headwater import HeadwaterServer
from bench.kafka import KafkaServer
from bench.measures import QUIET_S, Figures, Server, Volume
from bench.secured import SecuredHeadwater, SecuredKafka
from bench.tls_report import ACLS, IDLE_MEMORY, KAFKA_PLAIN, KAFKA_TLS, LOGIN_CPU, LOGINS, PLAIN, TLS
from bench.turns import Say, taking_turns
from rich.console import Console

SERVERS: dict[str, Callable[[], Server]] = {
    PLAIN: lambda: HeadwaterServer("os"),
    TLS: SecuredHeadwater,
    ACLS: lambda: SecuredHeadwater(authorization="on"),
    KAFKA_PLAIN: KafkaServer,
    KAFKA_TLS: SecuredKafka,
}
FULL = replace(measures.FULL, connection_counts=(2_000,))
QUICK = replace(
    measures.QUICK, messages={100: 1_000_000, 1024: 400_000}, warm_up_messages=150_000, connection_counts=(600,)
)
SMOKE = replace(QUICK, rounds=1, messages={100: 50_000, 1024: 20_000}, warm_up_messages=20_000, latency_messages=300)
LOGIN_PROCESSES = 2
WARM_UP_LOGINS = 100


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = options.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="smaller volumes and fewer rounds: about 8 minutes")
    size.add_argument("--smoke", action="store_true", help="so little that its figures say only that it works")
    options.add_argument("--rounds", type=int, help="instead of the default number of rounds")
    options.add_argument("--only", choices=SERVERS, action="append", help="these brokers alone (may be repeated)")
    chosen = options.parse_args()
    volume = QUICK if chosen.quick else SMOKE if chosen.smoke else FULL
    rounds = chosen.rounds or volume.rounds
    console = Console(width=None if sys.stdout.isatty() else 220)
    console.print(f"building the load generator, resolving Apache Kafka {maven.KAFKA_VERSION}")
    load.build()
    maven.class_path("broker", maven.KAFKA_BROKER)
    makers = {name: SERVERS[name] for name in chosen.only or SERVERS}
    with taking_turns(rounds * len(makers), console) as turns:
        taken = turns.rounds("round", rounds, makers, partial(one_turn, volume))
    found = tls_report.compared(taken)
    tls_report.show(found, console)
    path = tls_report.save(found, asdict(volume))
    for written in (path, bars.draw([found], path, tls_report.NOT_DRAWN, tls_report.COLOURS)):
        console.print(f"wrote {written}")


def one_turn(volume: Volume, server: Server, say: Say) -> Figures:
    server.start()
    say("warming up")
    measures.warm_up(server, volume)
    figures = measures.latency(server, volume, say)
    figures |= measures.throughput(server, volume, say)
    figures |= logins(server, volume, say)
    return figures


def logins(server: Server, volume: Volume, say: Say) -> Figures:
    """Clients that come all at once and stay: how many a second, at what cost, in how much memory. A client of a
    listener without a login says one thing instead."""
    say("logins")
    with logged_in(server, WARM_UP_LOGINS):
        pass
    time.sleep(QUIET_S)
    [count] = volume.connection_counts
    before_bytes = server.process.resident_bytes()
    with ExitStack() as stack:
        with measures.cpu_used(server) as cpu:
            rate = stack.enter_context(logged_in(server, count))
        figures = {LOGINS: rate, LOGIN_CPU: cpu() * 1e3 / count}
        time.sleep(QUIET_S)
        figures[IDLE_MEMORY] = (server.process.resident_bytes() - before_bytes) / 1024 / count
    return figures


@contextmanager
def logged_in(server: Server, count: int) -> Iterator[float]:
    """This many connections that stay open in the block; how many were opened a second."""
    command = [sys.executable, "-m", "bench.logins"]
    options = {"bootstrap": server.bootstrap, "settings": dict(server.settings), "count": count // LOGIN_PROCESSES}
    with ExitStack() as stack:
        holders = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(LOGIN_PROCESSES)
        ]
        answers = []
        for holder in holders:
            assert holder.stdin is not None
            holder.stdin.write(json.dumps(options) + "\n")
            holder.stdin.flush()
        for holder in holders:
            assert holder.stdout is not None
            line = holder.stdout.readline()
            if not line:
                raise RuntimeError(f"{server.name}: {count} connections could not be opened")
            answers.append(json.loads(line))
        yield sum(answer["count"] for answer in answers) / max(answer["seconds"] for answer in answers)


if __name__ == "__main__":
    main()
