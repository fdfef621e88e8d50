"""Schemas of every kind behind one face: read, write in one way, compare."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater.schemas.avro import compatibility as avro_compatibility
from headwater.schemas.avro import schema as avro
from headwater.schemas.incompatibility import Incompatibility
from headwater.schemas.json_schema import compatibility as json_compatibility
from headwater.schemas.json_schema import schema as json_schema
from headwater.schemas.levels import Level
from headwater.schemas.limits import MAX_SCHEMA_BYTES
from headwater.schemas.schema import InvalidSchema, Reference, Resolved, Schema, SchemaType

# Protobuf is imported where it is used: it is the largest of the three, and few need it.


@dataclass(frozen=True, slots=True)
class Parsed:
    type: SchemaType
    canonical: str
    normal: str
    references: tuple[Reference, ...]
    meaning: Any
    """Of the kind's own module."""

    def schema(self, *, normalize: bool) -> Schema:
        """As it is kept."""
        return Schema(self.type, self.normal if normalize else self.canonical, self.references)

    @property
    def serialized(self) -> str:
        """A form for programs: of Protobuf, the descriptor in base64."""
        if self.type is not SchemaType.PROTOBUF:
            return self.canonical
        from headwater.schemas.protobuf import schema as protobuf

        return protobuf.serialized(self.meaning)


def parse(resolved: Resolved) -> Parsed:
    """Raises InvalidSchema."""
    schema, named = resolved.schema, resolved.named
    size = len(schema.text.encode("utf-8", "surrogatepass"))
    if size > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"The schema has {size} bytes; {MAX_SCHEMA_BYTES} are allowed.")
    if any(0xD800 <= ord(letter) < 0xE000 for letter in schema.text):
        raise InvalidSchema("The schema is no text: it holds half of a surrogate pair.")
    if not schema.text.strip():
        raise InvalidSchema("The schema is empty.")
    match schema.type:
        case SchemaType.AVRO:
            declared, types = avro.read_avro(schema.text, named)
            return Parsed(schema.type, avro.canonical(declared), avro.normal(declared), schema.references, types)
        case SchemaType.JSON:
            document = json_schema.read_json_schema(schema.text, named)
            canonical, normal = json_schema.canonical(document), json_schema.normal(document)
            return Parsed(schema.type, canonical, normal, schema.references, document)
        case SchemaType.PROTOBUF:
            from headwater.schemas.protobuf import schema as protobuf

            proto = protobuf.read_proto(schema.text, named)
            return Parsed(schema.type, protobuf.canonical(proto), protobuf.normal(proto), schema.references, proto)


def unreadable(reader: Parsed, writer: Parsed) -> list[Incompatibility]:
    """Why a reader cannot read everything that a writer writes; empty if it can."""
    if reader.type is not writer.type:
        return [Incompatibility("SCHEMA_TYPE_CHANGED", "/", f"{writer.type.value} became {reader.type.value}")]
    match reader.type:
        case SchemaType.AVRO:
            return avro_compatibility.unreadable(reader.meaning, writer.meaning)
        case SchemaType.JSON:
            return json_compatibility.unreadable(reader.meaning, writer.meaning)
        case SchemaType.PROTOBUF:
            from headwater.schemas.protobuf import compatibility as proto_compatibility

            return proto_compatibility.unreadable(reader.meaning, writer.meaning)


def incompatibilities(new: Parsed, earlier: Sequence[Parsed], level: Level) -> list[Incompatibility]:
    """Why a new schema may not follow earlier ones, which stand in the order of their versions. Only the problems with
    the latest version that has any are reported."""
    for old in reversed(earlier if level.is_transitive else earlier[-1:]):
        found: list[Incompatibility] = []
        if level.reads_old:
            found += unreadable(new, old)
        if level.is_read_by_old:
            found += unreadable(old, new)
        if found:
            return found
    return []
