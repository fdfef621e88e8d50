"""Kill a broker under load, start it again, and check that nothing it acknowledged was lost, doubled or moved.

A producer in a process of its own writes numbered records with idempotence on and notes each acknowledgement in a
file: `partition number offset`. The broker is killed at random moments and restarted on the same data and port; the
producer never stops. At the end the whole log is read and compared:

- every acknowledged record is at the offset that was acknowledged;
- the numbers of a partition are 0, 1, 2, … without a gap, a repeat or an inversion;
- a group's last acknowledged commit was there after each restart."""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "crash"
GROUP = "crash-group"
PARTITIONS = 4
VALUE_PADDING = b"." * 100
RECORDS_PER_SECOND = 20_000
MAX_IN_QUEUE = 4_000
LOAD_MIN_S, LOAD_MAX_S = 0.02, 0.2
KILLED_AGAIN = 0.25
"""How often a broker that has just come back is killed at once, while its clients find it again."""
PROGRESS_TIMEOUT_S = 30.0
FLUSH_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 60.0
QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10, "log_level": 0}
"""Find the broker again at once, and do not report each lost connection: they are the point here."""


class Killable(Protocol):
    """A broker process that keeps its port and its data from one start to the next."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> object: ...


@dataclass(slots=True)
class Verdict:
    rounds: int = 0
    acknowledged: int = 0
    stored: int = 0
    restart_s: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        slowest_s = max(self.restart_s, default=0.0)
        return (
            f"{self.rounds} kills, {self.acknowledged} acknowledged, {self.stored} stored, "
            f"slowest restart {slowest_s:.2f} s, {len(self.violations)} violations"
        )


def run(
    broker: Killable, rounds: int, seed: int, config: dict[str, str], progress: Callable[[int], None] = lambda _: None
) -> Verdict:
    """Kill and restart `rounds` times, then compare. The broker is running before and after."""
    dice, verdict = random.Random(seed), Verdict()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUICK})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)])[TOPIC].result(30)
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        acknowledgements = Path(folder) / "acknowledged"
        acknowledgements.touch()
        command = [sys.executable, "-m", "bench.crash", "--produce-to", broker.bootstrap]
        producer = subprocess.Popen([*command, "--acknowledged", str(acknowledgements)], cwd=_root())
        try:
            for number in range(rounds):
                _wait_for_growth(acknowledgements, producer)
                commit(broker.bootstrap, number)
                time.sleep(dice.uniform(LOAD_MIN_S, LOAD_MAX_S))
                broker.kill()
                if dice.random() < KILLED_AGAIN:
                    broker.start()
                    broker.kill()
                started_s = time.monotonic()
                broker.start()
                verdict.restart_s.append(time.monotonic() - started_s)
                if (found := committed(broker.bootstrap)) != number:
                    verdict.violations.append(f"commit of {number} in round {number} came back as {found}")
                verdict.rounds += 1
                progress(number + 1)
            _wait_for_growth(acknowledgements, producer)
        finally:
            producer.send_signal(signal.SIGTERM)
            ended = producer.wait(FLUSH_TIMEOUT_S + 10)
        if ended != 0:
            verdict.violations.append(f"the producer ended with {ended}: a record failed although the broker came back")
        _compare(verdict, read_acknowledgements(acknowledgements), read_log(broker.bootstrap))
    return verdict


def commit(bootstrap: str, offset: int) -> None:
    partitions = [TopicPartition(TOPIC, 0, offset)]
    _until_answered(bootstrap, lambda consumer: consumer.commit(offsets=partitions, asynchronous=False))


def committed(bootstrap: str) -> int:
    partitions = [TopicPartition(TOPIC, 0)]
    found = _until_answered(bootstrap, lambda consumer: consumer.committed(partitions, timeout=PROGRESS_TIMEOUT_S))
    offset: int = found[0].offset
    return offset


def read_acknowledgements(path: Path) -> dict[tuple[int, int], int]:
    """Offset by (partition, number)."""
    found: dict[tuple[int, int], int] = {}
    for line in path.read_text().splitlines():
        partition, number, offset = map(int, line.split())
        found[partition, number] = offset
    return found


def read_log(bootstrap: str) -> dict[int, list[tuple[int, int]]]:
    """(offset, number) of every record of each partition, as a consumer sees them."""
    consumer = _consumer(bootstrap)
    logs: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
    try:
        ends = {
            partition: consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), 30)[1] for partition in logs
        }
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in logs])
        deadline_s = time.monotonic() + READ_TIMEOUT_S
        while any(len(logs[partition]) == 0 or logs[partition][-1][0] < end - 1 for partition, end in ends.items()):
            if time.monotonic() > deadline_s:
                break
            for message in consumer.consume(10_000, 0.5):
                assert message.error() is None, message.error()
                key, partition, offset = message.key(), message.partition(), message.offset()
                assert isinstance(key, bytes) and partition is not None and offset is not None
                logs[partition].append((offset, int(key)))
    finally:
        consumer.close()
    return logs


def _compare(
    verdict: Verdict, acknowledged: dict[tuple[int, int], int], logs: dict[int, list[tuple[int, int]]]
) -> None:
    verdict.acknowledged, verdict.stored = len(acknowledged), sum(map(len, logs.values()))
    for partition, log in logs.items():
        numbers = [number for _, number in log]
        if numbers != list(range(len(numbers))):
            wrong = next(index for index, number in enumerate(numbers) if index != number)
            verdict.violations.append(f"partition {partition}: number {numbers[wrong]} at position {wrong}")
    at = {(partition, number): offset for partition, log in logs.items() for offset, number in log}
    for (partition, number), offset in acknowledged.items():
        if (found := at.get((partition, number))) != offset:
            verdict.violations.append(f"partition {partition}: {number} acknowledged at {offset}, found at {found}")


def _until_answered(bootstrap: str, question: Callable[[Consumer], Any]) -> Any:
    """Ask until it is answered: a coordinator may still be loading after the last kill."""
    consumer = _consumer(bootstrap)
    deadline_s = time.monotonic() + PROGRESS_TIMEOUT_S
    try:
        while True:
            try:
                return question(consumer)
            except KafkaException:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.01)
    finally:
        consumer.close()


def _wait_for_growth(acknowledgements: Path, producer: "subprocess.Popen[bytes]") -> None:
    """Until something more is acknowledged: the producer has found the broker again."""
    before = acknowledgements.stat().st_size
    deadline_s = time.monotonic() + PROGRESS_TIMEOUT_S
    while acknowledgements.stat().st_size <= before:
        assert producer.poll() is None, "the producer runs until it is told to stop"
        assert time.monotonic() < deadline_s, f"no acknowledgement within {PROGRESS_TIMEOUT_S} s of a restart"
        time.sleep(0.005)


def produce(bootstrap: str, acknowledged: Path) -> int:
    """Produce until SIGTERM, then deliver what is queued; the exit code says whether all of it was."""
    stopping, failures = False, 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    with open(acknowledged, "w", buffering=1) as notes:

        def delivered(error: KafkaError | None, message: Message) -> None:
            nonlocal failures
            key = message.key()
            if error is not None or not isinstance(key, bytes):
                failures += 1
                print(f"record {key!r} was not delivered: {error}", file=sys.stderr)
                return
            notes.write(f"{message.partition()} {key.decode()} {message.offset()}\n")

        options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "queue.buffering.max.messages": MAX_IN_QUEUE,
            "message.timeout.ms": 120_000,
            **QUICK,
        }
        producer = Producer(options)
        numbers, started_s = [0] * PARTITIONS, time.monotonic()
        while not stopping:
            due = int((time.monotonic() - started_s) * RECORDS_PER_SECOND)
            if sum(numbers) >= due or len(producer) >= MAX_IN_QUEUE - 1:
                producer.poll(0.002)
                continue
            partition = sum(numbers) % PARTITIONS
            key = b"%d" % numbers[partition]
            producer.produce(TOPIC, VALUE_PADDING, key, partition, on_delivery=delivered)
            numbers[partition] += 1
            producer.poll(0)
        left = producer.flush(FLUSH_TIMEOUT_S)
    return 1 if failures or left else 0


def _consumer(bootstrap: str) -> Consumer:
    options = {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    return Consumer({**options, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50, **QUICK})


def _root() -> Path:
    return Path(__file__).resolve().parent.parent


def main() -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from headwater.testing import Broker

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=200)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options.add_argument("--durability", choices=("sync", "os"), default="sync")
    options.add_argument("--produce-to", help=argparse.SUPPRESS)
    options.add_argument("--acknowledged", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.produce_to:
        sys.exit(produce(chosen.produce_to, chosen.acknowledged))

    columns = (TextColumn("kills"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Broker(subprocess=True, durability=chosen.durability) as broker, Progress(*columns) as progress:
        task = progress.add_task("kills", total=chosen.rounds)
        verdict = run(
            broker, chosen.rounds, chosen.seed, {}, progress=lambda done: progress.update(task, completed=done)
        )
    print(f"seed {chosen.seed}, durability {chosen.durability}: {verdict}")
    for violation in verdict.violations[:20]:
        print(f"  {violation}")
    sys.exit(1 if verdict.violations else 0)


if __name__ == "__main__":
    main()
