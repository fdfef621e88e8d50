"""A pipeline through any client, all of whose calls are noted for the history checkers.

It reads a partition, writes two records for each that it reads, and commits what it wrote and how far it read as one
transaction; some transactions are aborted, some are left behind by a producer that is replaced, and some of those
left behind are tried to be committed nevertheless. Whatever a client raises, the pipeline goes on from what its group
has committed, with another producer."""

import random
import time
from collections.abc import Sequence
from typing import Any

from headwater.testing.oracles.checkers import Recorder
from tests.clients.judged import Refused
from tests.clients.transacting import (
    READ_COMMITTED,
    Fenced,
    Place,
    Reader,
    Seen,
    Sent,
    TransactionalProducer,
    Transactor,
)

INPUTS_PER_TRANSACTION = 5
PATIENCE_S = 60.0
ABORTED, ABANDONED, FENCED = 0.15, 0.1, 0.1
"""How often a transaction is aborted, left behind, or committed by a producer that has been replaced."""


class RecordedPipeline:
    """One partition of the input, and a group of its own."""

    def __init__(
        self, transactor: Transactor, recorder: Recorder, source: Place, outputs: Sequence[Place], seed: int
    ) -> None:
        self._transactor = transactor
        self._recorder = recorder
        self.source = source
        self._outputs = outputs
        self._dice = random.Random(f"{transactor.name} {seed}")
        self.group = f"pipeline-{transactor.name}"
        self._lives = 0
        self._transactions = 0
        self._deadline_s = time.monotonic() + PATIENCE_S
        self.committed = 0
        """How far it has come."""

    def run(self, inputs: int) -> None:
        while self.committed < inputs:
            assert time.monotonic() < self._deadline_s, f"{self.group} came to {self.committed} of {inputs}"
            try:
                self._live(inputs)
            except (Fenced, Refused):
                continue  # a life ends; what became of its last transaction, the next finds out

    def _live(self, inputs: int) -> None:
        """Until something fails, or is made to."""
        self._lives += 1
        name = f"{self.group}-{self._lives}"
        producer = self._transactor.producer(self.group)
        reader: Reader | None = None
        try:
            self.committed = self._find_committed(name)
            reader = self._transactor.reader([self.source], READ_COMMITTED, offset=self.committed)
            self._recorder.assigned(name, {self.source: self.committed})
            waiting: list[Seen] = []
            while self.committed < inputs:
                assert time.monotonic() < self._deadline_s, f"{self.group} came to {self.committed} of {inputs}"
                if not waiting:
                    waiting = reader.poll(0.2)
                    rows = [(record.topic, record.partition, record.offset, record.value) for record in waiting]
                    self._recorder.polled(name, READ_COMMITTED, rows)
                    continue
                if not self._transform(name, producer, waiting[:INPUTS_PER_TRANSACTION]):
                    return
                waiting = waiting[INPUTS_PER_TRANSACTION:]
        finally:
            producer.close()
            if reader is not None:
                reader.close()

    def _find_committed(self, name: str) -> int:
        asking = self._transactor.member(None, self.group)
        try:
            found = asking.committed(self.source)
        finally:
            asking.close()
        self._recorder.offsets_read(name, self.group, {self.source: found})
        return found or 0

    def _transform(self, name: str, producer: TransactionalProducer, records: Sequence[Seen]) -> bool:
        """One transaction; whether the pipeline goes on with this producer."""
        self._transactions += 1
        position = records[-1].offset + 1
        transaction = self._recorder.begin(name)
        producer.begin()
        for record in records:
            self._send(name, transaction, producer, record)
        self._recorder.send_offsets(transaction, self.group, {self.source: position}, name)
        producer.send_offsets(self.group, {self.source: position})
        fate = self._dice.random()
        if fate < ABANDONED:
            return False
        if fate < ABANDONED + ABORTED:
            self._recorder.abort(transaction)
            producer.abort()
            self._recorder.ended(transaction, "ok")
            return False
        if fate < ABANDONED + ABORTED + FENCED:
            self._transactor.producer(self.group).close()
        self._recorder.commit(transaction)
        try:
            producer.commit()
        except Fenced:
            self._recorder.ended(transaction, "failed")
            raise
        self._recorder.ended(transaction, "ok")
        self.committed = position
        return True

    def _send(self, name: str, transaction: str, producer: TransactionalProducer, record: Seen) -> None:
        sent = [
            Sent(
                *self._dice.choice(self._outputs), f"{self.group} {self._transactions} {record.offset} {copy}".encode()
            )
            for copy in range(2)
        ]
        for each in sent:
            self._recorder.send(name, each.topic, each.value, partition=each.partition, transaction=transaction)
        for each, offset in zip(sent, producer.send(sent), strict=True):
            self._recorder.acknowledged(each.topic, each.value, each.partition, offset)


class RecordedReader:
    """Reads along for as long as the pipelines run."""

    def __init__(self, transactor: Transactor, recorder: Recorder, places: Sequence[Place], isolation: str) -> None:
        self._recorder = recorder
        self._isolation = isolation
        self._name = f"{transactor.name}-{isolation}"
        self._reader = transactor.reader(places, isolation)
        recorder.assigned(self._name, dict.fromkeys(places, 0))

    def poll(self) -> None:
        records = self._reader.poll(0.05)
        rows: list[tuple[str, int, int, Any]] = [
            (record.topic, record.partition, record.offset, record.value) for record in records
        ]
        self._recorder.polled(self._name, self._isolation, rows)

    def close(self) -> None:
        self._reader.close()
