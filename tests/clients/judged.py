"""What every judged client can be asked to do, in the same words.

Each `with_<client>.py` says these words in its client's own API, so that one test judges the broker through
all of them. A client states in `abilities` which words it knows; nothing is emulated for those it does not."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

NewTopic = Callable[..., str]
"""Creates a topic with a name of its own, and returns the name."""

OTHER_BROKER = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
"""A broker that the suite judges instead of Headwater, to check the suite itself."""

PRODUCE_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 60.0
ADMIN_TIMEOUT_S = 60.0
HEARTBEAT_INTERVAL_MS = 200
SESSION_TIMEOUT_MS = 6_000
STATIC_SESSION_TIMEOUT_MS = 200_000
"""Of static members: longer than a test waits, so one that is seen to be back came back before its session ended."""
MAX_REQUEST_BYTES = 8 * 1024 * 1024
"""The clients' own size limit, above the broker's, so that the broker is the judge of what is too large."""

BROKER_ASSIGNS = "uniform"
"""The strategy of members of the new consumer protocol (KIP-848), for clients that can be one."""

EVERY_ABILITY = frozenset(
    {
        "produce",
        "idempotent",
        "read",
        "time",
        "group",
        "cooperative",
        "static",
        "admin",
        "configs",
        "records",
        "groups",
        "cluster",
        "logs",
        "invalid-record",
    }
)
EVERY_CODEC: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")


def session_timeout_ms(instance_id: str | None) -> int:
    """Of a member of a classic group."""
    return SESSION_TIMEOUT_MS if instance_id is None else STATIC_SESSION_TIMEOUT_MS


class ErrorCode:
    """Numbers of the Kafka protocol; the names differ between clients, the numbers do not."""

    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC_EXCEPTION = 17
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_TIMESTAMP = 32
    INVALID_CONFIG = 40
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    INVALID_RECORD = 87


@dataclass(frozen=True, slots=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class GroupView:
    state: str
    """Upper case: EMPTY, STABLE, …"""
    members: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str
    brokers: tuple[str, ...]
    """host:port of each"""


class Refused(Exception):
    """The broker (or the client on its behalf) answered with a Kafka error code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(f"{code} {message}")
        self.code = code


class Member(Protocol):
    """A consumer that is a member of a group. It takes part in rebalances only while it is polled."""

    def poll(self, timeout_s: float) -> list[Received]: ...
    def assigned(self) -> set[int]: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class Client(Protocol):
    """A client library; methods outside `abilities` are not there."""

    name: str
    abilities: frozenset[str]
    codecs: tuple[str, ...]

    def close(self) -> None: ...

    def produce(
        self, topic: str, records: Sequence[Record], acks: str = "all", codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        """Send all, wait for all; the offset of each, or a negative number where the client does not learn it."""
        ...

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Received]:
        """Exactly `count` records of one partition from `offset` on, without a group."""
        ...

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """The earliest offset and the next one to be written."""
        ...

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None: ...
    def member(self, topic: str, group: str, strategy: str = "range", instance_id: str | None = None) -> Member: ...

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def topics(self) -> dict[str, int]:
        """Partition count by topic name."""
        ...

    def add_partitions(self, topic: str, total: int) -> None: ...
    def topic_config(self, topic: str) -> dict[str, str]: ...
    def set_topic_config(self, topic: str, key: str, value: str) -> None: ...
    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """The earliest offset that is left."""
        ...

    def groups(self) -> set[str]: ...
    def group(self, group: str) -> GroupView: ...
    def delete_group(self, group: str) -> None: ...
    def cluster(self) -> ClusterView: ...
    def log_sizes(self) -> dict[str, int]:
        """Bytes on disk by topic."""
        ...
