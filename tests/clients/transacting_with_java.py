"""Transactions by Java's client, which uses the newer protocol (KIP-890) where the broker offers it."""

import base64
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tests.clients.judged import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Refused
from tests.clients.transacting import (
    CLASSIC,
    CONSUMER,
    FETCH_WAIT_MS,
    READ_COMMITTED,
    TRANSACTION_TIMEOUT_MS,
    Fenced,
    Member,
    Place,
    Seen,
    Sent,
)
from tests.clients.with_java import JavaClient

FENCED = ("ProducerFencedException", "InvalidProducerEpochException")
_names = itertools.count(1)


class JavaTransactionalProducer:
    def __init__(self, java: JavaClient, transactional_id: str, timeout_ms: int) -> None:
        self._java = java
        self._name = f"producer-{next(_names)}"
        self._ask("txnOpen", transactionalId=transactional_id, timeoutMs=timeout_ms)

    def begin(self) -> None:
        self._ask("txnBegin")

    def send(self, records: Sequence[Sent]) -> list[int]:
        rows = [[record.topic, record.partition, base64.b64encode(record.value).decode()] for record in records]
        offsets: list[int] = self._ask("txnSend", records=rows)
        return offsets

    def send_offsets(self, group: Member | str, positions: Mapping[Place, int]) -> None:
        rows = [[*place, offset] for place, offset in positions.items()]
        is_name = isinstance(group, str)
        reader = None if is_name else group.name  # type: ignore[union-attr]
        self._ask("txnSendOffsets", positions=rows, group=group if is_name else None, reader=reader)

    def commit(self) -> None:
        self._ask("txnCommit")

    def abort(self) -> None:
        self._ask("txnAbort")

    def close(self) -> None:
        self._ask("txnClose")

    def _ask(self, verb: str, **details: Any) -> Any:
        try:
            return self._java.ask(verb, producer=self._name, **details)
        except Refused as refused:
            if any(name in str(refused) for name in FENCED):
                raise Fenced(str(refused)) from refused
            raise


class JavaReader:
    """A reader by assignment, or a member of a group."""

    def __init__(self, java: JavaClient, name: str, is_member: bool) -> None:
        self._java = java
        self.name = name
        self._is_member = is_member

    def poll(self, timeout_s: float) -> list[Seen]:
        rows = self._java.ask("txnPoll", reader=self.name, timeoutMs=int(timeout_s * 1000))
        return [Seen(topic, partition, offset, base64.b64decode(value)) for topic, partition, offset, value in rows]

    def committed(self, place: Place) -> int | None:
        offset: int | None = self._java.ask("txnCommitted", reader=self.name, place=place)
        return offset

    def close(self) -> None:
        self._java.ask("txnLeave", reader=self.name, isMember=self._is_member)


class JavaTransactor:
    name = "java"
    protocols = (CLASSIC, CONSUMER)
    tells_membership = True

    def __init__(self, java: JavaClient) -> None:
        self._java = java

    def close(self) -> None:
        pass

    def producer(self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> JavaTransactionalProducer:
        return JavaTransactionalProducer(self._java, transactional_id, timeout_ms)

    def reader(
        self, places: Sequence[Place], isolation: str, wait_ms: int = FETCH_WAIT_MS, offset: int = 0
    ) -> JavaReader:
        name = f"reader-{next(_names)}"
        self._java.ask("txnRead", reader=name, places=places, isolation=isolation, waitMs=wait_ms, offset=offset)
        return JavaReader(self._java, name, is_member=False)

    def member(
        self, topic: str | None, group: str, protocol: str = CLASSIC, isolation: str = READ_COMMITTED
    ) -> JavaReader:
        name = f"reader-{next(_names)}"
        self._java.ask(
            "txnJoin",
            reader=name,
            topic=topic,
            group=group,
            protocol=protocol,
            isolation=isolation,
            waitMs=FETCH_WAIT_MS,
            heartbeatMs=HEARTBEAT_INTERVAL_MS,
            sessionMs=SESSION_TIMEOUT_MS,
        )
        return JavaReader(self._java, name, is_member=True)
