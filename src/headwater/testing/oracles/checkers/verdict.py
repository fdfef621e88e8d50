"""From a history to its violations, in one walk over the events and one over what they left behind.

Time and memory grow with the history alone: a write costs a few hundred bytes, a poll of what is known already nothing.
"""

from collections.abc import Iterable

from headwater.testing.oracles.checkers.events import (
    Assigned,
    BrokenHistory,
    CallOutcome,
    CommitBegan,
    CommitEnded,
    CutOff,
    Event,
    FinalRead,
    OffsetsAdded,
    OffsetsRead,
    Polled,
    SendBegan,
    SendEnded,
    Sought,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
)
from headwater.testing.oracles.checkers.group_offsets import ObservedGroupOffsets
from headwater.testing.oracles.checkers.input_checker import InputChecker
from headwater.testing.oracles.checkers.ledger import Ledger
from headwater.testing.oracles.checkers.log_checker import LogChecker, Sighting
from headwater.testing.oracles.checkers.offset_checker import OffsetChecker
from headwater.testing.oracles.checkers.partition_log import PartitionLogs
from headwater.testing.oracles.checkers.poll_checker import PollChecker
from headwater.testing.oracles.checkers.transaction_checker import TransactionChecker
from headwater.testing.oracles.checkers.violations import Violation, Violations


def check(history: Iterable[Event]) -> list[Violation]:
    """What no broker that keeps its promises could have shown its clients; nothing is good.

    Raise `BrokenHistory` when the history contradicts itself: then it proves nothing."""
    evidence = _Evidence()
    for number, event in enumerate(history, 1):
        evidence.apply(number, event)
    return evidence.judge()


class _Evidence:
    def __init__(self) -> None:
        self._findings = Violations()
        self._ledger = Ledger()
        self._group_offsets = ObservedGroupOffsets()
        logs = self._logs = PartitionLogs()
        self._log_checker = LogChecker(self._ledger, logs, self._findings)
        self._poll_checker = PollChecker(logs, self._findings)
        self._transaction_checker = TransactionChecker(self._ledger, logs, self._group_offsets, self._findings)
        self._offset_checker = OffsetChecker(self._group_offsets, self._findings)
        self._input_checker = InputChecker(logs, self._group_offsets, self._findings)

    def apply(self, number: int, event: Event) -> None:
        match event:
            case Polled():
                self._polled(number, event)
            case SendBegan():
                self._log_checker.sent(self._ledger.send_began(number, event))
            case SendEnded():
                write = self._ledger.send_ended(number, event)
                if event.outcome is CallOutcome.OK:
                    self._log_checker.acknowledged(number, write, event)
            case TransactionBegan():
                self._ledger.transaction_began(number, event)
            case OffsetsAdded():
                starts = self._input_checker.take(event)
                self._group_offsets.added(event, self._ledger.offsets_added(number, event, starts))
            case TransactionEnding():
                self._ledger.transaction_ending(number, event)
            case TransactionEnded():
                self._ledger.transaction_ended(number, event)
            case CommitBegan():
                self._group_offsets.commit_began(number, event)
            case CommitEnded():
                self._group_offsets.commit_ended(number, event)
            case Assigned():
                self._poll_checker.assigned(event)
                self._input_checker.assigned(event)
            case Sought():
                self._poll_checker.sought(event)
                self._input_checker.sought(event)
            case FinalRead():
                self._final_read(number, event)
            case OffsetsRead():
                self._group_offsets.read(number, event)
            case CutOff():
                raise BrokenHistory(
                    f"operation {number}: the recorder stopped here, at its limit of {event.max_events} events; "
                    "record a shorter run or raise max_events"
                )

    def judge(self) -> list[Violation]:
        self._log_checker.judge()
        self._poll_checker.judge(self._log_checker)
        self._transaction_checker.judge()
        self._offset_checker.judge()
        self._input_checker.judge()
        return self._findings.violations()

    def _polled(self, number: int, event: Polled) -> None:
        sighting = Sighting(number, f"consumer {event.consumer}", event.isolation)
        self._transaction_checker.about_to_be_seen(sighting, event.partition, event.records)
        self._log_checker.seen(sighting, event.partition, event.records, is_final=False)
        self._poll_checker.polled(sighting, event)
        self._input_checker.polled(event)

    def _final_read(self, number: int, event: FinalRead) -> None:
        sighting = Sighting(number, "final read", event.isolation)
        self._transaction_checker.about_to_be_seen(sighting, event.partition, event.records)
        self._log_checker.seen(sighting, event.partition, event.records, is_final=True)
        self._poll_checker.final_read(sighting, event.partition, event.start, event.records)
        self._logs[event.partition].note_final(event.isolation, event.start, event.end)
