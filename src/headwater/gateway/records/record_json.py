"""Records as JSON, in both directions.

A key, value or header that is UTF-8 text is a JSON string; other bytes are in base64 in a field of their own. On the
way in any other JSON value is written as compact JSON, digit by digit as it came.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from headwater.gateway.http.problems import Problem, bad_request
from headwater.gateway.kafka.producer import ANY_PARTITION, NOW, OutgoingRecord

MAX_RECORDS = 10_000
MAX_HEADERS = 1_000
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1

Partition = Annotated[int, Meta(ge=0, le=MAX_INT32)]
Offset = Annotated[int, Meta(ge=0, le=MAX_INT64)]
Timestamp = Annotated[int, Meta(ge=1, le=MAX_INT64, description="Milliseconds since 1970.")]


class HeaderIn(Struct, forbid_unknown_fields=True):
    name: str
    value: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


class RecordIn(Struct, forbid_unknown_fields=True):
    """A record to write. A string is its UTF-8 bytes, null a tombstone, anything else is written as compact JSON."""

    key: Raw | UnsetType = UNSET
    key_base64: str | None = None
    value: Raw | UnsetType = UNSET
    value_base64: str | None = None
    headers: dict[str, str] | list[HeaderIn] | None = None
    partition: Partition | None = None
    timestamp: Timestamp | None = None


Records = Annotated[list[RecordIn], Meta(min_length=1, max_length=MAX_RECORDS)]


class RecordsIn(Struct, forbid_unknown_fields=True):
    """Many records at once."""

    records: Records


class ProduceIn(RecordIn, forbid_unknown_fields=True):
    """One record, or many: what RecordIn and RecordsIn describe, read in one go."""

    records: Records | UnsetType = UNSET


class HeaderOut(Struct, omit_defaults=True):
    name: str
    value: str | None = None
    value_base64: str | None = None


class SchemaOut(Struct, omit_defaults=True):
    id: int
    type: str
    subject: str | None = None
    version: int | None = None


class RecordOut(Struct):
    partition: int
    offset: int
    timestamp: int
    headers: list[HeaderOut]
    size: int
    key: Any | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    value: Any | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    schema: SchemaOut | UnsetType = UNSET


_decode_text = msgspec.json.Decoder(str).decode
_decode_one = msgspec.json.Decoder(ProduceIn).decode
_decode_line = msgspec.json.Decoder(RecordIn).decode


def parse_produce(body: bytes) -> list[OutgoingRecord]:
    """The records of a JSON body. Raises Problem."""
    given = _parse(body, _decode_one, "The body")
    if given.records is UNSET:
        return [outgoing(given)]
    if _has_own_fields(given):
        raise bad_request('The body has "records" and fields of a single record. Send one or the other.')
    records = []
    for index, record in enumerate(given.records):
        try:
            records.append(outgoing(record))
        except Problem as problem:
            raise bad_request(f"Record {index}: {problem.detail}", index=index) from None
    return records


def parse_lines(body: bytes) -> list[OutgoingRecord]:
    """One record a line. Empty lines are none."""
    lines = [line for line in body.split(b"\n", MAX_RECORDS + 1) if line.strip()]
    if not lines:
        raise bad_request("The body has no records.")
    if len(lines) > MAX_RECORDS:
        raise bad_request(f"The body has more than {MAX_RECORDS} records. Send them in several requests.")
    records = []
    for index, line in enumerate(lines):
        try:
            records.append(outgoing(_parse(line, _decode_line, "It")))
        except Problem as problem:
            raise bad_request(f"Record {index}: {problem.detail}", index=index) from None
    return records


def outgoing(given: RecordIn) -> OutgoingRecord:
    return OutgoingRecord(
        _content(given.value, given.value_base64, "value"),
        _content(given.key, given.key_base64, "key"),
        None if given.headers is None else _headers(given.headers),
        ANY_PARTITION if given.partition is None else given.partition,
        given.timestamp or NOW,
    )


def text_or_base64(content: bytes | None) -> tuple[str | None, str | None]:
    """One of both; neither for null."""
    if content is None:
        return None, None
    try:
        return content.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(content).decode()


def record_out(message: Any) -> RecordOut:
    """What was read, a confluent_kafka.Message, as JSON."""
    key, value = message.key(), message.value()
    headers: Sequence[tuple[str, bytes | None]] = message.headers() or ()
    size = len(key or b"") + len(value or b"") + sum(len(name) + len(content or b"") for name, content in headers)
    record_out = RecordOut(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        [HeaderOut(name, *text_or_base64(content)) for name, content in headers],
        size,
    )
    record_out.key, in_base64 = text_or_base64(key)
    if in_base64 is not None:
        record_out.key, record_out.key_base64 = UNSET, in_base64
    record_out.value, in_base64 = text_or_base64(value)
    if in_base64 is not None:
        record_out.value, record_out.value_base64 = UNSET, in_base64
    return record_out


def _parse(body: bytes, decode: Any, subject: str) -> Any:
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"{subject} cannot be read: {error}.") from None
    except RecursionError:
        raise bad_request(f"{subject} cannot be read: it is nested too deeply.") from None


def _content(raw: Raw | UnsetType, in_base64: str | None, field: str) -> bytes | None:
    if in_base64 is not None:
        if raw is not UNSET:
            raise bad_request(f"Give {field} or {field}_base64, not both.")
        return _from_base64(in_base64, f"{field}_base64")
    if isinstance(raw, UnsetType):
        return None
    content = bytes(raw)
    first = content[:1]
    if first == b'"':
        return _parse(content, _decode_text, f"The {field}").encode()  # type: ignore[no-any-return]
    if content == b"null":
        return None
    try:
        content.decode()
    except UnicodeDecodeError:
        raise bad_request(f"The {field} is not UTF-8.") from None
    return msgspec.json.format(content, indent=-1) if first in b"[{" else content


def _headers(given: dict[str, str] | list[HeaderIn]) -> list[tuple[str, bytes]]:
    if len(given) > MAX_HEADERS:
        raise bad_request(f"A record has no more than {MAX_HEADERS} headers here.")
    if any("\0" in name for name in (given if isinstance(given, dict) else (header.name for header in given))):
        raise bad_request("The name of a header has no zero byte.")
    if isinstance(given, dict):
        return [(name, value.encode()) for name, value in given.items()]
    headers = []
    for header in given:
        if (header.value is UNSET) == (header.value_base64 is UNSET):
            raise bad_request(f"Header {header.name[:100]!r} needs value or value_base64.")
        if isinstance(header.value, str):
            headers.append((header.name, header.value.encode()))
        else:
            headers.append((header.name, _from_base64(str(header.value_base64), "A header's value_base64")))
    return headers


def _from_base64(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"{field} is not base64: {error}.") from None


def _has_own_fields(given: ProduceIn) -> bool:
    return (
        given.key is not UNSET
        or given.value is not UNSET
        or any(
            field is not None
            for field in (given.key_base64, given.value_base64, given.headers, given.partition, given.timestamp)
        )
    )
