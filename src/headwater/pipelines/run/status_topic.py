"""The topic where running pipelines report their status, and are asked to stop.

    headwater.pipelines     one partition, compacted, JSON
      <pipeline>            the last status of the pipeline's last run
      stop:<pipeline>       a request to stop: {"run": …}

The runner writes its status every few seconds and looks for a request that names its run. A list of pipelines reads the
topic from the beginning.
"""

import json
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.run.progress import RunStatus

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

TOPIC = "headwater.pipelines"
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024), "min.cleanable.dirty.ratio": "0.1"}
STOP_PREFIX = "stop:"
REQUEST_TIMEOUT_S = 10.0
LOOK_TIMEOUT_S = 2.0
READ_AT_ONCE = 1_000
MAX_RECORDS = 1_000_000
"""That are read to find the status of all pipelines; compaction keeps them far below."""


class StatusTopic:
    """A client of the topic. Raises PipelineFailed when no broker answers. Not thread-safe."""

    def __init__(self, bootstrap: str, security: Mapping[str, str] | None = None) -> None:
        """`security`: TLS and the login, as librdkafka takes them."""
        from confluent_kafka import Producer

        self._bootstrap = bootstrap
        self._security = dict(security or {})
        self._producer = Producer({**self._config(), "linger.ms": 0, "message.timeout.ms": 30_000})
        self._requests: Consumer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.flush(REQUEST_TIMEOUT_S)
        if self._requests is not None:
            self._requests.close()

    def create(self) -> None:
        """Unless it is there."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        client = AdminClient(self._config())
        topic = NewTopic(TOPIC, num_partitions=1, replication_factor=-1, config=CONFIG)
        (future,) = client.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S).values()
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise PipelineFailed(
                    f"No broker answers at {self._bootstrap}.", "Start one with `headwater serve`."
                ) from error

    def publish(self, status: RunStatus) -> None:
        """In the background; what cannot be sent is replaced by the next."""
        self._send(status.pipeline, status.to_json())

    def statuses(self) -> dict[str, RunStatus]:
        """By the names of pipelines."""
        found: dict[str, RunStatus] = {}
        for message in self._read_all():
            key, value = message.key(), message.value()
            if key is None or key.startswith(STOP_PREFIX.encode()):
                continue
            status = RunStatus.from_json(value) if value is not None else None
            if status is not None and status.pipeline.encode() == key:
                found[status.pipeline] = status
            elif value is None:
                found.pop(key.decode(errors="replace"), None)
        return found

    def ask_to_stop(self, status: RunStatus) -> None:
        """The run of this status, and no later one."""
        self._send(STOP_PREFIX + status.pipeline, json.dumps({"run": status.run}).encode())
        if self._producer.flush(REQUEST_TIMEOUT_S):
            raise PipelineFailed(f"No broker answers at {self._bootstrap}.", "Start one with `headwater serve`.")

    def is_asked_to_stop(self, pipeline: str, run: str) -> bool:
        """Whether a request came since the first call that reached a broker. Does not wait for requests."""
        if self._requests is None:
            self._requests = self._at_the_end()
        if self._requests is None:
            return False
        for message in self._requests.consume(READ_AT_ONCE, timeout=0):
            is_request = message.error() is None and message.key() == (STOP_PREFIX + pipeline).encode()
            if is_request and _run_of(message.value()) == run:
                return True
        return False

    def _at_the_end(self) -> "Consumer | None":
        """A consumer of what comes from now on; None while no broker answers."""
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer()
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=LOOK_TIMEOUT_S)
        except KafkaException:
            consumer.close()
            return None
        consumer.assign([TopicPartition(TOPIC, 0, end)])
        return consumer

    def _read_all(self) -> "Iterator[Message]":
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        consumer = self._consumer()
        try:
            if TOPIC not in consumer.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
                return
            low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=REQUEST_TIMEOUT_S)
            consumer.assign([TopicPartition(TOPIC, 0, max(low, high - MAX_RECORDS))])
            deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
            is_end = low == high
            while not is_end and time.monotonic() < deadline_s:
                for message in consumer.consume(READ_AT_ONCE, timeout=0.5):
                    deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() == KafkaError._PARTITION_EOF:
                        is_end = True
        except KafkaException as error:
            raise PipelineFailed(
                f"No broker answers at {self._bootstrap}.", "Start one with `headwater serve`."
            ) from error
        finally:
            consumer.close()

    def _send(self, key: str, value: bytes) -> None:
        from contextlib import suppress

        with suppress(BufferError):  # no broker for long: the next status replaces this one
            self._producer.produce(TOPIC, key=key.encode(), value=value)
        self._producer.poll(0)

    def _consumer(self) -> "Consumer":
        from confluent_kafka import Consumer

        reading = {"group.id": "headwater-pipelines", "enable.auto.commit": False, "enable.partition.eof": True}
        return Consumer({**self._config(), **reading, "auto.offset.reset": "earliest"})

    def _config(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap,
            **self._security,
            "client.id": "headwater-pipelines",
            "log_level": 0,
            "error_cb": _ignore,
        }


def _run_of(value: bytes | None) -> object:
    try:
        return json.loads(value or b"").get("run")
    except (ValueError, AttributeError):
        return None


def _ignore(_: object) -> None:
    """Errors of single connections: librdkafka tries again."""
