"""Protobuf schemas: text, or a file descriptor in base64, with the files that they import."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from headwater.schemas.limits import MAX_DEPTH, MAX_TYPES
from headwater.schemas.protobuf.parse import parse_proto
from headwater.schemas.protobuf.printing import print_proto
from headwater.schemas.protobuf.rules import check_rules, messages_in
from headwater.schemas.schema import InvalidSchema

OWN_NAME: Final = "default.proto"
"""Texts do not say how their file is called, and no other file imports it by this name."""
_WELL_KNOWN: Final = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProtoFile:
    file: FileDescriptorProto
    """With names of types in full."""
    imported: Mapping[str, FileDescriptorProto]
    """By their paths: everything that is needed to make sense of the file."""
    pool: DescriptorPool


def read_proto(text: str, named: Mapping[str, str]) -> ProtoFile:
    """Raises InvalidSchema."""
    files = {name: _read(referred, name) for name, referred in named.items()}
    own = _read(text, OWN_NAME)
    if not (own.message_type or own.enum_type or own.extension or own.service or own.dependency):
        raise InvalidSchema("The file declares nothing.")
    pool, added = DescriptorPool(), dict[str, FileDescriptorProto]()
    own = _add(own, files, pool, added, 0)
    if sum(_count(each) for each in (own, *added.values())) > MAX_TYPES:
        raise InvalidSchema(f"There are more than {MAX_TYPES} messages.")
    del added[OWN_NAME]
    return ProtoFile(own, added, pool)


def canonical(proto: ProtoFile) -> str:
    return print_proto(proto.file)


def normal(proto: ProtoFile) -> str:
    return print_proto(proto.file, in_order=True)


def serialized(proto: ProtoFile) -> str:
    return base64.b64encode(proto.file.SerializeToString(deterministic=True)).decode()


def _read(text: str, name: str) -> FileDescriptorProto:
    found = _descriptor(text)
    if found is None:
        return parse_proto(text, name)
    found.name = name
    found.ClearField("source_code_info")
    return found


def _descriptor(text: str) -> FileDescriptorProto | None:
    """A descriptor, if it is one: some clients have no text. No .proto file is valid base64."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None


def _add(
    file: FileDescriptorProto,
    files: Mapping[str, FileDescriptorProto],
    pool: DescriptorPool,
    added: dict[str, FileDescriptorProto],
    depth: int,
) -> FileDescriptorProto:
    """To the pool, after what it imports; the file as protobuf understands it."""
    if depth > MAX_DEPTH:
        raise InvalidSchema(f"Imports are nested deeper than {MAX_DEPTH} levels, or in a circle.")
    for name in file.dependency:
        if name in added:
            continue
        imported = files.get(name) or _well_known().get(name)
        if imported is None:
            raise InvalidSchema(f"import {name[:200]!r} is not known: is a reference missing?")
        _add(imported, files, pool, added, depth + 1)
    try:
        pool.Add(file)
        understood = FileDescriptorProto()
        pool.FindFileByName(file.name).CopyToProto(understood)
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidSchema(f"In {file.name}: {str(error).rpartition('descriptor pool: ')[2][:500]}.") from None
    check_rules(understood)
    added[file.name] = understood
    return understood


@cache
def _well_known() -> dict[str, FileDescriptorProto]:
    found = {}
    for name in _WELL_KNOWN:
        module = import_module(f"google.protobuf.{name}_pb2")
        file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        found[file.name] = file
    return found


def _count(file: FileDescriptorProto) -> int:
    return sum(1 + len(message.field) for message in messages_in(file))
