"""Where a query starts and ends, as its options say it, and what that means in offsets now.

    startingOffsets              earliest, latest, or {"orders": {"0": 23, "1": -2}} with -1 latest, -2 earliest
    startingOffsetsByTimestamp   {"orders": {"0": 1700000000000}}: the first record at or after it, in milliseconds
    startingTimestamp            one time for all partitions

The last of these that is given counts; the same with `ending`. Offsets and times by partition name every partition of
the query, so that none is read from an offset that the user did not choose.
"""

import json
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TypeAlias

from headwater.client.offsets import EARLIEST, LATEST, NOT_FOUND
from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.client.offsets import Offsets
from headwater.pipelines.client.option_values import an_integer
from headwater.pipelines.errors import InvalidOption

MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Everywhere:
    """EARLIEST or LATEST, in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    option: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    option: str
    timestamps_ms: Mapping[TopicPartition, int]


Position: TypeAlias = Everywhere | AtOffsets | AtTime | AtTimes


def position(options: Mapping[str, str], side: str, default: int) -> Position:
    """`side` is starting or ending."""
    option = f"{side}Timestamp"
    if option.lower() in options:
        return AtTime(option, an_integer(option, options[option.lower()], at_least=0))
    option = f"{side}OffsetsByTimestamp"
    if option.lower() in options:
        return AtTimes(option, _by_partition(option, options[option.lower()], at_least=0))
    option = f"{side}Offsets"
    text = options.get(option.lower(), "").strip()
    if not text:
        return Everywhere(default)
    if text.lower() in _WORDS:
        return Everywhere(_WORDS[text.lower()])
    return AtOffsets(option, _by_partition(option, text, at_least=EARLIEST))


_WORDS = {"earliest": EARLIEST, "latest": LATEST}


def names_latest(where: Position) -> bool:
    return LATEST in _named(where)


def names_earliest(where: Position) -> bool:
    return EARLIEST in _named(where)


def resolve(
    cluster: ClusterClient, partitions: Set[TopicPartition], where: Position, no_match_is_latest: bool
) -> Offsets:
    """The offsets that a position means now. When no record is as late as a time, that is the end of the partition or
    an error."""
    if not partitions:
        return {}
    match where:
        case Everywhere(offset):
            return cluster.list_offsets(dict.fromkeys(partitions, offset))
        case AtOffsets(option, offsets):
            _require_all(option, partitions, offsets.keys())
            words = {partition: offset for partition, offset in offsets.items() if offset < 0}
            return dict(offsets) | (cluster.list_offsets(words) if words else {})
        case AtTime(option, timestamp_ms):
            return _at_times(cluster, option, dict.fromkeys(partitions, timestamp_ms), no_match_is_latest)
        case AtTimes(option, timestamps_ms):
            _require_all(option, partitions, timestamps_ms.keys())
            return _at_times(cluster, option, timestamps_ms, no_match_is_latest)


def _at_times(
    cluster: ClusterClient, option: str, timestamps_ms: Mapping[TopicPartition, int], no_match_is_latest: bool
) -> Offsets:
    found = cluster.list_offsets(timestamps_ms)
    unmatched = [partition for partition, offset in found.items() if offset == NOT_FOUND]
    if unmatched and not no_match_is_latest:
        first = min(unmatched)
        raise InvalidOption(
            f"Option {option}: {first} has no record at or after {timestamps_ms[first]} ms. To start at its end, set "
            "startingOffsetsByTimestampStrategy to latest."
        )
    return found | (cluster.list_offsets(dict.fromkeys(unmatched, LATEST)) if unmatched else {})


def _named(where: Position) -> Iterable[int]:
    match where:
        case Everywhere(offset):
            return (offset,)
        case AtOffsets(_, offsets):
            return offsets.values()
    return ()


def _require_all(option: str, partitions: Set[TopicPartition], named: Set[TopicPartition]) -> None:
    missing, extra = sorted(partitions - named), sorted(named - partitions)
    if extra:
        raise InvalidOption(f"Option {option} names {extra[0]}, which is not a partition that this query reads.")
    if missing:
        raise InvalidOption(
            f"Option {option} names some partitions, but not {', '.join(map(str, missing[:_SHOWN]))}. Name them all; "
            "as an offset, -2 is earliest and -1 is latest."
        )


_SHOWN = 5
_NUMBER = re.compile(r"[0-9]{1,9}")


def _by_partition(option: str, text: str, at_least: int) -> dict[TopicPartition, int]:
    wrong = InvalidOption(f'Option {option} is {text!r}; it must be like {{"orders": {{"0": 23, "1": 42}}}}.')
    try:
        topics = json.loads(text)
    except (ValueError, RecursionError):
        raise wrong from None
    found: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items() if isinstance(topics, dict) else ():
        for number, value in partitions.items() if isinstance(partitions, dict) else (("", None),):
            if _NUMBER.fullmatch(number) is None or type(value) is not int or not at_least <= value <= MAX_OFFSET:
                raise wrong
            found[TopicPartition(topic, int(number))] = value
    if not found:
        raise wrong
    return found
