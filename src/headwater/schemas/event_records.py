"""Events as records of the topic `_schemas`: keys and values in JSON, as other registries write them.

SCHEMA          {"subject", "version", "id", "schema", "schemaType"?, "references"?, "deleted"}, or a tombstone
CONFIG, MODE    {"compatibilityLevel"} and {"mode"}, or a tombstone; without a subject: of the default context
CONTEXT         {"tenant", "context"}, or a tombstone
DELETE_SUBJECT  {"subject", "version"}: everything up to the version is deleted softly
IDS             {"last"}: of this registry alone; the key names a context that is not the default one
"""

import json
from typing import Any, Final

from headwater.schemas.contexts import DEFAULT
from headwater.schemas.events import (
    Config,
    ConfigPut,
    ContextPut,
    Event,
    IdsGiven,
    ModePut,
    SchemaPut,
    SchemaRemoved,
    SubjectDeleted,
)
from headwater.schemas.json_schema.text import write_json
from headwater.schemas.levels import Level, Mode
from headwater.schemas.schema import Reference, Schema, SchemaType

TOPIC: Final = "_schemas"
MAX_VALUE_BYTES: Final = 8 * 1024 * 1024
TENANT: Final = "default"
"""Other registries may have several; this one has one."""


class UnknownRecord(Exception):
    """Nothing that this version understands."""


def to_record(event: Event) -> tuple[bytes, bytes | None]:
    key, value = _to_json(event)
    return write_json(key).encode(), None if value is None else write_json(value).encode()


def from_record(key: bytes | None, value: bytes | None) -> Event | None:
    """None if it says nothing. Raises UnknownRecord."""
    try:
        if key is None or len(key) + len(value or b"") > MAX_VALUE_BYTES:
            raise UnknownRecord("no key, or too large")
        return _from_json(json.loads(key), None if value is None else json.loads(value))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UnknownRecord(f"{type(error).__name__}: {error}") from None


def _to_json(event: Event) -> tuple[dict[str, Any], dict[str, Any] | None]:
    match event:
        case SchemaPut(subject, version, schema_id, schema, is_deleted):
            value: dict[str, Any] = {"subject": subject, "version": version, "id": schema_id}
            if schema.type is not SchemaType.AVRO:
                value["schemaType"] = schema.type.value
            if schema.references:
                value["references"] = references_to_json(schema.references)
            value |= {"schema": schema.text, "deleted": is_deleted}
            return _schema_key(subject, version), value
        case SchemaRemoved(subject, version):
            return _schema_key(subject, version), None
        case SubjectDeleted(subject, version):
            key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
            return key, {"subject": subject, "version": version}
        case ConfigPut(of, config):
            stored = (
                None if config is None else {"compatibilityLevel": config.level.value, "normalize": config.normalize}
            )
            return {"keytype": "CONFIG", "subject": of, "magic": 0}, stored
        case ModePut(of, mode):
            return {"keytype": "MODE", "subject": of, "magic": 0}, None if mode is None else {"mode": mode.value}
        case IdsGiven(last_id, context):
            named = {} if context == DEFAULT else {"context": context}
            return {"keytype": "IDS", **named, "magic": 0}, {"last": last_id}
        case ContextPut(context, is_there):
            stored = {"tenant": TENANT, "context": context} if is_there else None
            return {"keytype": "CONTEXT", "tenant": TENANT, "context": context, "magic": 0}, stored


def _from_json(key: Any, value: Any) -> Event | None:
    subject = key.get("subject")
    if subject is not None and not isinstance(subject, str):
        raise TypeError("a subject is a text")
    match key["keytype"]:
        case "SCHEMA":
            return _schema_event(_text(subject), _whole(key["version"]), value)
        case "CONFIG":
            if value is None:
                return ConfigPut(subject, None)
            config = Config(Level(value.get("compatibilityLevel", "BACKWARD")), bool(value.get("normalize")))
            return ConfigPut(subject, config)
        case "MODE":
            return ModePut(subject, None if value is None else Mode(value["mode"]))
        case "DELETE_SUBJECT":
            return None if value is None else SubjectDeleted(_text(subject), _whole(value["version"]))
        case "IDS":
            return None if value is None else IdsGiven(_whole(value["last"]), _text(key.get("context", DEFAULT)))
        case "CONTEXT":
            return ContextPut(_text(key["context"]), value is not None)
        case "NOOP" | "CLEAR_SUBJECT":
            return None
    raise UnknownRecord(f"keytype {str(key['keytype'])[:80]!r}")


def _schema_event(subject: str, version: int, value: Any) -> Event:
    if value is None:
        return SchemaRemoved(subject, version)
    kind = SchemaType(value.get("schemaType") or "AVRO")
    schema = Schema(kind, _text(value["schema"]), references_from_json(value.get("references")))
    return SchemaPut(subject, version, _whole(value["id"]), schema, bool(value.get("deleted")))


def references_to_json(references: tuple[Reference, ...]) -> list[dict[str, Any]]:
    return [{"name": each.name, "subject": each.subject, "version": each.version} for each in references]


def references_from_json(value: Any) -> tuple[Reference, ...]:
    """Raises ValueError, TypeError or KeyError."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise TypeError("references are a list")
    return tuple(Reference(_text(each["name"]), _text(each["subject"]), _whole(each["version"])) for each in value)


def _schema_key(subject: str, version: int) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is no text")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**31:
        raise TypeError(f"{value!r:.80} is no number")
    return value
