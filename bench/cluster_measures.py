"""What is measured of a cluster, and how: load, and faults under load. Topics have three replicas and need two."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench import load
from bench.clusters import Cluster
from bench.measures import ADMIN_TIMEOUT_S, Figures
from bench.steady import Seen, steady
from bench.turns import Say
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

REPLICAS: Final = 3
MIN_INSYNC: Final = "2"
SIZES_BYTES: Final = (1024, 100)
PARTITION_COUNTS: Final = (1, 12)
LATENCY_SIZE_BYTES: Final = 100
BEFORE_S: Final = 2.0
PAUSE_S: Final = 5.0
AFTERWARDS_S: Final = 2.0
IN_SYNC_TIMEOUT_S: Final = 120.0
LOOK_EVERY_S: Final = 0.1

PRODUCE, CONSUME, LATENCY, STEADY, END_TO_END = (
    "produce", "consume", "produce latency", "latency at 1,000 a second", "end-to-end latency",
)  # fmt: skip
STALL: Final = "stall"


@dataclass(frozen=True, slots=True)
class Volume:
    rounds: int
    warm_up_messages: int
    messages: dict[int, int]
    """by record size"""
    latency_messages: int
    steady_s: float
    observed_s: float
    """after a fault: longer than the nine seconds after which Kafka takes a silent node for dead"""
    kills: int
    """of each kind in a turn"""
    growth: dict[str, tuple[int, ...]]
    """numbers of partitions, by cluster"""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to a node while a producer writes to a partition of three replicas."""

    title: str
    hits_leader: bool
    strike: Callable[[Cluster, int], None]
    mend: Callable[[Cluster, int], None]
    duration_s: float | None = None
    """none: as long as the volume says"""


def _resume(cluster: Cluster, node: int) -> None:
    cluster.nodes[node].resume()


def _pause(cluster: Cluster, node: int) -> None:
    cluster.nodes[node].pause()


def _stop(cluster: Cluster, node: int) -> None:
    cluster.nodes[node].stop()


FAULTS: Final = (
    Fault("replica killed", False, Cluster.kill, Cluster.restart),
    Fault("leader killed", True, Cluster.kill, Cluster.restart),
    Fault("replica paused for 5 s", False, _pause, _resume, PAUSE_S),
    Fault("leader paused for 5 s", True, _pause, _resume, PAUSE_S),
    Fault("leader stopped cleanly", True, _stop, Cluster.restart),
)


def warm_up(cluster: Cluster, volume: Volume) -> None:
    """Both are measured warm: code compiled, pages allocated."""
    create_topic(cluster, "warm", 12)
    for size_bytes in SIZES_BYTES:
        load.produce(cluster.bootstrap, "warm", volume.warm_up_messages, size_bytes)
    load.consume(cluster.bootstrap, "warm", 12, volume.warm_up_messages)
    load.latency(cluster.bootstrap, "warm", volume.latency_messages // 2, LATENCY_SIZE_BYTES)
    delete_topic(cluster, "warm")


def throughput(cluster: Cluster, volume: Volume, say: Say) -> Figures:
    figures: Figures = {}
    for size_bytes in SIZES_BYTES:
        for partitions in PARTITION_COUNTS:
            size = "1 KiB" if size_bytes == 1024 else f"{size_bytes} B"
            case = f"{size}, {partitions} partition{'s' if partitions > 1 else ''}"
            topic, messages = f"load-{size_bytes}-{partitions}", volume.messages[size_bytes]
            create_topic(cluster, topic, partitions)
            say(f"{PRODUCE} {case}")
            with cpu_used(cluster) as cpu:
                produced = load.produce(cluster.bootstrap, topic, messages, size_bytes)
            figures[f"{PRODUCE} {case}"] = produced.megabytes_per_s
            figures[f"CPU, {PRODUCE} {case}"] = cpu() / (produced.payload_bytes / 1e9)
            say(f"{CONSUME} {case}")
            with cpu_used(cluster) as cpu:
                consumed = load.consume(cluster.bootstrap, topic, partitions, messages)
            figures[f"{CONSUME} {case}"] = consumed.megabytes_per_s
            figures[f"CPU, {CONSUME} {case}"] = cpu() / (consumed.payload_bytes / 1e9)
            delete_topic(cluster, topic)
    figures["memory, all nodes"] = (sum(cluster.resident_bytes().values()) + cluster.resident_bytes_beside()) / 1e6
    return figures


def latency(cluster: Cluster, volume: Volume, say: Say) -> Figures:
    create_topic(cluster, "latency", 1)
    say(LATENCY)
    produced = load.latency(cluster.bootstrap, "latency", volume.latency_messages, LATENCY_SIZE_BYTES)
    say(STEADY)
    with steady(cluster.bootstrap, "latency", LATENCY_SIZE_BYTES) as producer:
        time.sleep(volume.steady_s)
        kept = producer.finish()
    say(END_TO_END)
    arrived = load.end_to_end(cluster.bootstrap, "latency", volume.latency_messages, LATENCY_SIZE_BYTES)
    return {
        f"{LATENCY} p50": produced.p50_ms,
        f"{LATENCY} p99": produced.p99_ms,
        f"{STEADY} p50": kept.p50_ms,
        f"{STEADY} p99": kept.p99_ms,
        f"{END_TO_END} p50": arrived.p50_ms,
        f"{END_TO_END} p99": arrived.p99_ms,
    }


def stalls(cluster: Cluster, volume: Volume, say: Say) -> dict[str, list[float]]:
    """Seconds without an acknowledgement, by what caused them. After each fault the producer's records must all be
    there, once, or there is no figure."""
    found: dict[str, list[float]] = {}
    for number in range(volume.kills):
        for fault in FAULTS:
            say(f"{fault.title}, {number + 1} of {volume.kills}")
            topic = f"fault-{number}-{FAULTS.index(fault)}"
            create_topic(cluster, topic, 1)
            hit_s, back_s = _strike(cluster, volume, fault, topic)
            found.setdefault(f"{STALL}, {fault.title}", []).append(hit_s)
            found.setdefault(f"{STALL}, node is back: {fault.title}", []).append(back_s)
            delete_topic(cluster, topic)
    return found


def _strike(cluster: Cluster, volume: Volume, fault: Fault, topic: str) -> tuple[float, float]:
    """The longest stall from the fault until it is mended, and from then until all replicas are in sync again."""
    with steady(cluster.bootstrap, topic, LATENCY_SIZE_BYTES) as producer:
        time.sleep(BEFORE_S)
        [partition] = _partitions(cluster, topic)
        node = partition.leader if fault.hits_leader else next(n for n in partition.replicas if n != partition.leader)
        struck_s = time.monotonic()
        fault.strike(cluster, node)
        time.sleep(max(struck_s + (fault.duration_s or volume.observed_s) - time.monotonic(), 0))
        mended_s = time.monotonic()
        fault.mend(cluster, node)
        wait_until_in_sync(cluster, topic)
        time.sleep(AFTERWARDS_S)
        ended_s = time.monotonic()
        seen = producer.finish()
    _must_all_be_there(cluster, topic, seen)
    # Where writes stand still until the fault is mended, the whole stall belongs to the fault.
    open_gaps = [end for start, end in seen.gaps if start < mended_s < end]
    turned_s = max([mended_s, *open_gaps])
    return seen.stall_s(struck_s, turned_s), seen.stall_s(turned_s, ended_s)


def _must_all_be_there(cluster: Cluster, topic: str, seen: Seen) -> None:
    """Acknowledged records are there once; the fate of refused ones is not known, so there must be none."""
    if seen.refused:
        raise RuntimeError(f"{cluster.name}: {seen.refused} of {seen.sent} records were refused")
    found = load.ask("count", bootstrap=cluster.bootstrap, topic=topic, partitions=1, messages=seen.sent)
    if found["messages"] != seen.sent:
        raise RuntimeError(f"{cluster.name}: of {seen.sent} acknowledged records {found['messages']} are there")


def start(cluster: Cluster) -> None:
    """All nodes know of each other."""
    cluster.start()
    admin, deadline_s = _admin(cluster), time.monotonic() + IN_SYNC_TIMEOUT_S
    while len(admin.list_topics(timeout=ADMIN_TIMEOUT_S).brokers) < len(cluster.nodes):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{cluster.name}: the nodes do not find each other:\n{cluster.output_tails()}")
        time.sleep(0.1)


def wait_until_in_sync(cluster: Cluster, topic: str, timeout_s: float = IN_SYNC_TIMEOUT_S) -> None:
    """To look costs the cluster more the more partitions there are, so that is done a fifth of the time at most."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        asked_s = time.monotonic()
        found = _partitions(cluster, topic)
        if found and all(len(partition.isrs) == REPLICAS and partition.leader >= 0 for partition in found):
            return
        now_s = time.monotonic()
        if now_s > deadline_s:
            raise TimeoutError(
                f"{cluster.name}: {topic} has not {REPLICAS} replicas in sync:\n{cluster.output_tails()}"
            )
        time.sleep(max(LOOK_EVERY_S, 4 * (now_s - asked_s)))


def create_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    """Created, and all replicas of every partition are in sync."""
    config = {"min.insync.replicas": MIN_INSYNC}
    options = {"operation_timeout": ADMIN_TIMEOUT_S, "request_timeout": ADMIN_TIMEOUT_S}
    new = NewTopic(topic, partitions, REPLICAS, config=config)
    admin = _admin(cluster)
    admin.create_topics([new], **options)[topic].result(ADMIN_TIMEOUT_S)
    wait_until_in_sync(cluster, topic, ADMIN_TIMEOUT_S)


def delete_topic(cluster: Cluster, topic: str) -> None:
    admin = _admin(cluster)
    admin.delete_topics([topic], request_timeout=ADMIN_TIMEOUT_S)[topic].result(ADMIN_TIMEOUT_S)


@contextmanager
def cpu_used(cluster: Cluster) -> Iterator[Callable[[], float]]:
    """CPU-seconds that everything in the cluster used inside the block."""
    before_s, used_s = cluster.cpu_seconds(), 0.0

    def used() -> float:
        return used_s

    yield used
    used_s = cluster.cpu_seconds() - before_s


def _partitions(cluster: Cluster, topic: str) -> list[PartitionMetadata]:
    return list(_admin(cluster).list_topics(topic, timeout=ADMIN_TIMEOUT_S).topics[topic].partitions.values())


def _admin(cluster: Cluster) -> AdminClient:
    """A new one each time: it knows nothing of nodes that were."""
    timeout_ms = int(ADMIN_TIMEOUT_S * 1000)
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "socket.timeout.ms": timeout_ms})
