"""/v1/topics/{topic}/records: writing records and reading them, without a group."""

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol

from confluent_kafka import Message
from msgspec import UNSET, Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from headwater.gateway.http.bodies import Budget
from headwater.gateway.http.metrics import HttpMetrics
from headwater.gateway.http.openapi import Operation, answer
from headwater.gateway.http.problems import bad_request
from headwater.gateway.kafka.known_topics import KnownTopics
from headwater.gateway.kafka.reading import ReadRequest, RecordReader
from headwater.gateway.records.positions import HELP, parse_position
from headwater.gateway.records.produce import RAW_HEADER, RawQuery, WrittenRecords
from headwater.gateway.records.record_json import (
    MAX_INT32,
    Offset,
    RecordIn,
    RecordOut,
    RecordsIn,
    SchemaOut,
    record_out,
)
from headwater.model.position import Anchor, Position

MAX_LIMIT = 10_000
MAX_BYTES = 16 * 1024 * 1024
MAX_WAIT_MS = 30_000
PATH = "/v1/topics/{topic}/records"


class ReadQuery(Struct, rename={"from_": "from"}):
    partition: Annotated[int, Meta(ge=0, le=MAX_INT32, description="All of them, if absent.")] | None = None
    offset: Annotated[Offset, Meta(description="Begin here; needs a partition.")] | None = None
    from_: Annotated[str, Meta(description=f"Or begin there: {HELP}.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 100
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_BYTES, description="At least one record is given.")] = 1024 * 1024
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS, description="Wait so long for a first record.")] = 0
    key: Annotated[str, Meta(max_length=1024, description="Only records with this key.")] | None = None
    decode: Annotated[Literal["schema"], Meta(description="Decode values by the registry.")] | None = None


class ReadRecords(Struct):
    records: list[RecordOut]
    next: dict[str, int]
    """By partition: where to go on."""
    ends: dict[str, int]
    """By partition: where it ended when it was read."""


class ValueDecoder(Protocol):
    async def decode(self, topic: str, value: bytes) -> tuple[Any, dict[str, Any]] | None:
        """The value as JSON and what is known of its schema; None if it is not in the registry's wire format."""


class RecordRoutes:
    def __init__(
        self, topics: KnownTopics, reader: RecordReader, decoder: ValueDecoder, budget: Budget, metrics: HttpMetrics
    ) -> None:
        self._topics = topics
        self._reader = reader
        self._decoder = decoder
        self._budget = budget
        self._metrics = metrics

    def operations(self) -> list[Operation]:
        return [
            WRITE_RECORDS,
            Operation(
                "GET", PATH, self.read_records, "Read records without a group",
                tag="records", query=ReadQuery, answers={200: ReadRecords}, problems=(404, 414, 502),
            ),
        ]  # fmt: skip

    async def read_records(self, request: Request, query: ReadQuery) -> Response:
        topic: str = request.path_params["topic"]
        if query.offset is not None and (query.partition is None or query.from_ is not None):
            raise bad_request("An offset needs a partition, and cannot be beside from.")
        read_request = ReadRequest(
            topic=topic,
            position=_position(query),
            partitions=await self._partitions(topic, query.partition),
            limit=query.limit,
            max_bytes=query.max_bytes,
            wait_ms=query.wait_ms,
            key=query.key.encode() if query.key is not None else None,
        )
        with self._budget.hold(query.max_bytes):
            result = await self._reader.read(read_request)
            records = [await self._decoded(topic, message, query.decode) for message in result.records]
            self._metrics.records_read += len(records)
            return answer(ReadRecords(records, _by_name(result.next), _by_name(result.ends)))

    async def _partitions(self, topic: str, partition: int | None) -> tuple[int, ...]:
        if partition is None:
            return tuple(range(await self._topics.partitions_of(topic)))
        await self._topics.check_partition(topic, partition)
        return (partition,)

    async def _decoded(self, topic: str, message: Message, decode: str | None) -> RecordOut:
        record = record_out(message)
        value = message.value()
        if decode is not None and value is not None:
            decoded = await self._decoder.decode(topic, value)
            if decoded is not None:
                record.value, schema = decoded
                record.value_base64 = UNSET
                record.schema = SchemaOut(**schema)
        return record


WRITE_RECORDS = Operation(
    "POST",
    PATH,
    None,
    "Write one record or many",
    operation_id="produce_records",
    tag="records",
    query=RawQuery,
    bodies={
        "application/json": {
            "oneOf": [{"$ref": "#/components/schemas/RecordIn"}, {"$ref": "#/components/schemas/RecordsIn"}]
        },
        "application/x-ndjson": {"type": "string", "description": "A record in JSON on each line."},
        "application/octet-stream": {"description": "The value of one record, as it is.", "format": "binary"},
    },
    also=(RecordIn, RecordsIn),
    headers={
        "Idempotency-Key": "The same request again with the same key is answered as before and writes nothing.",
        f"{RAW_HEADER}example": "For a raw body: a header of the record, here with the name example.",
    },
    answers={200: WrittenRecords, 207: WrittenRecords},
    problems=(404, 422, 502),
)
"""Answered by `Produce` at the front door; here it is described."""


def _position(query: ReadQuery) -> Position:
    if query.offset is not None:
        return Position(Anchor.OFFSET, query.offset)
    return parse_position(query.from_ or "beginning", time.time_ns() // 1_000_000)


def _by_name(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}
