"""A record on its way to a reader."""

import asyncio
import base64
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from headwater.gateway.records.record_json import HeaderOut, RecordOut, text_or_base64
from headwater.records.record import Headers


class Delivery(Struct, gc=False, eq=False):
    """Identity is equality: the same record, delivered again, is another delivery."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    delivery_count: int = 0
    """Of a queue: 1 when it is delivered first."""
    lease: int = 0
    """Of a queue: the number of its lease. Of a stream: the number of its partition's assignment to the member."""
    failures: int = 0
    """How often pushing it has failed here."""

    @property
    def size_bytes(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


async def handed_over(
    promised: "asyncio.Future[list[Delivery]]", until_s: float, take_back: Callable[[list[Delivery]], None]
) -> list[Delivery]:
    """The records that a reader waits for; none when the loop's clock reaches `until_s`. If the reader is cancelled at
    the moment at which it is given records, `take_back` gets them."""
    try:
        async with asyncio.timeout_at(until_s):
            return await promised
    except TimeoutError:
        return []
    except asyncio.CancelledError:
        if promised.done() and not promised.cancelled():
            take_back(promised.result())
        raise


class DeliveredRecord(RecordOut, kw_only=True):
    """A record and how to acknowledge it."""

    topic: str
    ack_id: str | UnsetType = UNSET
    delivery_count: int | UnsetType = UNSET


def delivered_record(delivery: Delivery, ack_id: str | None) -> DeliveredRecord:
    """As JSON; streams have no ack id."""
    record = DeliveredRecord(
        partition=delivery.partition,
        offset=delivery.offset,
        timestamp=delivery.timestamp_ms,
        headers=[HeaderOut(name, *text_or_base64(value)) for name, value in delivery.headers],
        size=delivery.size_bytes,
        topic=delivery.topic,
    )
    record.key, key_base64 = _text_or_base64(delivery.key)
    record.value, value_base64 = _text_or_base64(delivery.value)
    if key_base64 is not UNSET:
        record.key_base64 = key_base64
    if value_base64 is not UNSET:
        record.value_base64 = value_base64
    if ack_id is not None:
        record.ack_id, record.delivery_count = ack_id, delivery.delivery_count
    return record


def _text_or_base64(content: bytes | None) -> tuple[Any, str | UnsetType]:
    if content is None:
        return None, UNSET
    try:
        return content.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, base64.b64encode(content).decode()
