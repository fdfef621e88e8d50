"""What happens to a request that writes records: its body is read in one of three forms, checked, written, answered."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated
from urllib.parse import parse_qsl

import msgspec
from confluent_kafka import KafkaError
from msgspec import Meta, Struct
from starlette.types import Receive

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.bodies import Budget, check_announced, read_body
from headwater.gateway.http.metrics import HttpMetrics
from headwater.gateway.http.openapi.endpoint import MAX_QUERY_BYTES
from headwater.gateway.http.openapi.operation import JSON
from headwater.gateway.http.problems import Problem, bad_request
from headwater.gateway.kafka.admin import is_internal
from headwater.gateway.kafka.errors import ClientBusy, KafkaFailure
from headwater.gateway.kafka.known_topics import KnownTopics
from headwater.gateway.kafka.librdkafka_errors import failure_of, reason
from headwater.gateway.kafka.producer import (
    ANY_PARTITION,
    NOW,
    Delivered,
    DeliveryOutcome,
    OutgoingRecord,
    RecordProducer,
)
from headwater.gateway.records.idempotency_slot import KeyedRequest
from headwater.gateway.records.idempotent_requests import IdempotentRequests
from headwater.gateway.records.record_json import MAX_HEADERS, Partition, Timestamp, parse_lines, parse_produce

RAW_HEADER = "Headwater-Header-"
_RAW_HEADER = RAW_HEADER.lower()
NDJSON, RAW = "application/x-ndjson", "application/octet-stream"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
"""What curl and its like send when no Content-Type is given."""
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
    """Answers requests that write records."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        topics: KnownTopics,
        producer: RecordProducer,
        idempotent: IdempotentRequests,
        budget: Budget,
        metrics: HttpMetrics,
    ) -> None:
        self._config = config
        self._topics = topics
        self._producer = producer
        self._idempotent = idempotent
        self._budget = budget
        self._metrics = metrics

    async def __call__(self, topic: str, query: bytes, headers: Mapping[str, str], receive: Receive) -> Answer:
        """Raises Problem, KafkaFailure."""
        content_type = headers.get("content-type", RAW).partition(";")[0].strip().lower()
        if content_type in FORMS:
            raise Problem(
                415, "Unsupported media type", f"Say what the body is: Content-Type {JSON}, {NDJSON} or {RAW}."
            )
        if is_internal(topic):
            raise Problem(403, "Forbidden", f"{topic} belongs to the cluster itself; clients cannot write to it.")
        parse = PARSERS.get(content_type)
        limit_bytes = self._config.max_body_bytes if parse is not None else self._config.max_record_bytes
        check_announced(headers.get("content-length"), limit_bytes)
        partitions = self._topics.known(topic)
        if partitions is None:
            partitions = await self._topics.partitions_of(topic)
        body = await read_body(receive, headers, limit_bytes, self._budget)
        if parse is None:
            records = [_raw_record(body, query, headers)]
        elif query:
            raise bad_request("Parameters in the query are for raw bodies; a record in JSON has fields for them.")
        else:
            records = parse(body)
        size_bytes = self._check_sizes(records)
        for record in records:
            if record.partition >= partitions:
                await self._topics.check_partition(topic, record.partition)
        key = headers.get("idempotency-key")
        if key is None:
            return self._answer(topic, await self._producer.send(topic, records, size_bytes))
        keyed = KeyedRequest(key, _fingerprint(topic, query, content_type, headers, body), topic, records)
        with self._budget.hold(size_bytes):
            written = await self._idempotent.write_once(keyed)
        return self._answer(topic, written.outcomes, {"Idempotent-Replayed": "true"} if written.is_replay else None)

    def _check_sizes(self, records: Sequence[OutgoingRecord]) -> int:
        """The bytes of all records. Raises Problem if one of them is too large."""
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

    def _answer(
        self, topic: str, outcomes: Sequence[DeliveryOutcome], headers: Mapping[str, str] | None = None
    ) -> Answer:
        metrics = self._metrics
        if len(outcomes) == 1 and isinstance(outcomes[0], Delivered):
            metrics.records_written += 1
            one = outcomes[0]
            body = b'{"records":[{"partition":%d,"offset":%d,"timestamp":%d}]}'
            return 200, body % (one.partition, one.offset, one.timestamp), headers
        errors = [outcome for outcome in outcomes if not isinstance(outcome, Delivered)]
        metrics.records_written += len(outcomes) - len(errors)
        metrics.records_refused += len(errors)
        if not errors:
            return 200, msgspec.json.encode({"records": outcomes}), headers
        if len(errors) == len(outcomes):
            self._topics.forget(topic)  # if it was deleted, the next request learns it at once
            raise _failure(errors[0], topic)
        records = [each if isinstance(each, Delivered) else {"error": _error(each)} for each in outcomes]
        return 207, msgspec.json.encode({"records": records}), headers


def _raw_record(body: bytes, query: bytes, headers: Mapping[str, str]) -> OutgoingRecord:
    parameters = _raw_query(query) if query else RawQuery()
    own = [
        (name[len(_RAW_HEADER) :], value.encode("latin-1"))
        for name, value in headers.items()
        if name.startswith(_RAW_HEADER)
    ]
    if len(own) > MAX_HEADERS:
        raise bad_request(f"A record has no more than {MAX_HEADERS} headers here.")
    return OutgoingRecord(
        body,
        None if parameters.key is None else parameters.key.encode(),
        own or None,
        ANY_PARTITION if parameters.partition is None else parameters.partition,
        parameters.timestamp or NOW,
    )


def _raw_query(query: bytes) -> RawQuery:
    if len(query) > MAX_QUERY_BYTES:
        raise Problem(414, "URI too long", f"The query is longer than {MAX_QUERY_BYTES} bytes.")
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
        parameters = dict(pairs)
        if len(parameters) < len(pairs):
            raise bad_request("A parameter of the query is given twice.")
        return msgspec.convert(parameters, RawQuery, strict=False)
    except ValueError as error:
        raise bad_request(f"The query cannot be read: {error}.") from None


def _fingerprint(topic: str, query: bytes, content_type: str, headers: Mapping[str, str], body: bytes) -> str:
    """Equal for two requests that ask for the same."""
    own = sorted((name, value) for name, value in headers.items() if name.startswith(_RAW_HEADER))
    head = msgspec.json.encode((topic, query.decode("latin-1"), content_type, own))
    return hashlib.blake2b(head + b"\n" + body, digest_size=32).hexdigest()


def _failure(error: KafkaError, topic: str) -> KafkaFailure:
    if error.name() == "_QUEUE_FULL":
        return ClientBusy("The gateway holds as many records as it may. Try it again in a moment.")
    return failure_of(error, topic=topic)


def _error(error: KafkaError) -> dict[str, str]:
    return {"code": error.name(), "message": reason(error)}
