"""kcat: the command line client of Debian, with its older librdkafka."""

import json
import queue
import re
import subprocess
import threading
from collections.abc import Sequence
from itertools import groupby

from tests.clients.judged import (
    EVERY_CODEC,
    HEARTBEAT_INTERVAL_MS,
    MAX_REQUEST_BYTES,
    PRODUCE_TIMEOUT_S,
    READ_TIMEOUT_S,
    SESSION_TIMEOUT_MS,
    ErrorCode,
    Received,
    Record,
    Refused,
)

REFUSALS = {
    "Unknown topic or partition": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "Message size too large": ErrorCode.MESSAGE_TOO_LARGE,
    "Invalid topic": ErrorCode.INVALID_TOPIC_EXCEPTION,
    "Broker failed to validate record": ErrorCode.INVALID_RECORD,
    "Offset out of range": ErrorCode.OFFSET_OUT_OF_RANGE,
}
ASSIGNED = re.compile(r"rebalanced \(.*\): (assigned|revoked): (.*)$")
PARTITION = re.compile(r"\[(\d+)\]")


class KcatMember:
    """`kcat -G` as a child process; its rebalances are read from its standard error."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._assigned: set[int] = set()
        self._threads = [threading.Thread(target=self._read_records), threading.Thread(target=self._read_rebalances)]
        for thread in self._threads:
            thread.start()

    def poll(self, timeout_s: float) -> list[Received]:
        received: list[Received] = []
        try:
            received.append(_received(self._lines.get(timeout=timeout_s)))
            while True:
                received.append(_received(self._lines.get_nowait()))
        except queue.Empty:
            return received

    def assigned(self) -> set[int]:
        return self._assigned

    def commit(self) -> None:
        """kcat stores what it printed and commits when it ends."""

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(READ_TIMEOUT_S)
        for thread in self._threads:
            thread.join()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdout.close()
        self._process.stderr.close()

    def _read_records(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def _read_rebalances(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if change := ASSIGNED.search(line):
                partitions = {int(partition) for partition in PARTITION.findall(change[2])}
                self._assigned = partitions if change[1] == "assigned" else set()


class KcatClient:
    name = "kcat"
    abilities = frozenset({"produce", "idempotent", "read", "time", "group"})
    codecs = EVERY_CODEC

    def __init__(self, bootstrap: str) -> None:
        self._kcat = ["kcat", "-b", bootstrap, "-X", f"message.max.bytes={MAX_REQUEST_BYTES}"]
        self._reading = ["-u", "-J", "-X", "fetch.wait.max.ms=100"]

    def close(self) -> None:
        pass

    def produce(
        self, topic: str, records: Sequence[Record], acks: str = "all", codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        shared = [*self._kcat, "-P", "-t", topic, "-Z", "-K", ":", "-z", codec, "-X", f"acks={acks}"]
        shared += ["-X", f"enable.idempotence={str(idempotent).lower()}"]
        for (partition, headers), run in groupby(records, lambda record: (record.partition, record.headers)):
            command = [*shared, "-p", str(partition)]
            for name, value in headers:
                command += ["-H", f"{name}={(value or b'').decode()}"]
            lines = b"".join(_line(record) for record in run)
            _ask(command, PRODUCE_TIMEOUT_S, lines)
        return [-1] * len(records)

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Received]:
        if count == 0:
            return []
        command = [*self._kcat, "-C", *self._reading, "-t", topic, "-p", str(partition), "-o", str(offset)]
        command += ["-c", str(count), "-X", "topic.auto.offset.reset=error"]
        return [_received(line) for line in _ask(command, READ_TIMEOUT_S).splitlines()]

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        return self._query(topic, partition, -2), self._query(topic, partition, -1)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset = self._query(topic, partition, timestamp_ms)
        return offset if offset >= 0 else None

    def member(self, topic: str, group: str, strategy: str = "range", instance_id: str | None = None) -> KcatMember:
        assert instance_id is None, "kcat is judged as a dynamic member"
        command = [*self._kcat, "-G", group, *self._reading, "-X", "auto.offset.reset=earliest"]
        command += ["-X", f"heartbeat.interval.ms={HEARTBEAT_INTERVAL_MS}"]
        command += ["-X", f"session.timeout.ms={SESSION_TIMEOUT_MS}"]
        command += ["-X", f"partition.assignment.strategy={strategy}", topic]
        return KcatMember(command)

    def _query(self, topic: str, partition: int, timestamp_ms: int) -> int:
        answer = _ask([*self._kcat, "-Q", "-J", "-t", f"{topic}:{partition}:{timestamp_ms}"], READ_TIMEOUT_S)
        offset: int = json.loads(answer)[topic][str(partition)]["offset"]
        return offset


def _line(record: Record) -> bytes:
    assert record.timestamp_ms is None, "kcat cannot set the timestamp"
    return (record.key or b"") + b":" + (record.value or b"") + b"\n"


def _ask(command: list[str], timeout_s: float, lines: bytes = b"") -> str:
    done = subprocess.run(command, input=lines, capture_output=True, timeout=timeout_s, check=False)
    complaint = done.stderr.decode(errors="replace")
    for words, code in REFUSALS.items():
        if words in complaint:
            raise Refused(code, complaint)
    assert done.returncode == 0, f"{' '.join(command)}: {complaint}"
    return done.stdout.decode()


def _received(line: str) -> Received:
    found = json.loads(line)
    pairs = found.get("headers", [])
    headers = tuple((name, value.encode()) for name, value in zip(pairs[::2], pairs[1::2], strict=True))
    key, value = found["key"], found["payload"]
    return Received(
        found["partition"],
        found["offset"],
        None if key is None else key.encode(),
        None if value is None else value.encode(),
        headers,
        found["ts"],
    )
