"""Where in a topic to begin: the words that `consume --from` and `group reset-offsets --to` understand.

beginning | end | 42 (an offset) | -10 (ten before the end) | 15m (a quarter of an hour ago; s, m, h, d, w)
2026-01-31T12:00 (a time, local unless it names its zone)

Kafka's words for the first two, earliest and latest, are understood as well.
"""

import enum
import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from headwater.cli.client import REQUEST_TIMEOUT_S
from headwater.cli.duration import duration_ms
from headwater.cli.output import Problem

if TYPE_CHECKING:
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient

PATIENCE_S = 2.0
"""How long a list waits for the leaders of a few partitions; a command that needs them waits for the time-out."""
PAUSE_S = 0.05

HELP = "beginning, end, an offset (42), so many before the end (-10), a time (2026-01-31T12:00) or an age (15m)"


class Anchor(enum.Enum):
    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    TIME = "time"


ENDS = {
    "beginning": Anchor.BEGINNING,
    "earliest": Anchor.BEGINNING,
    "end": Anchor.END,
    "latest": Anchor.END,
}


@dataclass(frozen=True, slots=True)
class Position:
    anchor: Anchor
    value: int = 0
    """The offset, the count from the end, or milliseconds since the epoch."""


def parse_position(text: str, now_ms: int) -> Position:
    if text in ENDS:
        return Position(ENDS[text])
    if re.fullmatch(r"\d{1,18}", text):
        return Position(Anchor.OFFSET, int(text))
    if re.fullmatch(r"-\d{1,18}", text):
        return Position(Anchor.LAST, -int(text))
    age_ms = duration_ms(text)
    if age_ms is not None:
        return Position(Anchor.TIME, max(0, now_ms - age_ms))
    try:
        return Position(Anchor.TIME, int(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise Problem(f"{text!r} is not a position.", f"Use {HELP}.", exit_code=2) from None


def offset_range(client: "AdminClient", partitions: "list[TopicPartition]") -> "dict[tuple[str, int], tuple[int, int]]":
    """The first offset there is and the next one to be written, by topic and partition."""
    from confluent_kafka.admin import OffsetSpec

    starts = _list_offsets(client, partitions, OffsetSpec.earliest())
    ends = _list_offsets(client, partitions, OffsetSpec.latest())
    return {key: (starts[key], ends[key]) for key in ends}


def known_offset_range(
    client: "AdminClient", partitions: "list[TopicPartition]"
) -> "dict[tuple[str, int], tuple[int, int]]":
    """The same, without the partitions that nobody leads, and those that are gone since they were listed."""
    from confluent_kafka.admin import OffsetSpec

    starts, _ = _ask_offsets(client, partitions, OffsetSpec.earliest(), PATIENCE_S)
    there = [partition for partition in partitions if (partition.topic, partition.partition) in starts]
    ends, _ = _ask_offsets(client, there, OffsetSpec.latest(), PATIENCE_S)
    return {key: (starts[key], ends[key]) for key in ends}


def resolve(
    client: "AdminClient", partitions: "list[TopicPartition]", position: Position
) -> "dict[tuple[str, int], int]":
    """The offset that a position means in each partition, never outside of what the partition holds."""
    from confluent_kafka.admin import OffsetSpec

    held = offset_range(client, partitions)
    at_time = {}
    if position.anchor is Anchor.TIME:
        at_time = _list_offsets(client, partitions, OffsetSpec.for_timestamp(position.value))
    resolved = {}
    for key, (start, end) in held.items():
        wanted = {
            Anchor.BEGINNING: start,
            Anchor.END: end,
            Anchor.OFFSET: position.value,
            Anchor.LAST: end - position.value,
            # Nothing is that young: whoever wants to read from then on waits at the end.
            Anchor.TIME: end if at_time.get(key, -1) < 0 else at_time[key],
        }[position.anchor]
        resolved[key] = min(max(wanted, start), end)
    return resolved


def _list_offsets(
    client: "AdminClient", partitions: "list[TopicPartition]", spec: object
) -> "dict[tuple[str, int], int]":
    offsets, refused = _ask_offsets(client, partitions, spec, REQUEST_TIMEOUT_S)
    for error in refused.values():
        raise error
    return offsets


def _ask_offsets(
    client: "AdminClient", partitions: "list[TopicPartition]", spec: object, patience_s: float
) -> "tuple[dict[tuple[str, int], int], dict[TopicPartition, KafkaException]]":
    """The offsets, and what the partitions said that have none to tell. A topic that was just made has no leader
    yet, and a leader that just went has no successor: such partitions are asked again for a while."""
    from confluent_kafka import KafkaError, KafkaException

    passing = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)
    absent = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
    offsets: dict[tuple[str, int], int] = {}
    refused: dict[TopicPartition, KafkaException] = {}
    until_s = time.monotonic() + patience_s
    asked = partitions
    while asked:
        again = []
        futures = client.list_offsets(dict.fromkeys(asked, spec), request_timeout=REQUEST_TIMEOUT_S)
        for place, future in futures.items():
            try:
                offsets[place.topic, place.partition] = future.result().offset
            except KafkaException as error:
                code = error.args[0].code()
                if code not in passing + absent:
                    raise
                if code in passing and time.monotonic() < until_s:
                    again.append(place)
                else:
                    refused[place] = error
        if again:
            time.sleep(PAUSE_S)
        asked = again
    return offsets, refused
