"""The bounds that JSON Schema sets to numbers, texts, arrays and objects: a reader's may not be tighter."""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from headwater.schemas.incompatibility import Incompatibility
from headwater.schemas.json_schema.values import allowed_types

_COUNTS: Final = {
    "maxLength": ("string", max), "minLength": ("string", min), "maxItems": ("array", max), "minItems": ("array", min),
    "maxProperties": ("object", max), "minProperties": ("object", min),
}  # fmt: skip


def check_bounds(reader: Any, writer: Any) -> Iterator[Incompatibility]:
    types = allowed_types(writer)
    for key, (kind, widest) in _COUNTS.items():
        bound = reader.get(key)
        if kind not in types or bound is None or (widest is min and bound == 0):
            continue
        other = writer.get(key)
        if other is None or widest(bound, other) != bound:
            yield _tighter(key, bound, other)
    if types & {"number", "integer"}:
        yield from _numbers(reader, writer)
    if "string" in types:
        for key, name in (("pattern", "PATTERN"),):
            if key in reader and reader[key] != writer.get(key):
                change = "ADDED" if key not in writer else "CHANGED"
                yield Incompatibility(f"{name}_{change}", f"/{key}", f"the reader asks for {str(reader[key])[:80]!r}")
    if "array" in types and reader.get("uniqueItems") and not writer.get("uniqueItems"):
        yield Incompatibility("UNIQUE_ITEMS_ADDED", "/uniqueItems", "the reader allows no item twice")


def _numbers(reader: Any, writer: Any) -> Iterator[Incompatibility]:
    upper, other = _limit(reader, "maximum"), _limit(writer, "maximum")
    if upper is not None and (other is None or other > upper):
        yield _tighter("maximum", upper[0], None if other is None else other[0])
    lower, other = _limit(reader, "minimum"), _limit(writer, "minimum")
    if lower is not None and (other is None or other < lower):
        yield _tighter("minimum", lower[0], None if other is None else other[0])
    factor = reader.get("multipleOf")
    if factor is not None:
        own = writer.get("multipleOf", 1 if allowed_types(writer) & {"number", "integer"} == {"integer"} else None)
        if own is None or not _is_number(own) or not _is_number(factor) or Fraction(own) % Fraction(factor) != 0:
            yield _tighter("multipleOf", factor, own)


def _limit(schema: Any, key: str) -> tuple[float, int] | None:
    """The bound, and which of two equal ones is tighter. Draft 4 says exclusive with true, later ones with a number."""
    side = 1 if key == "minimum" else -1
    exclusive = schema.get("exclusive" + key.capitalize())
    found = []
    if _is_number(schema.get(key)):
        found.append((schema[key], side if exclusive is True else 0))
    if _is_number(exclusive):
        found.append((exclusive, side))
    if not found:
        return None
    return max(found) if key == "minimum" else min(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _tighter(key: str, bound: Any, other: Any) -> Incompatibility:
    word = "".join("_" + letter if letter.isupper() else letter.upper() for letter in key)
    if other is None:
        return Incompatibility(f"{word}_ADDED", f"/{key}", f"the reader's bound is {bound}, the writer has none")
    return Incompatibility(f"{word}_CHANGED", f"/{key}", f"the reader's {bound} is tighter than the writer's {other}")
