"""Write src/headwater/wire/schemas.json from the message definitions of the `kio` package: `make schemas`.

The file has a table of distinct structs, and for each API the struct of its request and response in each version:

    {"structs": [[is_flexible, [[name, type or struct number, flags, default, tag], ...]], ...],
     "apis": {"3": {"request": {"0": 17, ...}, "response": {"0": 23, ...}}, ...}}

    flags   1 array, 2 nullable
"""

import dataclasses
import datetime
import enum
import json
import sys
import types
import typing
from pathlib import Path
from typing import Any

from kio.index import load_entity_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

TARGET = Path(__file__).parent.parent / "src" / "headwater" / "wire" / "schemas.json"
ARRAY, NULLABLE = 1, 2
PLAIN_INT = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
MILLISECOND = datetime.timedelta(milliseconds=1)


class Table:
    def __init__(self) -> None:
        self.structs: list[Any] = []
        self._numbers: dict[str, int] = {}

    def add(self, entity: type) -> int:
        """The number of the struct with this shape."""
        fields = [self._field(field) for field in dataclasses.fields(entity)]
        struct = [int(entity.__flexible__), fields]  # type: ignore[attr-defined]
        key = json.dumps(struct)
        if key not in self._numbers:
            self._numbers[key] = len(self.structs)
            self.structs.append(struct)
        return self._numbers[key]

    def _field(self, field: "dataclasses.Field[Any]") -> list[Any]:
        inner, is_array, is_nullable = unwrap(field.type)
        kafka_type = field.metadata.get("kafka_type", "")
        is_struct = dataclasses.is_dataclass(inner)
        field_type: str | int = self.add(inner) if is_struct else PLAIN_INT.get(kafka_type, kafka_type)
        default = plain_default(field, field_type, is_array, is_nullable)
        # A point in time that kio spells None is -1 on the wire, and a missing id is all zeros: neither is a null.
        is_nullable = is_nullable and field_type not in ("int64", "uuid")
        name = f"{field.name}_ms" if kafka_type.startswith(("timedelta", "datetime")) else field.name
        return [name, field_type, ARRAY * is_array + NULLABLE * is_nullable, default, field.metadata.get("tag")]


def unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    """(inner type, is it an array, may it be null)"""
    is_nullable = False
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        (annotation,) = (arg for arg in typing.get_args(annotation) if arg is not types.NoneType)
        is_nullable = True
    if typing.get_origin(annotation) is not tuple:
        return annotation, False, is_nullable
    return unwrap(typing.get_args(annotation)[0])[0], True, is_nullable


def plain_default(field: "dataclasses.Field[Any]", field_type: str | int, is_array: bool, is_nullable: bool) -> Any:
    default = field.default
    if is_array:
        return None if default is None else []
    if isinstance(field_type, int) or field_type == "uuid":
        return None
    if default is dataclasses.MISSING or default is None:
        return zero(field_type, is_nullable)
    if isinstance(default, datetime.timedelta):
        return default // MILLISECOND
    if isinstance(default, enum.Enum):
        return int(default.value)
    if isinstance(default, bytes):
        return default.decode("ascii")
    return default


def zero(kafka_type: str, is_nullable: bool) -> Any:
    match kafka_type:
        case "int64" if is_nullable:
            return -1
        case _ if is_nullable:
            return None
        case "bool":
            return False
        case "float64":
            return 0.0
        case "string" | "bytes" | "records":
            return ""
        case _:
            return 0


def generate() -> str:
    table = Table()
    apis: dict[str, dict[str, dict[str, int]]] = {}
    for api_key, name in sorted(api_key_map.items()):
        versions = sorted(schema_name_map[name].items())
        apis[str(api_key)] = {
            kind.name: {
                str(version): table.add(load_entity_schema(name, version, kind))
                for version, entities in versions
                if kind in entities
            }
            for kind in (EntityType.request, EntityType.response)
        }
    lines = ",\n".join(json.dumps(struct, separators=(",", ":")) for struct in table.structs)
    named = ",\n".join(f"{json.dumps(key)}:{json.dumps(kinds, separators=(',', ':'))}" for key, kinds in apis.items())
    return f'{{"structs":[\n{lines}\n],\n"apis":{{\n{named}\n}}}}\n'


if __name__ == "__main__":
    TARGET.write_text(generate())
    sys.stdout.write(f"wrote {TARGET.name}: {TARGET.stat().st_size} bytes\n")
