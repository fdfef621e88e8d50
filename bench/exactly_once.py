"""Kill the broker and the programs of a pipeline at random moments, and count that each input had its effect once.

Two programs read four partitions as one group, write one record for each that they read, and commit what they wrote and
how far they read as one transaction. Both they and the broker are killed with SIGKILL, at moments drawn from a seed and
spread over the whole run, and started again: the broker on the same data and port, a program under the same name. When
all input is committed, a read_committed reader compares:

- each output partition holds the numbers of its input partition, 0, 1, 2, …, without a gap, a repeat or an inversion;
- the group is exactly at the end of its input."""

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from bench.crash import Killable
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

INPUT, OUTPUT = "exactly-once-input", "exactly-once-output"
GROUP = "exactly-once"
PARTITIONS = 4
PROGRAMS = 2
MAX_IN_TRANSACTION = 200
MAX_DELAY_S = 0.05
"""After the moment was reached at which something is to be killed."""
CALL_TIMEOUT_S = 10.0
PROGRESS_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
SESSION_TIMEOUT_MS = 6_000
TRANSACTION_TIMEOUT_MS = 60_000
KILLED_AGAIN = 0.2
"""How often a broker that has just come back is killed at once, while it ends what was open."""
QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "log_level": 0,
    "metadata.recovery.strategy": "none",
}
"""Find the broker again at once, and do not report each lost connection: they are the point here. The recovery that is
the default forgets the only broker when it is down, and with it the group's coordinator for which
send_offsets_to_transaction then waits forever (librdkafka #5511)."""


@dataclass(slots=True)
class Verdict:
    inputs: int = 0
    outputs: int = 0
    given_up: int = 0
    """Outputs of transactions that were aborted: work that a kill undid."""
    broker_kills: int = 0
    program_kills: int = 0
    program_failures: int = 0
    """Programs that gave up by themselves, and were started again."""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.inputs} inputs, {self.outputs} outputs, {self.given_up} given up; "
            f"{self.broker_kills} kills of the broker, {self.program_kills} of a program, "
            f"{self.program_failures} programs gave up; {self.seconds:.1f} s; {len(self.violations)} violations"
        )


def run(
    broker: Killable,
    inputs: int,
    broker_kills: int,
    program_kills: int,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
    replicas: int = 1,
) -> Verdict:
    """The broker is running before and after. It may be a cluster that loses a node with each kill."""
    verdict = Verdict(inputs=inputs)
    _create_topics(broker.bootstrap, replicas)
    write_input(broker.bootstrap, inputs)
    started_s = time.monotonic()
    with Programs(broker.bootstrap, verdict) as programs:
        for moment, victim in _schedule(inputs, broker_kills, program_kills, seed):
            programs.wait_for(moment, progress)
            time.sleep(victim.delay_s)
            if victim.program is None:
                broker.kill()
                if victim.is_killed_again:
                    broker.start()
                    broker.kill()
                    verdict.broker_kills += 1
                broker.start()
                verdict.broker_kills += 1
            else:
                programs.kill(victim.program)
                verdict.program_kills += 1
        programs.wait_for(inputs, progress)
        verdict.seconds = time.monotonic() - started_s
    _compare(verdict, broker.bootstrap)
    return verdict


@dataclass(frozen=True, slots=True)
class Victim:
    program: int | None
    """None is the broker."""
    delay_s: float
    is_killed_again: bool


def _schedule(inputs: int, broker_kills: int, program_kills: int, seed: int) -> list[tuple[int, Victim]]:
    """Who is killed when so many inputs are committed. Each kill has a part of the run of its own."""
    dice = random.Random(seed)
    victims: list[int | None] = [None] * broker_kills + [dice.randrange(PROGRAMS) for _ in range(program_kills)]
    dice.shuffle(victims)
    part = inputs / (len(victims) + 1)
    return [
        (int((number + dice.random()) * part), Victim(who, dice.uniform(0, MAX_DELAY_S), dice.random() < KILLED_AGAIN))
        for number, who in enumerate(victims)
    ]


class Programs:
    """The processes of the pipeline. A process that ends is started again, as a service manager would."""

    def __init__(self, bootstrap: str, verdict: Verdict) -> None:
        self._bootstrap = bootstrap
        self._verdict = verdict
        self._processes = [self._start(number) for number in range(PROGRAMS)]
        self._asking = _reader(bootstrap, "read_uncommitted")

    def __enter__(self) -> "Programs":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._asking.close()

    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start(number)

    def wait_for(self, committed: int, progress: Callable[[int], None]) -> None:
        """Until the group has committed so many inputs."""
        last, moved_s = -1, time.monotonic()
        while (done := self._committed()) < committed:
            self._revive()
            if done > last:
                last, moved_s = done, time.monotonic()
                progress(done)
            assert time.monotonic() - moved_s < PROGRESS_TIMEOUT_S, f"{done} of {committed}, and no progress"
            time.sleep(0.005)
        progress(done)

    def _committed(self) -> int:
        try:
            return sum(_committed(self._asking).values())
        except KafkaException:
            return -1  # the broker is just coming back

    def _revive(self) -> None:
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self._verdict.program_failures += 1
                self._processes[number] = self._start(number)

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "bench.exactly_once", "--transform-at", self._bootstrap]
        root = Path(__file__).resolve().parent.parent
        return subprocess.Popen([*command, "--program", str(number)], cwd=root)


def transform(bootstrap: str, number: int) -> None:
    """The program: consume, transform, produce, until SIGTERM. A failure that it cannot undo ends it."""
    stopping = False
    fatal: list[KafkaError] = []

    def stop(received: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    def note(error: KafkaError) -> None:
        """`consume` does not always tell: a member that was fenced would wait in it for ever."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            fatal.append(error)

    signal.signal(signal.SIGTERM, stop)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "group.instance.id": f"program-{number}",  # a process that was killed gets its partitions back at once
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "error_cb": note,
            **QUICK,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"exactly-once-{number}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 1,
            **QUICK,
        }
    )
    _insisting(lambda: producer.init_transactions(CALL_TIMEOUT_S))
    consumer.subscribe([INPUT])
    try:
        while not stopping:
            if messages := _consumed(consumer):
                _transform_once(consumer, producer, messages)
            if fatal:
                raise KafkaException(fatal[0])
    finally:
        consumer.close()


def _consumed(consumer: Consumer) -> list[Message]:
    found = []
    for message in consumer.consume(MAX_IN_TRANSACTION, 0.1):
        if (error := message.error()) is None:
            found.append(message)
        elif error.fatal():
            raise KafkaException(error)
    return found


def _transform_once(consumer: Consumer, producer: Producer, messages: list[Message]) -> None:
    producer.begin_transaction()
    try:
        positions: dict[int, int] = {}
        for message in messages:
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            producer.produce(OUTPUT, message.value(), partition=partition)
            positions[partition] = offset + 1
        offsets = [TopicPartition(INPUT, partition, offset) for partition, offset in positions.items()]
        group = consumer.consumer_group_metadata()
        _insisting(lambda: producer.send_offsets_to_transaction(offsets, group, CALL_TIMEOUT_S))
        _insisting(lambda: producer.commit_transaction(CALL_TIMEOUT_S))
    except KafkaException as failed:
        if not failed.args[0].txn_requires_abort():
            raise
        _insisting(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
        _rewind(consumer)


def _insisting(call: Callable[[], Any]) -> None:
    """A call that may be repeated is, for as long as it takes the broker to come back."""
    deadline_s = time.monotonic() + PROGRESS_TIMEOUT_S
    while True:
        try:
            call()
            return
        except KafkaException as failed:
            if not failed.args[0].retriable() or time.monotonic() > deadline_s:
                raise


def _rewind(consumer: Consumer) -> None:
    """Back to what is committed: what was read since was given up with the transaction."""
    for partition in consumer.committed(consumer.assignment(), CALL_TIMEOUT_S):
        if partition.error is not None:
            raise KafkaException(partition.error)
        if partition.offset < 0:
            partition.offset = OFFSET_BEGINNING
        consumer.seek(partition)


def write_input(bootstrap: str, inputs: int) -> None:
    """Numbers 0, 1, 2, … in each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0})
    for number in range(inputs):
        while True:
            try:
                producer.produce(INPUT, b"%d" % (number // PARTITIONS), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(READ_TIMEOUT_S) == 0, "all input is written before the first program starts"


def _compare(verdict: Verdict, bootstrap: str) -> None:
    outputs = read_output(bootstrap, "read_committed")
    verdict.outputs = sum(map(len, outputs.values()))
    verdict.given_up = sum(map(len, read_output(bootstrap, "read_uncommitted").values())) - verdict.outputs
    for partition in range(PARTITIONS):
        expected = len(range(partition, verdict.inputs, PARTITIONS))
        verdict.violations += list(_violations(partition, outputs[partition], expected))
    reader = _reader(bootstrap, "read_committed")
    for partition, offset in _committed(reader).items():
        if offset != (end := len(range(partition, verdict.inputs, PARTITIONS))):
            verdict.violations.append(f"partition {partition}: the group is at {offset}, its input ends at {end}")
    reader.close()


def _violations(partition: int, numbers: list[int], expected: int) -> Iterator[str]:
    seen: dict[int, int] = {}
    for position, number in enumerate(numbers):
        if number in seen:
            yield f"partition {partition}: input {number} was counted at positions {seen[number]} and {position}"
        elif position and number < numbers[position - 1]:
            yield f"partition {partition}: input {number} came after {numbers[position - 1]}"
        seen[number] = position
    if missing := [number for number in range(expected) if number not in seen]:
        yield f"partition {partition}: {len(missing)} inputs were never counted, the first is {missing[0]}"
    if invented := [number for number in seen if number >= expected]:
        yield f"partition {partition}: {len(invented)} outputs have no input, the first is {invented[0]}"


def read_output(bootstrap: str, isolation: str) -> dict[int, list[int]]:
    """The numbers of each output partition, in its order, up to where it ends now."""
    consumer = _reader(bootstrap, isolation, {"enable.partition.eof": True})
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()
    consumer.assign([TopicPartition(OUTPUT, partition, OFFSET_BEGINNING) for partition in found])
    deadline_s = time.monotonic() + READ_TIMEOUT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline_s, f"partitions {sorted(ended)} came to their ends"
        for message in consumer.consume(10_000, 0.5):
            partition, value = message.partition(), message.value()
            assert partition is not None
            if message.error() is not None:
                ended.add(partition)  # the end: all other errors are not about a partition
            else:
                assert isinstance(value, bytes)
                found[partition].append(int(value))
    consumer.close()
    return found


def _committed(consumer: Consumer) -> dict[int, int]:
    """How far the group is in each partition of its input."""
    asked = [TopicPartition(INPUT, partition) for partition in range(PARTITIONS)]
    found = consumer.committed(asked, CALL_TIMEOUT_S)
    return {partition.partition: max(partition.offset, 0) for partition in found}


def _reader(bootstrap: str, isolation: str, more: dict[str, Any] | None = None) -> Consumer:
    """One that asks and reads, and never joins the group."""
    options = {"bootstrap.servers": bootstrap, "group.id": GROUP, "isolation.level": isolation}
    return Consumer({**options, "enable.auto.commit": False, "fetch.wait.max.ms": 50, **QUICK, **(more or {})})


def _create_topics(bootstrap: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, replicas) for name in (INPUT, OUTPUT)]).values():
        created.result(30)


@contextlib.contextmanager
def _started(name: str, durability: str) -> Iterator[Killable]:
    if name == "kafka":
        from bench.kafka import KafkaServer

        with KafkaServer() as kafka:
            yield kafka
    else:
        from headwater.testing import Broker

        with Broker(subprocess=True, durability=durability) as broker:
            yield broker


def main() -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--inputs", type=int, default=200_000)
    options.add_argument("--broker-kills", type=int, default=20)
    options.add_argument("--program-kills", type=int, default=20)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options.add_argument("--durability", choices=("sync", "os"), default="sync")
    options.add_argument("--broker", choices=("headwater", "kafka"), default="headwater")
    options.add_argument("--transform-at", help=argparse.SUPPRESS)
    options.add_argument("--program", type=int, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.transform_at:
        try:
            transform(chosen.transform_at, chosen.program)
        except KafkaException as failed:
            sys.exit(f"program {chosen.program} gives up: {failed}")
        return

    print(f"seed {chosen.seed}", flush=True)
    columns = (TextColumn("inputs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with _started(chosen.broker, chosen.durability) as broker, Progress(*columns) as progress:
        task = progress.add_task("inputs", total=chosen.inputs)
        verdict = run(
            broker,
            chosen.inputs,
            chosen.broker_kills,
            chosen.program_kills,
            chosen.seed,
            progress=lambda done: progress.update(task, completed=done),
        )
    judged = chosen.broker if chosen.broker == "kafka" else f"{chosen.broker} {chosen.durability}"
    print(f"seed {chosen.seed}, {judged}: {verdict}")
    for violation in verdict.violations[:20]:
        print(f"  {violation}")
    sys.exit(1 if verdict.violations else 0)


if __name__ == "__main__":
    main()
