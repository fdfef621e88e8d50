"""Does each consumer move forward, one record after the other? It may go elsewhere only when it says so.

Offsets that are not given are no proof of a gap: transaction markers have offsets, too, and so have aborted records. So
jumps are only noted while the history is read, and judged when it is known what lies below them.
"""

from bisect import bisect_left
from dataclasses import dataclass

from headwater.testing.oracles.checkers.events import Assigned, Isolation, Polled, Records, Sought, TopicPartition
from headwater.testing.oracles.checkers.log_checker import LogChecker, Sighting
from headwater.testing.oracles.checkers.partition_log import PartitionLogs
from headwater.testing.oracles.checkers.violations import MAX_LISTED, MAX_NAMED, ViolationKind, Violations, listed


@dataclass(frozen=True, slots=True)
class Jump:
    """A reader stood at `start` and was next given, or next stood at, `end`."""

    sighting: Sighting
    partition: TopicPartition
    start: int
    end: int


class PollChecker:
    def __init__(self, logs: PartitionLogs, findings: Violations) -> None:
        self._logs = logs
        self._findings = findings
        self._positions: dict[str, dict[TopicPartition, int | None]] = {}
        self._jumps: list[Jump] = []

    def assigned(self, event: Assigned) -> None:
        self._positions[event.consumer] = dict(event.positions)

    def sought(self, event: Sought) -> None:
        self._positions.setdefault(event.consumer, {})[event.partition] = event.position
        self._logs[event.partition].was_sought = True

    def polled(self, sighting: Sighting, event: Polled) -> None:
        positions = self._positions.setdefault(event.consumer, {})
        position = positions.get(event.partition)
        if event.before is not None:
            position = self._moved(sighting, event.partition, position, event.before)
        start = position
        if event.records:
            start = start if start is not None else event.records[0][0]
            position = self._passed(sighting, event.partition, position, event.records)
            self._logs[event.partition].note_polled(start, position)
        if event.after is not None:
            position = self._moved(sighting, event.partition, position, event.after)
        positions[event.partition] = position

    def final_read(self, sighting: Sighting, partition: TopicPartition, start: int, records: Records) -> None:
        """Its gaps are the matter of the log checker; here it only must not go back."""
        position = start
        for offset, _ in records:
            if offset < position:
                self._went_back(sighting, partition, position, offset)
            position = offset + 1

    def judge(self, log_checker: LogChecker) -> None:
        seen: dict[tuple[TopicPartition, Isolation], tuple[list[int], list[int]]] = {}
        for jump in self._jumps:
            key = (jump.partition, jump.sighting.isolation)
            if key not in seen:
                seen[key] = self._visible(*key)
            seen_offsets, unseen_offsets = seen[key]
            if skipped := _between(seen_offsets, jump):
                self._skipped(jump, [seen_offsets[index] for index in skipped[:MAX_NAMED]], len(skipped))
            for index in _between(unseen_offsets, jump)[:MAX_LISTED]:
                write = self._logs[jump.partition].at[unseen_offsets[index]]
                why = f"{jump.sighting} passed from offset {jump.start} to {jump.end} of {jump.partition}"
                log_checker.lost(write, why, jump.sighting.number)

    def _passed(self, sighting: Sighting, partition: TopicPartition, position: int | None, records: Records) -> int:
        for offset, _ in records:
            if offset != position:
                self._moved(sighting, partition, position, offset)
            position = offset + 1
        assert position is not None, "a poll with records ends somewhere"
        return position

    def _moved(self, sighting: Sighting, partition: TopicPartition, position: int | None, to: int) -> int:
        if position is not None and to < position:
            self._went_back(sighting, partition, position, to)
        elif position is not None and to > position:
            self._jumps.append(Jump(sighting, partition, position, to))
        return to

    def _went_back(self, sighting: Sighting, partition: TopicPartition, position: int, to: int) -> None:
        self._findings.add(
            ViolationKind.BACKWARD_POLL,
            (sighting.reader, partition, position, to),
            f"{sighting} went from offset {position} of {partition} back to {to} without a seek",
            sighting.number,
        )

    def _visible(self, partition: TopicPartition, isolation: Isolation) -> tuple[list[int], list[int]]:
        """Offsets that such a reader cannot pass: that another reader saw, and that no reader saw."""
        log = self._logs[partition]
        offsets = log.visible_offsets(isolation)
        return (
            [offset for offset in offsets if log.at[offset].seen_at is not None],
            [offset for offset in offsets if log.at[offset].seen_at is None and log.at[offset].must_be_there],
        )

    def _skipped(self, jump: Jump, offsets: list[int], count: int) -> None:
        at = self._logs[jump.partition].at
        named = listed([f"{at[offset].value!r} at {offset}" for offset in offsets], count)
        self._findings.add(
            ViolationKind.SKIPPED_RECORDS,
            jump,
            f"{jump.sighting} went from offset {jump.start} of {jump.partition} to {jump.end} without a seek "
            f"and was not given {named}",
            jump.sighting.number,
            *(at[offset].began for offset in offsets),
        )


def _between(offsets: list[int], jump: Jump) -> range:
    """Which of the sorted offsets lie below the jump."""
    return range(bisect_left(offsets, jump.start), bisect_left(offsets, jump.end))
