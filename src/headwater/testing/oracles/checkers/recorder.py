"""Notes what clients do and see, from any thread and any client library, and makes a history of it.

The order of the notes is the proof, so the order of the calls matters: note a send, a commit or an abort before the
client does it, and its outcome, a poll or a read after the client has answered.

    transaction = recorder.begin("p1")
    recorder.send("p1", "orders", "v1", transaction=transaction)
    producer.produce("orders", b"v1", on_delivery=...)        # there: recorder.acknowledged("orders", "v1", 0, 7)
    recorder.commit(transaction)
    producer.commit_transaction()
    recorder.ended(transaction, "ok")

With a path, each note is in the file before the call returns, so it outlives a process that is killed. Each process
writes its own file; `History.read` puts the files of one machine in order.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import BinaryIO, TypeAlias

from headwater.testing.oracles.checkers.events import (
    Assigned,
    CallOutcome,
    CommitBegan,
    CommitEnded,
    CutOff,
    Event,
    FinalRead,
    Isolation,
    OffsetsAdded,
    OffsetsRead,
    Polled,
    SendBegan,
    SendEnded,
    Sought,
    TopicPartition,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
)
from headwater.testing.oracles.checkers.history import History
from headwater.testing.oracles.checkers.json_lines import MAX_RECORDS_PER_EVENT, MAX_TEXT_CHARS, Stamped, encode

MAX_EVENTS = 10_000_000

Text: TypeAlias = str | bytes
Partition: TypeAlias = tuple[str, int]
"""(topic, partition)"""


class HistoryFull(Exception):
    """The recorder has reached its limit. A history that goes on without some of its events would accuse the innocent,
    so nothing more is taken, and the history is not given out."""


class Recorder:
    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_events: int = MAX_EVENTS,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Without a path the events are kept in memory. A file must not exist yet."""
        self._path = None if path is None else Path(path)
        self._file: BinaryIO | None = None if self._path is None else self._path.open("xb")
        self._kept: list[Event] = []
        self._max_events = max_events
        self._clock_ns = clock_ns
        self._lock = Lock()
        self._count = 0
        self._names = itertools.count(1)

    # Producers

    def send(
        self,
        producer: str,
        topic: str,
        value: Text,
        *,
        partition: int | None = None,
        transaction: str | None = None,
        key: Text | None = None,
        is_idempotent: bool = True,
    ) -> None:
        """About to be sent. The value must be the only one of its kind in the topic."""
        key = None if key is None else _text(key)
        self._note(
            SendBegan(
                producer=producer,
                topic=topic,
                value=_text(value),
                partition=partition,
                transaction=transaction,
                key=key,
                is_idempotent=is_idempotent,
            )
        )

    def acknowledged(self, topic: str, value: Text, partition: int, offset: int | None = None) -> None:
        """Clients that do not know the offset may say -1."""
        self._note(SendEnded(topic, _text(value), CallOutcome.OK, partition, _known(offset)))

    def send_failed(self, topic: str, value: Text) -> None:
        """For certain: it was refused, or never left. A time-out is `send_unknown`."""
        self._note(SendEnded(topic, _text(value), CallOutcome.FAILED))

    def send_unknown(self, topic: str, value: Text) -> None:
        """The same as saying nothing."""
        self._note(SendEnded(topic, _text(value), CallOutcome.UNKNOWN))

    # Transactions

    def begin(self, producer: str, name: str | None = None) -> str:
        """The name of the transaction for the calls below."""
        transaction = f"{producer}/{next(self._names)}" if name is None else name
        self._note(TransactionBegan(transaction, producer))
        return transaction

    def send_offsets(
        self, transaction: str, group: str, offsets: Mapping[Partition, int], consumer: str | None = None
    ) -> None:
        """About to be added to the transaction. `consumer` is whose polls the transaction processes."""
        self._note(OffsetsAdded(transaction, group, _offsets(offsets), consumer))

    def commit(self, transaction: str) -> None:
        """About to be asked for."""
        self._note(TransactionEnding(transaction, is_commit=True))

    def abort(self, transaction: str) -> None:
        """About to be asked for."""
        self._note(TransactionEnding(transaction, is_commit=False))

    def ended(self, transaction: str, outcome: CallOutcome | str) -> None:
        """How the commit or abort ended. A commit is "failed" when it certainly did not and will not happen (the client
        says that the transaction must be aborted, or that the producer is fenced), "unknown" after a time-out."""
        self._note(TransactionEnded(transaction, CallOutcome(outcome)))

    # Consumers

    def assigned(self, consumer: str, positions: Mapping[Partition, int | None] | Iterable[Partition]) -> None:
        """All partitions of the consumer from now on, with its positions where they are known."""
        known = positions if isinstance(positions, Mapping) else dict.fromkeys(positions)
        self._note(Assigned(consumer, _positions(known)))

    def sought(self, consumer: str, topic: str, partition: int, position: int | None = None) -> None:
        """None, or any negative number, for positions that have no number yet, such as the end."""
        self._note(Sought(consumer, TopicPartition(topic, partition), _known(position)))

    def polled(
        self,
        consumer: str,
        isolation: Isolation | str,
        records: Iterable[tuple[str, int, int, Text]],
        *,
        before: Mapping[Partition, int] | None = None,
        after: Mapping[Partition, int] | None = None,
    ) -> None:
        """(topic, partition, offset, value) of each record, in the order of delivery, and the positions of the consumer
        before and after the poll if the client tells them."""
        isolation, before, after = Isolation(isolation), before or {}, after or {}
        found: dict[Partition, list[tuple[int, str]]] = {partition: [] for partition in (*before, *after)}
        for topic, index, offset, value in records:
            found.setdefault((topic, index), []).append((offset, _text(value)))
        for partition, of_partition in found.items():
            pieces = _pieces(of_partition)
            for index, piece in enumerate(pieces):
                start = _known(before.get(partition)) if index == 0 else None
                end = _known(after.get(partition)) if index == len(pieces) - 1 else None
                self._note(Polled(consumer, isolation, TopicPartition(*partition), piece, start, end))

    # Groups

    def commit_offsets(self, group: str, offsets: Mapping[Partition, int], name: str | None = None) -> str:
        """About to be committed, outside a transaction. The name of the commit for `commit_ended`."""
        commit = f"{group}/{next(self._names)}" if name is None else name
        self._note(CommitBegan(commit, group, _offsets(offsets)))
        return commit

    def commit_ended(self, commit: str, outcome: CallOutcome | str) -> None:
        self._note(CommitEnded(commit, CallOutcome(outcome)))

    def offsets_read(
        self, reader: str, group: str, offsets: Mapping[Partition, int | None], *, is_final: bool = False
    ) -> None:
        """What the group had committed; None, or any negative number, where it had nothing."""
        self._note(OffsetsRead(reader, group, _positions(offsets), is_final))

    # The end

    def final_read(
        self,
        isolation: Isolation | str,
        topic: str,
        partition: int,
        records: Sequence[tuple[int, Text]],
        *,
        start: int = 0,
        end: int,
    ) -> None:
        """The partition from `start` to its end, or in several calls piece by piece, when all clients have ended. `end`
        is where the reader stands afterwards: the high watermark, or the last stable offset."""
        position = start
        pieces = _pieces([(offset, _text(value)) for offset, value in records])
        for index, piece in enumerate(pieces):
            until = end if index == len(pieces) - 1 else piece[-1][0] + 1
            self._note(FinalRead(Isolation(isolation), TopicPartition(topic, partition), piece, position, until))
            position = until

    def history(self) -> History:
        """What was noted so far."""
        with self._lock:
            if self._count > self._max_events:
                raise HistoryFull(f"more than {self._max_events} events: record a shorter run or raise max_events")
            return History(self._kept) if self._path is None else History.read(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note(self, event: Event) -> None:
        with self._lock:
            self._count += 1
            if self._count > self._max_events:
                if self._count == self._max_events + 1:
                    self._keep(CutOff(self._max_events))
                raise HistoryFull(f"more than {self._max_events} events: record a shorter run or raise max_events")
            self._keep(event)

    def _keep(self, event: Event) -> None:
        if self._file is None:
            self._kept.append(event)
        else:
            self._file.write(encode(Stamped(self._clock_ns(), event)))
            self._file.flush()


def _text(value: Text) -> str:
    text = value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")
    if len(text) > MAX_TEXT_CHARS:
        raise ValueError(f"a value of {len(text)} characters: record a digest of at most {MAX_TEXT_CHARS} instead")
    return text


def _known(offset: int | None) -> int | None:
    """Clients have negative numbers for offsets that they do not know."""
    return None if offset is None or offset < 0 else offset


def _offsets(offsets: Mapping[Partition, int]) -> tuple[tuple[TopicPartition, int], ...]:
    if any(offset < 0 for offset in offsets.values()):
        raise ValueError(f"a negative offset cannot be committed: {dict(offsets)}")
    return tuple((TopicPartition(*partition), offset) for partition, offset in offsets.items())


def _positions(positions: Mapping[Partition, int | None]) -> tuple[tuple[TopicPartition, int | None], ...]:
    return tuple((TopicPartition(*partition), _known(offset)) for partition, offset in positions.items())


def _pieces(records: list[tuple[int, str]]) -> list[tuple[tuple[int, str], ...]]:
    """At least one, so that a poll that brings nothing is noted, too."""
    starts = range(0, max(len(records), 1), MAX_RECORDS_PER_EVENT)
    return [tuple(records[start : start + MAX_RECORDS_PER_EVENT]) for start in starts]
