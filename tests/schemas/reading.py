"""Schemas for tests, read in one call."""

import json
from collections.abc import Mapping
from typing import Any

from headwater.schemas.incompatibility import Incompatibility
from headwater.schemas.parsed import Parsed, parse
from headwater.schemas.schema import Resolved, Schema, SchemaType


def read(kind: str, text: Any, named: Mapping[str, str] | None = None) -> Parsed:
    """What is no text is written as JSON."""
    schema = Schema(SchemaType[kind], text if isinstance(text, str) else json.dumps(text))
    return parse(Resolved(schema, named or {}))


def kinds(found: list[Incompatibility]) -> set[str]:
    return {each.kind for each in found}
