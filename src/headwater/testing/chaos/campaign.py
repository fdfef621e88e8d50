"""One run: a cluster, its clients, faults, and at the end the verdict on everything that the clients saw.

- Producers of three libraries write with idempotence and acks=all; every call and every answer is noted.
- Readers of the three follow all partitions, and a group of two reads and commits.
- When the faults are over: everything must be acknowledged, every partition must have all its replicas again, and the
  whole log is read once more. The checkers in `testing/oracles` judge the history: nothing lost, doubled or
  reordered, and no offset that changed its content. The replicas of sealed segments are compared byte for byte.
"""

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.model.ids import NodeId
from headwater.testing.chaos import aiokafka_clients, confluent_clients, kafka_python_clients, pulse
from headwater.testing.chaos.arsenal import Arsenal
from headwater.testing.chaos.confluent_clients import GROUP, QUICK
from headwater.testing.chaos.disks import Disk, NoDisk, mounted
from headwater.testing.chaos.nemesis import Nemesis
from headwater.testing.chaos.pulse import Pulse
from headwater.testing.chaos.replicas import compare_replicas
from headwater.testing.chaos.report import Report
from headwater.testing.chaos.stage import FLUSH_TIMEOUT_S, Partition, Stage
from headwater.testing.chaos.way_in import WayIn
from headwater.testing.fakes.network import Network, NoNetwork
from headwater.testing.oracles.checkers import Recorder, check
from headwater.testing.processes.cluster import ProcessCluster

T = TypeVar("T")
NODES: Final = 3
ETCD_MEMBERS: Final = 3
TOPICS: Final = {"flushed": "sync", "written": "os"}
"""And what an acknowledgement means in each."""
PARTITIONS: Final = 2
TOPIC_CONFIG: Final = {"min.insync.replicas": "2", "segment.bytes": str(1024 * 1024)}
DISK_BYTES: Final = 1536 * 1024 * 1024
SESSION_TIMEOUT_S: Final = 3.0
WHOLE_TIMEOUT_S: Final = 60.0
READ_TIMEOUT_S: Final = 120.0
CREATE_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    directory: Path
    """For logs, and for the history: `history.jsonl`."""
    faults: int
    seed: int
    pace: float = 1.0
    """How long faults last, of what they last by default."""
    records_per_s: float = 100.0
    is_secure: bool = False
    """TLS everywhere, logins and access control."""


@dataclass(frozen=True, slots=True)
class _Scene:
    """The parts of one run."""

    cluster: ProcessCluster
    recorder: Recorder
    stage: Stage
    heart: Pulse
    arsenal: Arsenal
    nemesis: Nemesis


def run(options: Options, progress: Callable[[int], None] = lambda _: None) -> Report:
    """Must be called from the main thread."""
    report, started_s = Report(options.seed), time.monotonic()
    for library in ("aiokafka", "kafka"):  # they report each lost connection, which is the point here
        logging.getLogger(library).setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as held:
        scene = _set_up(held, options, report)
        writers, readers = _start_clients(scene)
        try:
            _wait_for_the_first(scene.heart)
            scene.nemesis.run(options.faults, progress)
            _wait_until_whole(scene.cluster, scene.nemesis, report)
        finally:
            _stop_clients(scene.stage, writers, readers)
        _judge(report, scene, [*writers, *readers])
    _measure_stalls(report, scene.heart)
    report.seconds = time.monotonic() - started_s
    return report


def _set_up(held: contextlib.ExitStack, options: Options, report: Report) -> _Scene:
    network = _network(held, report)
    disks = _disks(held, options.directory, report)
    data_dirs = {node: disk.data for node, disk in disks.items()}
    cluster = held.enter_context(
        ProcessCluster(
            options.directory, nodes=NODES, etcd_members=ETCD_MEMBERS, network=network, data_dirs=data_dirs,
            secure=options.is_secure,
            session_timeout_s=SESSION_TIMEOUT_S, auto_create_topics=False, offsets_topic_partitions=2,
        )
    )  # fmt: skip
    recorder = held.enter_context(Recorder(options.directory / "history.jsonl"))
    log = held.enter_context((options.directory / "faults.log").open("w", buffering=1))

    def note(sentence: str) -> None:
        log.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {sentence}\n")

    partitions = tuple((topic, index) for topic in TOPICS for index in range(PARTITIONS))
    pulses = tuple((pulse.TOPIC, index) for index in range(pulse.PARTITIONS))
    stage = Stage(
        WayIn(cluster.bootstrap, cluster.security), recorder, partitions, partitions + pulses, options.records_per_s
    )
    _create_topics(stage.way_in)
    dice, heart = random.Random(options.seed), Pulse()
    arsenal = Arsenal(cluster, network, disks, dice, options.pace)
    return _Scene(cluster, recorder, stage, heart, arsenal, Nemesis(cluster, arsenal, heart, dice, note))


def _start_clients(scene: _Scene) -> tuple[list[threading.Thread], list[threading.Thread]]:
    """The threads that write, and the threads that read."""
    stage = scene.stage
    writers = [stage.start(scene.heart.produce, "pulse")]
    readers = [stage.start(confluent_clients.take_part, f"member-{number}") for number in (1, 2)]
    for library in (confluent_clients, aiokafka_clients, kafka_python_clients):
        name = library.__name__.rpartition(".")[2].removesuffix("_clients")
        writers.append(stage.start(library.produce, f"{name}-producer"))
        readers.append(stage.start(library.read, f"{name}-reader"))
    return writers, readers


def _stop_clients(stage: Stage, writers: list[threading.Thread], readers: list[threading.Thread]) -> None:
    stage.stop_producing.set()
    for thread in writers:
        thread.join(FLUSH_TIMEOUT_S + 30)
    stage.stop_reading.set()
    for thread in readers:
        thread.join(30)


def _judge(report: Report, scene: _Scene, clients: list[threading.Thread]) -> None:
    """When all faults are over: read everything once more, compare replicas, and check the history."""
    cluster, recorder, stage, nemesis = scene.cluster, scene.recorder, scene.stage, scene.nemesis
    report.faults, report.deaths = nemesis.happened, nemesis.deaths
    report.acknowledged, report.troubles = stage.acknowledged, stage.troubles
    report.violations += nemesis.stalls + scene.arsenal.complaints + stage.failures
    report.violations += [f"{thread.name} hangs" for thread in clients if thread.is_alive()]
    report.violations += _tracebacks(cluster)
    try:
        _note_the_end(stage.way_in, recorder, stage.watched)
    except KafkaException as error:
        report.violations.append(f"when all faults were over, not everything could be read: {error}")
    report.replicas = compare_replicas(cluster)
    report.violations += report.replicas.differences
    report.violations += [str(violation) for violation in check(recorder.history())]


def _measure_stalls(report: Report, heart: Pulse) -> None:
    for fault in report.faults:
        if fault.is_alone:
            gap_s = heart.longest_gap_s(fault.began_s, fault.recovered_s, fault.partition)
            report.stall_s.setdefault(fault.kind, []).append(gap_s)


def _network(held: contextlib.ExitStack, report: Report) -> Network | None:
    try:
        return held.enter_context(Network.create(ProcessCluster.hosts(NODES, ETCD_MEMBERS)))
    except NoNetwork as error:
        report.skipped.append(f"cut links: {error}")
        return None


def _disks(held: contextlib.ExitStack, directory: Path, report: Report) -> dict[NodeId, Disk]:
    try:
        return {
            node: held.enter_context(mounted(directory / f"disk{node}", DISK_BYTES))
            for node in map(NodeId, range(1, NODES + 1))
        }
    except NoDisk as error:
        report.skipped.append(f"full disks: {error}")
        return {}


def _create_topics(way_in: WayIn) -> None:
    admin = AdminClient({**way_in.confluent, **QUICK})
    topics = [
        NewTopic(name, PARTITIONS, NODES, config={**TOPIC_CONFIG, "headwater.durability": durability})
        for name, durability in TOPICS.items()
    ] + [NewTopic(pulse.TOPIC, pulse.PARTITIONS, NODES, config=TOPIC_CONFIG)]
    for created in admin.create_topics(topics, operation_timeout=CREATE_TIMEOUT_S).values():
        created.result(CREATE_TIMEOUT_S)


def _wait_for_the_first(heart: Pulse) -> None:
    deadline_s = time.monotonic() + CREATE_TIMEOUT_S
    while not heart.silent_since():
        assert time.monotonic() < deadline_s, "a healthy cluster takes records"
        time.sleep(0.05)


def _wait_until_whole(cluster: ProcessCluster, nemesis: Nemesis, report: Report) -> None:
    """Every node is there again, and every open segment has all its replicas."""
    deadline_s = time.monotonic() + WHOLE_TIMEOUT_S
    while True:
        state = cluster.state()
        short = [f"{topic}-{index}" for topic, index in state.heads if len(state.replicas(topic, index)) < NODES]
        missing = set(cluster.nodes) - state.alive
        if state.heads and not short and not missing:
            return
        if time.monotonic() > deadline_s:
            report.violations.append(
                f"{WHOLE_TIMEOUT_S:.0f} s after the last fault nodes {sorted(missing)} are not there, "
                f"and replicas are missing in {', '.join(short) or 'no partition'}"
            )
            return
        nemesis.look_after(0.2)


def _tracebacks(cluster: ProcessCluster) -> list[str]:
    """Unexpected exceptions: they are in the nodes' logs with their tracebacks."""
    found = []
    for node in cluster.nodes:
        lines = cluster.log_path(node).read_text(errors="replace").splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith("Traceback")]
        found += [f"node {node}, line {start}: {lines[max(start - 1, 0)][:300]}" for start in starts]
    return found


def _note_the_end(way_in: WayIn, recorder: Recorder, partitions: tuple[Partition, ...]) -> None:
    options = {**way_in.confluent, "enable.auto.commit": False, "auto.offset.reset": "error", **QUICK}
    reader = Consumer({**options, "group.id": GROUP})
    try:
        for topic, partition in partitions:
            end = _until_answered(partial(_end, reader, TopicPartition(topic, partition)))
            rows: list[tuple[int, bytes]] = []
            reader.assign([TopicPartition(topic, partition, 0)])
            deadline_s = time.monotonic() + READ_TIMEOUT_S
            while (rows[-1][0] + 1 if rows else 0) < end and time.monotonic() < deadline_s:
                for message in reader.consume(10_000, 0.5):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    rows.append((message.offset(), message.value()))
            recorder.final_read("read_committed", topic, partition, rows, end=end)
        asked = [TopicPartition(*partition) for partition in partitions]
        found = _until_answered(lambda: reader.committed(asked, 10))
        committed = {(each.topic, each.partition): each.offset for each in found}
        recorder.offsets_read("the end", GROUP, committed, is_final=True)
    finally:
        reader.close()


def _end(reader: Consumer, partition: TopicPartition) -> int:
    end: int = reader.get_watermark_offsets(partition, 5)[1]
    return end


def _until_answered(question: Callable[[], T]) -> T:
    deadline_s = time.monotonic() + READ_TIMEOUT_S
    while True:
        try:
            return question()
        except KafkaException:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)
