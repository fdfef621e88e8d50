"""How much of what is there a micro-batch takes, and how the tasks share it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from headwater.pipelines.client.offsets import OffsetRange, Offsets

MAX_PARTS = 100_000
"""Into which one range is cut: Spark keeps every task in memory."""


def limit_rows(start: Offsets, end: Offsets, max_rows: int) -> Offsets:
    """An earlier end, so that about `max_rows` lie between: each partition gives in proportion to what it has, but
    one that has any gives at least one, so that no partition starves. `start` has every partition of `end`."""
    sizes = {partition: max(end[partition] - start[partition], 0) for partition in end}
    total = sum(sizes.values())
    if total <= max_rows:
        return end
    return {
        partition: start[partition] + min(size, max(max_rows * size // total, 1)) if size else end[partition]
        for partition, size in sizes.items()
    }


def split(ranges: Sequence[OffsetRange], min_parts: int | None, max_rows: int | None) -> list[OffsetRange]:
    """Ranges that are read by one task each: at least about `min_parts` of them, none longer than `max_rows`. A large
    range is cut into more parts than a small one."""
    wholes = [whole for whole in ranges if whole.size > 0]
    parts = [part for whole in wholes for part in _cut(whole, -(-whole.size // (max_rows or whole.size)))]
    if min_parts is None or len(parts) >= min_parts:
        return parts
    total = sum(part.size for part in parts)
    return [piece for part in parts for piece in _cut(part, max(round(part.size * min_parts / total), 1))]


def _cut(whole: OffsetRange, count: int) -> Iterable[OffsetRange]:
    """Into parts of nearly equal size, none of them empty."""
    count = min(count, whole.size, MAX_PARTS)
    bounds = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(bounds)]
