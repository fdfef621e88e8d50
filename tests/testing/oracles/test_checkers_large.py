"""The checkers take memory for what was written, not for how often it was read, and never more than in proportion."""

import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from headwater.testing.oracles.checkers import Isolation, TopicPartition, check
from headwater.testing.oracles.checkers.events import Event, Polled, SendBegan
from tests.testing.oracles.large_run import events

MAX_BYTES_PER_OPERATION = 600


def peak_bytes(history: Callable[[], Iterable[Event]]) -> int:
    """The least of three: what other threads of the process take meanwhile counts, too."""
    return min(_peak_bytes(history()) for _ in range(3))


def _peak_bytes(history: Iterable[Event]) -> int:
    tracemalloc.start()
    try:
        assert check(history) == []
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_operations_and_no_faster() -> None:
    for operations in (5_000, 20_000):
        assert peak_bytes(partial(events, operations)) < operations * MAX_BYTES_PER_OPERATION


def test_reading_the_same_records_again_takes_no_memory() -> None:
    records = tuple((offset, f"v{offset}") for offset in range(500))

    def read_by(consumers: int) -> Iterator[Event]:
        for _, value in records:
            yield SendBegan(producer="p", topic="orders", value=value, partition=0)
        for consumer in range(consumers):
            yield Polled(f"c{consumer}", Isolation.READ_COMMITTED, TopicPartition("orders", 0), records)

    assert peak_bytes(lambda: read_by(100)) < peak_bytes(lambda: read_by(1)) + 100 * 5_000
