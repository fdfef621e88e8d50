"""/v1/topics/{topic}/records: writing records and reading them, without a group."""

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.gateway.context import Context
from headwater.gateway.http.problems import bad_request
from headwater.gateway.kafka.reading import ReadRequest
from headwater.gateway.openapi import answer, operation
from headwater.gateway.records.positions import HELP, parse_position
from headwater.gateway.records.produce import RAW_HEADER, Produce, RawQuery, WrittenRecords
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

__all__ = ["Produce", "routes"]

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


def routes(context: Context) -> list[BaseRoute]:
    produce = Produce(context)

    async def produce_records(request: Request) -> Response:
        status, body, headers = await produce(
            request.path_params["topic"], request.scope["query_string"], request.headers, request.receive
        )
        return Response(body, status, headers=headers, media_type="application/json")

    async def read_records(request: Request, query: ReadQuery) -> Response:
        topic: str = request.path_params["topic"]
        if query.offset is not None and (query.partition is None or query.from_ is not None):
            raise bad_request("An offset needs a partition, and cannot be beside from.")
        position = _position(query)
        if query.partition is not None:
            await context.topics.check_partition(topic, query.partition)
            partitions: tuple[int, ...] = (query.partition,)
        else:
            partitions = tuple(range(await context.topics.partitions_of(topic)))
        key = query.key.encode() if query.key is not None else None
        with context.budget.hold(query.max_bytes):
            read = await context.reader.read(
                ReadRequest(topic, partitions, position, query.limit, query.max_bytes, query.wait_ms, key)
            )
            records = [await _shown(context, topic, message, query.decode) for message in read.records]
            context.metrics.records_read += len(records)
            return answer(ReadRecords(records, _by_name(read.next), _by_name(read.ends)))

    return [
        operation(
            "POST",
            PATH,
            produce_records,
            "Write one record or many",
            context,
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
        ),
        operation(
            "GET",
            PATH,
            read_records,
            "Read records without a group",
            context,
            tag="records",
            query=ReadQuery,
            answers={200: ReadRecords},
            problems=(404, 414, 502),
        ),
    ]


def _position(query: ReadQuery) -> Position:
    if query.offset is not None:
        return Position(Anchor.OFFSET, query.offset)
    return parse_position(query.from_ or "beginning", time.time_ns() // 1_000_000)


async def _shown(context: Context, topic: str, message: Any, decode: str | None) -> RecordOut:
    record = record_out(message)
    value = message.value()
    if decode is not None and value is not None and context.value_decoder is not None:
        decoded = await context.value_decoder.decode(topic, value)
        if decoded is not None:
            record.value, schema = decoded
            record.value_base64 = UNSET
            record.schema = SchemaOut(**schema)
    return record


def _by_name(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}
