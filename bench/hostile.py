"""`make hostile`: a broker under attack, and how it is for the others meanwhile.

One broker, attacked in many ways, one after the other, on loopback alone; each attack ends by itself. Meanwhile a
client that is connected asks for something every few milliseconds, and others come, log in over TLS and produce.
Reported are their delays, the broker's memory, and whether all that the attack held open is gone in the end. The delay
of a request that is answered at once is that of the broker's event loop, and of this machine.

With `--addresses 1` the attack comes from one address, which is another than that of the others."""

import argparse
import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil
import uvloop
from bench import comparison
from bench.hostile_clients import FLOODS, HELD
from bench.secured import MECHANISM, USER, SecuredHeadwater
from rich.console import Console
from rich.table import Table

from headwater.client.address import BrokerAddress
from headwater.client.asyncio_connection import AsyncioConnection
from headwater.client.errors import ClientError
from headwater.client.settings import ConnectionSettings, SaslLogin, TlsFiles
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.wire.typed.metadata import MetadataRequest, MetadataRequestTopic
from headwater.wire.typed.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "bench-hostile"
ASK_INTERVAL_S = 0.005
COME_INTERVAL_S = 0.1
GIVE_UP_S = 20.0
LOOK_S = 0.05
GONE_TIMEOUT_S = 60.0
DESCRIPTORS = 1_000
"""Beside those of the attackers."""
NEAR_DESCRIPTORS = 8
"""Of the broker, more or less: those of the others come and go."""
MIB = 1024 * 1024


@dataclass(slots=True)
class Others:
    """What the well-behaved clients met."""

    delays_s: list[float] = field(default_factory=list)
    """Of requests on a connection that is there."""
    comings_s: list[float] = field(default_factory=list)
    """Until a record is acknowledged, from the connection on: TLS, login, metadata, produce."""
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Siege:
    attack: str
    before_mib: float
    peak_mib: float
    after_mib: float
    delay_p50_ms: float
    delay_p99_ms: float
    coming_p50_ms: float
    coming_p99_ms: float
    comings: int
    failures: int
    gone_after_s: float | None
    """How long after the attack had begun all of its connections were gone, while it held on; None if they were not."""
    said: dict[str, int]


def main() -> None:
    options = argparse.ArgumentParser(prog="bench.hostile", description=__doc__)
    options.add_argument("--connections", type=int, default=10_000, help="that an attack holds open")
    options.add_argument("--seconds", type=float, default=12.0, help="of each attack")
    options.add_argument("--addresses", type=int, default=100, help="of 127.0.0.0/8 that an attack comes from")
    options.add_argument("--attack", choices=[*HELD, *FLOODS], action="append", help="these alone (may be repeated)")
    chosen = options.parse_args()
    raise_descriptors(chosen.connections + DESCRIPTORS)
    console = Console(width=None if sys.stdout.isatty() else 200)
    sieges = []
    quiet = None
    with SecuredHeadwater(
        mechanisms=(MECHANISM, "PLAIN"), has_plain=True, log_level="error", max_connections=chosen.connections + 1_000
    ) as broker:
        quiet = uvloop.run(besieged(broker, None, chosen))
        for attack in chosen.attack or [*HELD, *FLOODS]:
            console.print(f"{attack} …")
            sieges.append(uvloop.run(besieged(broker, attack, chosen)))
    show([quiet, *sieges], console)
    path = comparison.save("hostile", {"options": vars(chosen), "sieges": [asdict(each) for each in (quiet, *sieges)]})
    console.print(f"wrote {path}")


def raise_descriptors(needed: int) -> None:
    """For this process and those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        sys.exit(f"{needed} file descriptors are needed, and {hard} allowed: ulimit -Hn, or --connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))


async def besieged(broker: SecuredHeadwater, attack: str | None, chosen: argparse.Namespace) -> Siege:
    others, ended = Others(), asyncio.Event()
    process = broker.process
    before_bytes, descriptors = process.resident_bytes(), count_descriptors(broker)
    peak_bytes, gone_s = before_bytes, None
    said: dict[str, int] = {}
    async with asyncio.TaskGroup() as tasks:
        with attacked(broker, attack, chosen) as attackers:
            if attackers is not None:
                assert attackers.stdout is not None
                started_s = time.monotonic()
                while (await asyncio.to_thread(attackers.stdout.readline)).strip() != "ready":
                    assert attackers.poll() is None, "the attackers are at work"
                # What is measured of the others begins with the attack, and not when it is at its height.
            started_s = time.monotonic()
            tasks.create_task(ask(broker, others, ended))
            tasks.create_task(come(broker, others, ended))
            while time.monotonic() - started_s < chosen.seconds:
                await asyncio.sleep(LOOK_S)
                peak_bytes = max(peak_bytes, process.resident_bytes())
            ended.set()
            if attack in HELD:
                gone_s = await gone(broker, descriptors, started_s)
            if attackers is not None:
                assert attackers.stdin is not None and attackers.stdout is not None
                attackers.stdin.close()
                said = json.loads(await asyncio.to_thread(attackers.stdout.readline))
    if attack in FLOODS:
        gone_s = await gone(broker, descriptors, time.monotonic())
    return Siege(
        attack=attack or "none",
        before_mib=before_bytes / MIB,
        peak_mib=peak_bytes / MIB,
        after_mib=process.resident_bytes() / MIB,
        delay_p50_ms=percentile(others.delays_s, 50),
        delay_p99_ms=percentile(others.delays_s, 99),
        coming_p50_ms=percentile(others.comings_s, 50),
        coming_p99_ms=percentile(others.comings_s, 99),
        comings=len(others.comings_s),
        failures=len(others.failures),
        gone_after_s=gone_s,
        said={**said, **{f"others: {words[:60]}": 1 for words in set(others.failures)}},
    )


@contextmanager
def attacked(
    broker: SecuredHeadwater, attack: str | None, chosen: argparse.Namespace
) -> Iterator["subprocess.Popen[str] | None"]:
    if attack is None:
        yield None
        return
    tls, plain = (address.rsplit(":", 1) for address in (broker.bootstrap, broker.plain))
    options: dict[str, Any] = {"attack": attack, "tls": [tls[0], int(tls[1])], "plain": [plain[0], int(plain[1])]}
    options |= {"count": chosen.connections, "addresses": chosen.addresses}
    command = [sys.executable, "-m", "bench.hostile_clients"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as attackers:
        assert attackers.stdin is not None
        attackers.stdin.write(json.dumps(options) + "\n")
        attackers.stdin.flush()
        try:
            yield attackers
        finally:
            attackers.terminate()


async def gone(broker: SecuredHeadwater, descriptors: int, started_s: float) -> float | None:
    while time.monotonic() - started_s < GONE_TIMEOUT_S:
        if count_descriptors(broker) <= descriptors + NEAR_DESCRIPTORS:
            return time.monotonic() - started_s
        await asyncio.sleep(LOOK_S)
    return None


def count_descriptors(broker: SecuredHeadwater) -> int:
    return psutil.Process(broker.process.pid).num_fds()


async def ask(broker: SecuredHeadwater, others: Others, ended: asyncio.Event) -> None:
    """Over a connection that is there; another, if that was cut."""
    connection: AsyncioConnection | None = None
    while not ended.is_set():
        try:
            connection = connection or await connected(broker)
            started_s = time.monotonic()
            await connection.ask(MetadataRequest(topics=[]))
            others.delays_s.append(time.monotonic() - started_s)
        except ClientError as error:
            others.failures.append(f"a request: {error}")
            connection = None
        await asyncio.sleep(ASK_INTERVAL_S)
    if connection is not None:
        connection.close()


async def come(broker: SecuredHeadwater, others: Others, ended: asyncio.Event) -> None:
    """Connect, log in, produce a record, go; one after the other, ten a second at most."""
    batch = build_batch([Record(None, b"x" * 100)], timestamp=0)
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    while not ended.is_set():
        started_s, connection = time.monotonic(), None
        try:
            connection = await connected(broker)
            await connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
            answer = await connection.ask(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data]), at_most=9)
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                others.failures.append(f"a produce was answered with {code}")
            else:
                others.comings_s.append(time.monotonic() - started_s)
        except ClientError as error:
            others.comings_s.append(time.monotonic() - started_s)
            others.failures.append(f"a newcomer: {error}")
        finally:
            if connection is not None:
                connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, started_s + COME_INTERVAL_S - time.monotonic())):
                await ended.wait()


async def connected(broker: SecuredHeadwater) -> AsyncioConnection:
    """Raises ClientError."""
    host, port = broker.bootstrap.rsplit(":", 1)
    credentials = broker.credentials
    tls = TlsFiles(str(credentials.ca), certificate=None, key=None, key_password=None, checks_host_name=True)
    login = SaslLogin(mechanism=SaslMechanism(MECHANISM), user=USER, password=credentials.password)
    settings = ConnectionSettings(
        client_id="other", tls=tls, sasl=login, connect_timeout_s=GIVE_UP_S, request_timeout_s=GIVE_UP_S
    )
    return await AsyncioConnection.open(BrokerAddress(host, int(port)), settings)


def percentile(values_s: Sequence[float], percent: int) -> float:
    """In ms."""
    if not values_s:
        return float("nan")
    return sorted(values_s)[min(len(values_s) - 1, len(values_s) * percent // 100)] * 1e3


def show(sieges: Sequence[Siege], console: Console) -> None:
    table = Table(title="A broker under attack, and the others meanwhile")
    columns = (
        "attack", "MiB before", "peak", "after", "delay p50 ms", "p99", "login and produce p50 ms", "p99", "of",
        "failed", "gone after s",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="left" if column == "attack" else "right")
    for each in sieges:
        numbers = (
            f"{each.before_mib:.0f}", f"{each.peak_mib:.0f}", f"{each.after_mib:.0f}",
            f"{each.delay_p50_ms:.1f}", f"{each.delay_p99_ms:.1f}", f"{each.coming_p50_ms:.0f}",
            f"{each.coming_p99_ms:.0f}", str(each.comings), str(each.failures),
            "" if each.gone_after_s is None else f"{each.gone_after_s:.1f}",
        )  # fmt: skip
        table.add_row(each.attack.replace("_", " "), *numbers)
    console.print(table)
    for each in sieges:
        console.print(f"{each.attack}: {', '.join(f'{count} {what}' for what, count in each.said.items())}")


if __name__ == "__main__":
    main()
