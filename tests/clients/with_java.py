"""Java's kafka-clients, in a JVM that `java/` describes: one question a line in, one answer a line out."""

import base64
import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import maven

from tests.clients.judged import (
    EVERY_ABILITY,
    EVERY_CODEC,
    HEARTBEAT_INTERVAL_MS,
    MAX_REQUEST_BYTES,
    READ_TIMEOUT_S,
    ClusterView,
    GroupView,
    Received,
    Record,
    Refused,
    session_timeout_ms,
)

SOURCES = Path(__file__).parent / "java"
COMPILE_TIMEOUT_S = 120


def judge_class_path() -> str:
    """The class path that runs the Java side, compiled first when its sources are new."""
    if shutil.which("javac") is None:
        raise maven.JarsUnavailable("`javac` is not installed (apt-get install default-jdk-headless)")
    jars = maven.class_path("client", maven.KAFKA_CLIENT)
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    classes = maven.CACHE / "client" / f"judge-{digest}"
    with open(maven.CACHE / "client" / "judge-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers ask at the same time
        if not classes.exists():
            _compile(sources, jars, classes)
    return f"{classes}:{jars}"


def _compile(sources: Sequence[Path], jars: str, classes: Path) -> None:
    unfinished = classes.with_suffix(".unfinished")
    command = ["javac", "-cp", jars, "-d", str(unfinished), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"the Java judge does not compile:\n{done.stderr}"
    unfinished.rename(classes)


class JavaMember:
    def __init__(self, java: "JavaClient", name: str) -> None:
        self._java = java
        self._name = name

    def poll(self, timeout_s: float) -> list[Received]:
        return _received(self._java.ask("poll", member=self._name, timeoutMs=int(timeout_s * 1000)))

    def assigned(self) -> set[int]:
        return set(self._java.ask("assigned", member=self._name))

    def commit(self) -> None:
        self._java.ask("commit", member=self._name)

    def close(self) -> None:
        self._java.ask("leave", member=self._name)


class JavaClient:
    name = "java"
    abilities = EVERY_ABILITY
    codecs = EVERY_CODEC

    def __init__(self, bootstrap: str, class_path: str) -> None:
        self._judge = subprocess.Popen(
            ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", class_path, "Judge", bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._members = 0

    def close(self) -> None:
        assert self._judge.stdin is not None
        assert self._judge.stdout is not None
        self._judge.stdin.close()
        try:
            self._judge.wait(READ_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._judge.kill()
            self._judge.wait()
        self._judge.stdout.close()

    def ask(self, verb: str, **details: Any) -> Any:
        assert self._judge.stdin is not None
        assert self._judge.stdout is not None
        self._judge.stdin.write(json.dumps({"verb": verb, **details}) + "\n")
        self._judge.stdin.flush()
        line = self._judge.stdout.readline()
        assert line, "the Java judge ended"
        answer = json.loads(line)
        if "code" in answer:
            raise Refused(answer["code"], answer["message"])
        return answer["answer"]

    def produce(
        self, topic: str, records: Sequence[Record], acks: str = "all", codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        rows = [
            [
                record.partition,
                _text(record.key),
                _text(record.value),
                record.timestamp_ms,
                [[name, _text(value)] for name, value in record.headers],
            ]
            for record in records
        ]
        offsets: list[int] = self.ask(
            "produce",
            topic=topic,
            acks=acks,
            codec=codec,
            idempotent=idempotent,
            maxRequestBytes=MAX_REQUEST_BYTES,
            records=rows,
        )
        return offsets

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Received]:
        timeout_ms = int(READ_TIMEOUT_S * 1000)
        answer = self.ask("read", topic=topic, partition=partition, offset=offset, count=count, timeoutMs=timeout_ms)
        return _received(answer)

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self.ask("ends", topic=topic, partition=partition)
        return low, high

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset: int | None = self.ask("offsetForTime", topic=topic, partition=partition, timestampMs=timestamp_ms)
        return offset

    def member(self, topic: str, group: str, strategy: str = "range", instance_id: str | None = None) -> JavaMember:
        self._members += 1
        name = f"member-{self._members}"
        self.ask(
            "join",
            member=name,
            topic=topic,
            group=group,
            strategy=strategy,
            instanceId=instance_id,
            heartbeatMs=HEARTBEAT_INTERVAL_MS,
            sessionMs=session_timeout_ms(instance_id),
        )
        return JavaMember(self, name)

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self.ask("createTopic", topic=topic, partitions=partitions, config=dict(config or {}))

    def delete_topic(self, topic: str) -> None:
        self.ask("deleteTopic", topic=topic)

    def topics(self) -> dict[str, int]:
        found: dict[str, int] = self.ask("topics")
        return found

    def add_partitions(self, topic: str, total: int) -> None:
        self.ask("addPartitions", topic=topic, total=total)

    def topic_config(self, topic: str) -> dict[str, str]:
        found: dict[str, str] = self.ask("topicConfig", topic=topic)
        return found

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        self.ask("setTopicConfig", topic=topic, key=key, value=value)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        low: int = self.ask("deleteRecords", topic=topic, partition=partition, beforeOffset=before_offset)
        return low

    def groups(self) -> set[str]:
        return set(self.ask("groups"))

    def group(self, group: str) -> GroupView:
        found = self.ask("group", group=group)
        return GroupView(found["state"].upper(), found["members"])

    def delete_group(self, group: str) -> None:
        self.ask("deleteGroup", group=group)

    def cluster(self) -> ClusterView:
        found = self.ask("cluster")
        return ClusterView(cluster_id=found["clusterId"], brokers=tuple(found["brokers"]))

    def log_sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = self.ask("logSizes")
        return sizes


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _received(rows: list[Any]) -> list[Received]:
    return [
        Received(
            partition,
            offset,
            _data(key),
            _data(value),
            tuple((name, _data(header)) for name, header in headers),
            timestamp_ms,
        )
        for partition, offset, key, value, headers, timestamp_ms in rows
    ]
