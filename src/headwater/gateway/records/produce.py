"""What happens to a request that writes records: read it in one of its forms, check, write, tell."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct
from starlette.types import Receive

from headwater.gateway.context import Context
from headwater.gateway.http.bodies import check_announced, read_body
from headwater.gateway.http.problems import Problem, bad_request, too_busy
from headwater.gateway.kafka.admin import is_internal
from headwater.gateway.kafka.errors import problem_of, reason
from headwater.gateway.kafka.producer import Delivered, Outcome, OutgoingRecord
from headwater.gateway.openapi.operation import JSON, MAX_QUERY_BYTES
from headwater.gateway.records.idempotency_slot import Asked
from headwater.gateway.records.record_json import MAX_HEADERS, Partition, Timestamp, parse_lines, parse_produce

RAW_HEADER = "Headwater-Header-"
_RAW_HEADER = RAW_HEADER.lower()
NDJSON = "application/x-ndjson"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
"""What clients say when nobody told them what they send."""
PARSERS: Mapping[str, Callable[[bytes], list[OutgoingRecord]]] = {JSON: parse_produce, NDJSON: parse_lines}
MAX_QUERY_FIELDS = 16

Answer = tuple[int, bytes, Mapping[str, str] | None]


class RawQuery(Struct, forbid_unknown_fields=True):
    """Beside a raw body, which is a value and nothing else."""

    key: Annotated[str, Meta(description="For a raw body.")] | None = None
    partition: Annotated[Partition, Meta(description="For a raw body.")] | None = None
    timestamp: Annotated[Timestamp, Meta(description="For a raw body.")] | None = None


class RefusalOut(Struct):
    code: str
    message: str


class WrittenRecord(Struct, omit_defaults=True):
    """Where the record is, or why it is nowhere."""

    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    error: RefusalOut | None = None


class WrittenRecords(Struct):
    records: list[WrittenRecord]


class Produce:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._config = context.config

    async def __call__(self, topic: str, query: bytes, headers: Mapping[str, str], receive: Receive) -> Answer:
        content_type = headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
        if content_type in FORMS:
            raise Problem(
                415, "Unsupported media type",
                f"Say what the body is: Content-Type {JSON}, {NDJSON} or application/octet-stream.",
            )  # fmt: skip
        if is_internal(topic):
            raise Problem(403, "Forbidden", f"{topic} belongs to the cluster itself; nobody else writes to it.")
        parse = PARSERS.get(content_type)
        limit_bytes = self._config.max_body_bytes if parse is not None else self._config.max_record_bytes
        check_announced(headers.get("content-length"), limit_bytes)
        context = self._context
        partitions = context.topics.known(topic)
        if partitions is None:
            partitions = await context.topics.partitions_of(topic)
        body = await read_body(receive, headers, limit_bytes, context.budget)
        if parse is None:
            records = [_raw_record(body, query, headers)]
        elif query:
            raise bad_request("Parameters in the query are for raw bodies; a record in JSON has fields for them.")
        else:
            records = parse(body)
        size_bytes = self._check_sizes(records)
        for record in records:
            if record.partition >= partitions:
                await context.topics.check_partition(topic, record.partition)
        key = headers.get("idempotency-key")
        if key is not None:
            asked = Asked(key, _fingerprint(topic, query, content_type, headers, body), topic, records)
            with context.budget.hold(size_bytes):
                written = await context.memos.write_once(asked)
            return self._told(topic, written.outcomes, {"Idempotent-Replayed": "true"} if written.is_replay else None)
        return self._told(topic, await context.producer.send(topic, records, size_bytes))

    def _check_sizes(self, records: Sequence[OutgoingRecord]) -> int:
        limit_bytes = self._config.max_record_bytes
        total_bytes = 0
        for index, record in enumerate(records):
            size_bytes = record.size_bytes
            if size_bytes > limit_bytes:
                raise Problem(
                    413, "Content too large",
                    f"Record {index} has {size_bytes} bytes; no record may have more than {limit_bytes}. "
                    "Nothing was written.",
                    limit_bytes=limit_bytes, index=index,
                )  # fmt: skip
            total_bytes += size_bytes
        return total_bytes

    def _told(self, topic: str, outcomes: Sequence[Outcome], headers: Mapping[str, str] | None = None) -> Answer:
        metrics = self._context.metrics
        if len(outcomes) == 1 and isinstance(outcomes[0], Delivered):
            metrics.records_written += 1
            one = outcomes[0]
            body = b'{"records":[{"partition":%d,"offset":%d,"timestamp":%d}]}'
            return 200, body % (one.partition, one.offset, one.timestamp), headers
        refused = [outcome for outcome in outcomes if not isinstance(outcome, Delivered)]
        metrics.records_written += len(outcomes) - len(refused)
        metrics.records_refused += len(refused)
        if not refused:
            return 200, msgspec.json.encode({"records": outcomes}), headers
        if len(refused) == len(outcomes):
            self._context.topics.forget(topic)  # if it is gone, the next request learns it at once
            raise _refusal(refused[0], topic)
        told = [each if isinstance(each, Delivered) else {"error": _error(each)} for each in outcomes]
        return 207, msgspec.json.encode({"records": told}), headers


def _raw_record(body: bytes, query: bytes, headers: Mapping[str, str]) -> OutgoingRecord:
    given = _raw_query(query) if query else RawQuery()
    own = [
        (name[len(_RAW_HEADER) :], value.encode("latin-1"))
        for name, value in headers.items()
        if name.startswith(_RAW_HEADER)
    ]
    if len(own) > MAX_HEADERS:
        raise bad_request(f"A record has no more than {MAX_HEADERS} headers here.")
    return OutgoingRecord(
        body,
        None if given.key is None else given.key.encode(),
        own or None,
        -1 if given.partition is None else given.partition,
        given.timestamp or 0,
    )


def _raw_query(query: bytes) -> RawQuery:
    if len(query) > MAX_QUERY_BYTES:
        raise Problem(414, "URI too long", f"The query is longer than {MAX_QUERY_BYTES} bytes.")
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
        given = dict(pairs)
        if len(given) < len(pairs):
            raise bad_request("A parameter of the query is given twice.")
        return msgspec.convert(given, RawQuery, strict=False)
    except ValueError as error:
        raise bad_request(f"The query cannot be read: {error}.") from None


def _fingerprint(topic: str, query: bytes, content_type: str, headers: Mapping[str, str], body: bytes) -> str:
    """Two requests with the same one ask for the same."""
    own = sorted((name, value) for name, value in headers.items() if name.startswith(_RAW_HEADER))
    head = msgspec.json.encode((topic, query.decode("latin-1"), content_type, own))
    return hashlib.blake2b(head + b"\n" + body, digest_size=32).hexdigest()


def _refusal(error: Any, topic: str) -> Problem:
    if error.name() == "_QUEUE_FULL":
        return too_busy("The gateway holds as many records as it may. Try it again in a moment.")
    return problem_of(error, topic=topic)


def _error(error: Any) -> dict[str, str]:
    return {"code": error.name(), "message": reason(error)}
