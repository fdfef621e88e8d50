"""What is measured of a broker, and how. A measure runs against a server and returns figures by name.

Every figure is one number whose unit and direction `FIGURES` gives; the same code measures both brokers."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from bench import load
from bench.process import BrokerProcess
from bench.turns import Say
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

SIZES_BYTES = (100, 1024)
PARTITION_COUNTS = (1, 16)
LATENCY_SIZE_BYTES = 100
QUIET_S = 0.5
ADMIN_TIMEOUT_S = 300.0
FIRST_RECORD_TIMEOUT_S = 60.0

GROWTH_INDEX_INTERVAL_BYTES = "1048576"
"""Kafka's first index entry of a partition faults in a page of a sparse mapped file, which some file systems make so
slow (25 ms with 1,000 partitions) that nothing else would be seen of it. In its favour, the index is made rarer."""

Figures = dict[str, float]


class Server(Protocol):
    name: str
    bootstrap: str
    settings: Mapping[str, str]
    """With which librdkafka reaches `bootstrap`: how it is encrypted, and a login."""
    process: BrokerProcess

    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Volume:
    """How much load a run puts on a broker."""

    rounds: int
    warm_up_messages: int
    messages: dict[int, int]
    """by record size"""
    latency_messages: int
    partition_counts: tuple[int, ...]
    connection_counts: tuple[int, ...]
    spread_messages: int
    idle_s: float


FULL = Volume(
    rounds=5,
    warm_up_messages=400_000,
    messages={100: 4_000_000, 1024: 800_000},
    latency_messages=3_000,
    partition_counts=(10, 100, 1_000, 5_000),
    connection_counts=(10, 100, 1_000),
    spread_messages=400_000,
    idle_s=3.0,
)
QUICK = Volume(
    rounds=2,
    warm_up_messages=200_000,
    messages={100: 1_000_000, 1024: 200_000},
    latency_messages=1_000,
    partition_counts=(10, 500),
    connection_counts=(10, 500),
    spread_messages=100_000,
    idle_s=1.0,
)


def start_time(server: Server, volume: Volume) -> Figures:
    """Start the process and have one record acknowledged, topic creation included; then look at it idle."""
    options = {"bootstrap.servers": server.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    options |= {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 10, "retry.backoff.ms": 10}
    options |= {"topic.metadata.refresh.fast.interval.ms": 10}
    server.process.start()
    server.process.wait_until_answering()  # a client that is refused waits longer and longer before it tries again
    producer = Producer(options)
    producer.produce("first", b"record")
    left = producer.flush(FIRST_RECORD_TIMEOUT_S)
    first_record_s = time.monotonic() - server.process.started_at_s
    if left:
        raise TimeoutError(f"{server.name} acknowledged nothing:\n{server.process.output_tail()}")
    time.sleep(QUIET_S)
    return {
        "start to first acknowledged record": first_record_s,
        "memory, idle": server.process.resident_bytes() / 1e6,
        **_idle_cpu(server, volume),
    }


def warm_up(server: Server, volume: Volume) -> None:
    """Both brokers are measured warm: code compiled, pages allocated."""
    create_topic(server, "warm", 4)
    for size_bytes in SIZES_BYTES:
        load.produce(server.bootstrap, "warm", volume.warm_up_messages, size_bytes, settings=server.settings)
    load.consume(server.bootstrap, "warm", 4, volume.warm_up_messages, settings=server.settings)
    load.latency(server.bootstrap, "warm", volume.latency_messages // 2, LATENCY_SIZE_BYTES, settings=server.settings)


def throughput(server: Server, volume: Volume, say: Say) -> Figures:
    figures: Figures = {}
    for size_bytes in SIZES_BYTES:
        for partitions in PARTITION_COUNTS:
            case = f"{_size(size_bytes)}, {_partitions(partitions)}"
            topic = f"throughput-{size_bytes}-{partitions}"
            messages = volume.messages[size_bytes]
            create_topic(server, topic, partitions)
            say(f"produce {case}")
            with cpu_used(server) as cpu:
                produced = load.produce(server.bootstrap, topic, messages, size_bytes, settings=server.settings)
            figures[f"produce {case}"] = produced.megabytes_per_s
            figures[f"CPU, produce {case}"] = cpu() / (produced.payload_bytes / 1e9)
            say(f"consume {case}")
            with cpu_used(server) as cpu:
                consumed = load.consume(server.bootstrap, topic, partitions, messages, settings=server.settings)
            figures[f"consume {case}"] = consumed.megabytes_per_s
            figures[f"CPU, consume {case}"] = cpu() / (consumed.payload_bytes / 1e9)
            delete_topic(server, topic)
    figures["memory, after load"] = server.process.resident_bytes() / 1e6
    return figures


def latency(server: Server, volume: Volume, say: Say) -> Figures:
    create_topic(server, "latency", 1)
    say("produce latency")
    produced = load.latency(
        server.bootstrap, "latency", volume.latency_messages, LATENCY_SIZE_BYTES, settings=server.settings
    )
    say("end-to-end latency")
    arrived = load.end_to_end(
        server.bootstrap, "latency", volume.latency_messages, LATENCY_SIZE_BYTES, settings=server.settings
    )
    return {
        "produce latency p50": produced.p50_ms,
        "produce latency p99": produced.p99_ms,
        "end-to-end latency p50": arrived.p50_ms,
        "end-to-end latency p99": arrived.p99_ms,
    }


def partition_growth(server: Server, volume: Volume, say: Say) -> dict[int, Figures]:
    """The cost of partitions: figures by the number of them, in one topic."""
    growth: dict[int, Figures] = {}
    for count in volume.partition_counts:
        say(f"{count} partitions")
        topic = f"grow-{count}"
        started_s = time.monotonic()
        create_topic(server, topic, count, {"index.interval.bytes": GROWTH_INDEX_INTERVAL_BYTES})
        # a broker may answer before it has made the partitions: they are there when they have taken records
        load.produce(server.bootstrap, topic, count * 10, LATENCY_SIZE_BYTES, spread=True)
        create_s = time.monotonic() - started_s
        with cpu_used(server) as cpu:
            spread = load.produce(server.bootstrap, topic, volume.spread_messages, LATENCY_SIZE_BYTES, spread=True)
        reached = load.latency(server.bootstrap, topic, volume.latency_messages // 2, LATENCY_SIZE_BYTES, spread=True)
        growth[count] = {
            "create and fill": create_s,
            "produce": spread.megabytes_per_s,
            "CPU": cpu() / (spread.payload_bytes / 1e9),
            "produce latency p50": reached.p50_ms,
            "produce latency p99": reached.p99_ms,
            "memory": server.process.resident_bytes() / 1e6,
            **_idle_cpu(server, volume),
        }
        delete_topic(server, topic)
    return growth


def connection_growth(server: Server, volume: Volume, say: Say) -> dict[int, Figures]:
    """The cost of connections, each of which sends a small request every second."""
    growth: dict[int, Figures] = {}
    create_topic(server, "connected", 1)
    for count in volume.connection_counts:
        say(f"{count} connections")
        with _connections(server.bootstrap, count) as open_s:
            idle = _idle_cpu(server, volume)
            reached = load.latency(server.bootstrap, "connected", volume.latency_messages // 2, LATENCY_SIZE_BYTES)
            growth[count] = {
                "open": open_s,
                "produce latency p50": reached.p50_ms,
                "produce latency p99": reached.p99_ms,
                "memory": server.process.resident_bytes() / 1e6,
                **idle,
            }
    return growth


def create_topic(server: Server, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
    """Created, and every partition has a leader: ready to be written to."""
    admin = _admin(server)
    options = {"operation_timeout": ADMIN_TIMEOUT_S, "request_timeout": ADMIN_TIMEOUT_S}
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})], **options)[topic].result(ADMIN_TIMEOUT_S)
    deadline_s = time.monotonic() + ADMIN_TIMEOUT_S
    while time.monotonic() < deadline_s:
        found = admin.list_topics(topic, timeout=ADMIN_TIMEOUT_S).topics[topic]
        if len(found.partitions) == partitions and all(part.leader >= 0 for part in found.partitions.values()):
            return
        time.sleep(0.02)
    raise TimeoutError(f"{server.name}: {topic} with {partitions} partitions is not there")


def delete_topic(server: Server, topic: str) -> None:
    admin = _admin(server)
    admin.delete_topics([topic], request_timeout=ADMIN_TIMEOUT_S)[topic].result(ADMIN_TIMEOUT_S)


def _admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0, **server.settings})


@contextmanager
def cpu_used(server: Server) -> Iterator[Callable[[], float]]:
    """CPU-seconds that the broker used inside the block."""
    before_s, used_s = server.process.cpu_seconds(), 0.0

    def used() -> float:
        return used_s

    yield used
    used_s = server.process.cpu_seconds() - before_s


def _idle_cpu(server: Server, volume: Volume) -> Figures:
    """Percent of one core that the broker uses while it has no requests."""
    time.sleep(QUIET_S)
    with cpu_used(server) as cpu:
        time.sleep(volume.idle_s)
    return {"CPU, idle": 100 * cpu() / volume.idle_s}


@contextmanager
def _connections(bootstrap: str, count: int) -> Iterator[float]:
    command = [sys.executable, "-m", "bench.connections", bootstrap, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        line = holder.stdout.readline()
        if not line:
            raise RuntimeError(f"{count} connections could not be opened")
        yield json.loads(line)["open_s"]
        holder.stdin.close()


def _size(size_bytes: int) -> str:
    return "1 KiB" if size_bytes == 1024 else f"{size_bytes} B"


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
