"""Values that were written with a schema, read with it: to Python's own values, or to the values of JSON."""

import base64
import datetime
import decimal
import io
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headwater.schemas.parsed import Parsed
from headwater.schemas.schema import Resolved, SchemaType
from headwater.schemas.wire_format import PREFIX_BYTES, NotFramed, message_indexes

Decode: TypeAlias = Callable[[bytes], Any]
"""From a value with its prefix. Raises Undecodable."""


class Undecodable(Exception):
    """The bytes do not hold to the schema."""


def decoder(parsed: Parsed, resolved: Resolved) -> Decode:
    match parsed.type:
        case SchemaType.AVRO:
            return _guarded(_avro(resolved))
        case SchemaType.JSON:
            return _guarded(lambda value: json.loads(value[PREFIX_BYTES:]))
        case SchemaType.PROTOBUF:
            return _guarded(_protobuf(parsed))


def avro_schema(resolved: Resolved) -> Any:
    """As fastavro takes it, with what it refers to."""
    import fastavro

    named: dict[str, Any] = {}
    for text in dict.fromkeys(resolved.named.values()):
        fastavro.parse_schema(_json_or_name(text), named_schemas=named)
    return fastavro.parse_schema(_json_or_name(resolved.schema.text), named_schemas=named)


def for_json(value: Any) -> Any:
    """The same in what JSON has: bytes in base64, numbers and times that JSON lacks as text."""
    match value:
        case Mapping():
            return {str(key): for_json(each) for key, each in value.items()}
        case list() | tuple():
            return [for_json(each) for each in value]
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case decimal.Decimal() | uuid.UUID() | datetime.timedelta():
            return str(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
    return value


def _avro(resolved: Resolved) -> Decode:
    import fastavro

    schema = avro_schema(resolved)

    def decode(value: bytes) -> Any:
        data = io.BytesIO(value)
        data.seek(PREFIX_BYTES)
        found = fastavro.schemaless_reader(data, schema, None)
        if data.tell() != len(value):
            raise Undecodable(f"{len(value) - data.tell()} bytes are left after the value")
        return found

    return decode


def _protobuf(parsed: Parsed) -> Decode:
    from google.protobuf import json_format, message_factory

    file = parsed.meaning.pool.FindFileByName(parsed.meaning.file.name)
    messages = list(file.message_types_by_name.values())
    classes: dict[tuple[int, ...], Any] = {}

    def message_class(indexes: tuple[int, ...]) -> Any:
        within = messages
        descriptor: Any = None
        for index in indexes:
            if not 0 <= index < len(within):
                raise Undecodable(f"the schema has no message at {'/'.join(map(str, indexes))}")
            descriptor = within[index]
            within = list(descriptor.nested_types)
        return message_factory.GetMessageClass(descriptor)

    def decode(value: bytes) -> Any:
        indexes, start = message_indexes(value)
        found = classes.get(indexes)
        if found is None:
            found = classes[indexes] = message_class(indexes)
        return json_format.MessageToDict(
            found.FromString(value[start:]), preserving_proto_field_name=True, descriptor_pool=parsed.meaning.pool
        )

    return decode


def _guarded(decode: Decode) -> Decode:
    def guarded(value: bytes) -> Any:
        try:
            return decode(value)
        except Undecodable:
            raise
        except NotFramed as error:
            raise Undecodable(str(error)) from None
        except RecursionError:
            raise Undecodable("it is nested too deeply") from None
        except Exception as error:  # each library has many exceptions, and hostile bytes find them all
            raise Undecodable(f"{type(error).__name__}: {str(error)[:200]}") from None

    return guarded


def _json_or_name(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()
