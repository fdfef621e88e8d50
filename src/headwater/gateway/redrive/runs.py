"""What runs of a redrive remember, so that a dead letter is sent back once however often they are repeated.

A run is a consumer group on the dead-letter topic, one for each filter; the filter is a setting of the group:

    headwater-redrive-<topic>            everything
    headwater-redrive-<topic>-<digest>   what a filter selects

Its committed offset says how far it has looked: a letter below it that the filter selects has been sent back. The
commit's metadata is `clean`, or `since <ms> <targets>` while records may have been sent that are not committed yet.
After a crash those are found in their targets (`=`: where they came from), from that time on, by the header
`headwater.redrive-of: <topic>/<partition>/<offset>`. Runs that crash one after the other keep the earliest time.
"""

import hashlib
import re
import time
from collections.abc import Collection
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.client.blocking_cluster import BlockingCluster
from headwater.client.librdkafka import REQUEST_TIMEOUT_S, committed_positions, poll_some
from headwater.gateway.redrive.cluster import Settings, group_filters, group_names, is_end
from headwater.gateway.redrive.dead_letter import REDRIVE_OF
from headwater.records.filter import Filter, compile_filter

GROUP_PREFIX = "headwater-redrive-"
CLEAN = "clean"
ORIGIN = "="
"""In place of a target: where each letter came from. No topic is called so."""
CLOCK_SLACK_MS = 60_000
"""How far the clocks of two redrives may lie apart."""
MAX_SCAN_RECORDS = 1_000_000
"""Records of a target that are looked at for what a run that crashed has sent."""
SCAN_AT_ONCE = 1_000
SCAN_WAIT_S = 10.0


def group_of(topic: str, expression: str | None) -> str:
    if not expression:
        return GROUP_PREFIX + topic
    return f"{GROUP_PREFIX}{topic}-{hashlib.sha256(expression.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Runs that may have sent what they did not commit: from when on, and to which topics."""

    since_ms: int
    targets: frozenset[str]

    def __str__(self) -> str:
        return f"since {self.since_ms} {','.join(sorted(self.targets))}"

    def __or__(self, other: "Unfinished") -> "Unfinished":
        return Unfinished(min(self.since_ms, other.since_ms), self.targets | other.targets)

    @classmethod
    def parse(cls, metadata: str | None) -> "Unfinished | None":
        match = re.fullmatch(r"since (\d{1,15}) (\S+)", metadata or "", re.ASCII)
        return cls(int(match[1]), frozenset(match[2].split(","))) if match is not None else None


@dataclass(frozen=True, slots=True)
class OtherRun:
    """A run with another filter, as it stands."""

    selects: Filter
    positions: dict[int, int]
    unfinished: dict[int, Unfinished]

    def has_sent(self, letter: Message) -> bool:
        if letter.offset() >= self.positions.get(letter.partition(), 0):
            return False
        return self.selects(letter.key(), tuple(letter.headers() or ()))


def other_runs(client: AdminClient, cluster: BlockingCluster, topic: str, group: str) -> list[OtherRun]:
    """Runs on the same dead-letter topic with other filters."""
    names = [name for name in group_names(cluster) if name != group and _is_run(name, topic)]
    positions_of = committed_positions(client, names)
    found = []
    for name, expression in group_filters(cluster, names).items():
        if group_of(topic, expression) != name:
            continue
        committed = [position for position in positions_of[name] if position.topic == topic]
        positions = {position.partition: position.offset for position in committed}
        unfinished = {
            position.partition: each for position in committed if (each := Unfinished.parse(position.metadata))
        }
        found.append(OtherRun(compile_filter(expression) if expression else _everything, positions, unfinished))
    return found


@dataclass(frozen=True, slots=True)
class SentLetters:
    """Letters that a run before has sent, by partition and offset."""

    letters: set[tuple[int, int]]
    is_complete: bool = True
    """Whether everything was looked at."""


def sent_since(settings: Settings, topic: str, target: str, partitions: Collection[int], since_ms: int) -> SentLetters:
    """The letters of `topic` that came to `target` at that time or later."""
    if not partitions:
        return SentLetters(set())
    config = {"group.id": "headwater-redrive", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**settings, **config})
    try:
        times = [TopicPartition(target, index, max(since_ms - CLOCK_SLACK_MS, 0)) for index in partitions]
        starts = [start for start in consumer.offsets_for_times(times, timeout=REQUEST_TIMEOUT_S) if start.offset >= 0]
        return _scan(consumer, starts, f"{topic}/") if starts else SentLetters(set())
    finally:
        consumer.close()


def _scan(consumer: Consumer, starts: list[TopicPartition], prefix: str) -> SentLetters:
    found: set[tuple[int, int]] = set()
    consumer.assign(starts)
    left, open_partitions = MAX_SCAN_RECORDS, {start.partition for start in starts}
    heard_s = time.monotonic()
    while open_partitions:
        if left <= 0 or time.monotonic() - heard_s > SCAN_WAIT_S:
            return SentLetters(found, is_complete=False)
        for message in poll_some(consumer, SCAN_AT_ONCE):
            heard_s = time.monotonic()
            error = message.error()
            if error is None:
                left -= 1
                found |= _letters(message, prefix)
            elif is_end(error):
                open_partitions.discard(message.partition())
    return SentLetters(found)


def _letters(message: Message, prefix: str) -> set[tuple[int, int]]:
    pattern = re.compile(re.escape(prefix) + r"(\d{1,10})/(\d{1,19})", re.ASCII)
    values = [(value or b"").decode(errors="replace") for name, value in message.headers() or () if name == REDRIVE_OF]
    return {(int(match[1]), int(match[2])) for value in values if (match := pattern.fullmatch(value))}


def _is_run(name: str, topic: str) -> bool:
    return re.fullmatch(re.escape(GROUP_PREFIX + topic) + r"(-[0-9a-f]{16})?", name) is not None


def _everything(key: bytes | None, headers: object) -> bool:
    return True
