"""What a schema is to its registry: a kind, a text, and the names that the text takes from other schemas."""

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field


class SchemaType(enum.Enum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class InvalidSchema(Exception):
    """The text is no schema of its kind. The message says where, and what is wrong."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A name that a schema uses, and where it is declared: an Avro type's full name, a JSON Schema's URL, or the path
    of a Protobuf import."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()

    @property
    def fingerprint(self) -> bytes:
        """Equal for schemas that get the same id. Of the text as it is kept, which is canonical."""
        found = hashlib.sha256(self.type.value.encode())
        for reference in sorted(self.references, key=lambda each: (each.name, each.subject, each.version)):
            found.update(f"\0{reference.name}\0{reference.subject}\0{reference.version}".encode())
        found.update(b"\0\0" + self.text.encode("utf-8", "surrogatepass"))
        return found.digest()


@dataclass(frozen=True, slots=True)
class Resolved:
    """A schema with the texts of all that it refers to, directly and through others, by the name of the reference. A
    text comes before the texts that need it."""

    schema: Schema
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> bytes:
        """Of the schema with what it refers to, which the same references may find elsewhere in another context."""
        if not self.named:
            return self.schema.fingerprint
        found = hashlib.sha256(self.schema.fingerprint)
        for name, text in self.named.items():
            found.update(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest())
            found.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        return found.digest()
