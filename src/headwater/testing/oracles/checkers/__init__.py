"""Judge a run by what its clients saw: record a history, then `check` it.

    recorder = Recorder()
    recorder.send("p1", "orders", "v1")             # before the call; acknowledged(...) in the delivery report
    recorder.polled("c1", "read_committed", [("orders", 0, 7, "v1")])
    for violation in check(recorder.history()):
        print(violation)

The checkers know no broker and no client library. What a history consists of is in `events.py`, what is promised in
`violations.py`. `python -m headwater.testing.oracles.checkers FILE.jsonl` checks a history that was written to a file.
"""

from headwater.testing.oracles.checkers.events import BrokenHistory, CallOutcome, Isolation, TopicPartition
from headwater.testing.oracles.checkers.history import History
from headwater.testing.oracles.checkers.recorder import HistoryFull, Recorder
from headwater.testing.oracles.checkers.verdict import check
from headwater.testing.oracles.checkers.violations import Violation, ViolationKind

__all__ = [
    "BrokenHistory",
    "History",
    "HistoryFull",
    "Isolation",
    "ViolationKind",
    "CallOutcome",
    "Recorder",
    "TopicPartition",
    "Violation",
    "check",
]
