"""Where in a topic to begin: the words that `consume --from` and `group reset-offsets --to` understand.

beginning | end | 42 (an offset) | -10 (ten before the end) | 15m (a quarter of an hour ago; s, m, h, d, w)
2026-01-31T12:00 (a time, local unless it names its zone)

Kafka's words for the first two, earliest and latest, are understood as well.
"""

import re
from datetime import datetime
from typing import TYPE_CHECKING

from headwater.cli.duration import duration_ms
from headwater.cli.output import CommandFailed
from headwater.client.librdkafka import ask_offsets, offsets_of
from headwater.model.position import ENDS, Anchor, Position, offset_in

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

LEADER_WAIT_S = 2.0
"""How long a list waits for partitions without a leader. A command that needs their offsets waits for the time-out."""

HELP = "beginning, end, an offset (42), so many before the end (-10), a time (2026-01-31T12:00) or an age (15m)"


def parse_position(text: str, now_ms: int) -> Position:
    if text in ENDS:
        return ENDS[text]
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
        raise CommandFailed(f"{text!r} is not a position.", f"Use {HELP}.", exit_code=2) from None


def offset_range(client: "AdminClient", partitions: "list[TopicPartition]") -> "dict[tuple[str, int], tuple[int, int]]":
    """The first offset there is and the next one to be written, by topic and partition."""
    from confluent_kafka.admin import OffsetSpec

    starts = offsets_of(client, partitions, OffsetSpec.earliest())
    ends = offsets_of(client, partitions, OffsetSpec.latest())
    return {key: (starts[key], ends[key]) for key in ends}


def known_offset_range(
    client: "AdminClient", partitions: "list[TopicPartition]"
) -> "dict[tuple[str, int], tuple[int, int]]":
    """As `offset_range`, without partitions that have no leader or were deleted since they were listed."""
    from confluent_kafka.admin import OffsetSpec

    starts, _ = ask_offsets(client, partitions, OffsetSpec.earliest(), LEADER_WAIT_S)
    there = [partition for partition in partitions if (partition.topic, partition.partition) in starts]
    ends, _ = ask_offsets(client, there, OffsetSpec.latest(), LEADER_WAIT_S)
    return {key: (starts[key], ends[key]) for key in ends}


def resolve(
    client: "AdminClient", partitions: "list[TopicPartition]", position: Position
) -> "dict[tuple[str, int], int]":
    """The offset of a position in each partition, limited to the offsets that the partition has."""
    from confluent_kafka.admin import OffsetSpec

    held = offset_range(client, partitions)
    at_time = {}
    if position.anchor is Anchor.TIME:
        at_time = offsets_of(client, partitions, OffsetSpec.for_timestamp(position.value))
    return {key: offset_in(position, start, end, at_time.get(key)) for key, (start, end) in held.items()}
