"""A long run that keeps every promise, made event by event, so that no list of them takes memory.

As a program it writes the run to a file: `python tests/testing/oracles/large_run.py 1000000 FILE.jsonl`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from headwater.testing.oracles.checkers.events import (
    CallOutcome,
    Event,
    FinalRead,
    Isolation,
    OffsetsAdded,
    OffsetsRead,
    Polled,
    SendBegan,
    SendEnded,
    TopicPartition,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
)
from headwater.testing.oracles.checkers.json_lines import MAX_RECORDS_PER_EVENT, Stamped, encode

PARTITIONS = [TopicPartition("orders", index) for index in range(4)]
INPUT = TopicPartition("in", 0)
PRODUCERS = 8
SENDS = 8
"""Per transaction, half of them acknowledged before the next begins."""
CONSUMERS = 2
OPERATIONS_PER_ROUND = 1 + SENDS + 1 + 1 + CONSUMERS * len(PARTITIONS)
"""A begin, the sends, the offsets, the end, and the polls."""
ABORTED_EVERY = 10


def events(operations: int) -> Iterator[Event]:
    logs: dict[TopicPartition, list[tuple[int, str] | None]] = {partition: [] for partition in PARTITIONS}
    committed = 0
    for number in range(operations // OPERATIONS_PER_ROUND):
        name, producer, is_commit = f"t{number}", f"p{number % PRODUCERS}", number % ABORTED_EVERY != 0
        starts = {partition: len(log) for partition, log in logs.items()}
        yield TransactionBegan(name, producer)
        for index in range(SENDS):
            partition = PARTITIONS[index % len(PARTITIONS)]
            value, log = f"{number}.{index}", logs[partition]
            yield SendBegan(
                producer=producer, topic=partition.topic, value=value, partition=partition.partition, transaction=name
            )
            yield SendEnded(partition.topic, value, CallOutcome.OK, partition.partition, len(log))
            log.append((len(log), value) if is_commit else None)
        yield OffsetsAdded(name, "group", ((INPUT, number + 1),))
        yield TransactionEnding(name, is_commit)
        yield TransactionEnded(name, CallOutcome.OK)
        committed = number + 1 if is_commit else committed
        for partition, log in logs.items():
            records = tuple(each for each in log[starts[partition] :] if each is not None)
            log.append(None)  # the marker
            for consumer in range(CONSUMERS):
                yield Polled(f"c{consumer}", Isolation.READ_COMMITTED, partition, records, starts[partition], len(log))
    for partition, log in logs.items():
        for start in range(0, len(log), MAX_RECORDS_PER_EVENT):
            end = min(start + MAX_RECORDS_PER_EVENT, len(log))
            records = tuple(each for each in log[start:end] if each is not None)
            yield FinalRead(Isolation.READ_COMMITTED, partition, records, start, end)
    yield OffsetsRead("end", "group", ((INPUT, committed),), is_final=True)


if __name__ == "__main__":
    with Path(sys.argv[2]).open("wb") as file:
        file.writelines(encode(Stamped(at_ns, event)) for at_ns, event in enumerate(events(int(sys.argv[1])), 1))
