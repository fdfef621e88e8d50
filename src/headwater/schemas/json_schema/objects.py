"""Properties of objects and items of arrays in JSON Schema: a reader must allow each where a writer may write it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import re2

from headwater.schemas.incompatibility import Incompatibility
from headwater.schemas.json_schema.documents import SchemaLocation

if TYPE_CHECKING:
    from headwater.schemas.json_schema.compatibility import Comparison

_UNDECIDED: Final = (
    "not", "if", "then", "else", "dependencies", "dependentSchemas", "dependentRequired", "unevaluatedProperties",
    "unevaluatedItems", "contains", "minContains", "maxContains", "propertyNames", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
"""Keywords whose meaning is not compared: a reader may have them as the writer has them, or not at all."""


def undecided(reader_schema: Any, written: Any) -> Iterator[Incompatibility]:
    for key in _UNDECIDED:
        if (
            key in reader_schema
            and reader_schema[key] != written.get(key)
            and reader_schema[key] is not True
            and reader_schema[key] != {}
        ):
            word = key.lstrip("$").upper()
            yield Incompatibility(
                f"{word}_CHANGED", f"/{key}", "the reader asks for something that the writer does not"
            )


class ObjectRules:
    def __init__(self, comparison: "Comparison", reader: SchemaLocation, writer: SchemaLocation) -> None:
        self._comparison = comparison
        self._reader = reader
        self._writer = writer
        self._reader_schema: dict[str, Any] = reader.schema
        self._writer_schema: dict[str, Any] = writer.schema

    # Properties

    def hold(self, path: str, depth: int) -> bool:
        return self._required(path) & self._properties(path, depth) & self._others(path, depth)

    def _required(self, path: str) -> bool:
        required, promised = _names(self._reader_schema), set(_names(self._writer_schema))
        verdict = True
        for name in required:
            own = _table(self._reader_schema, "properties").get(name)
            if name not in promised and not (isinstance(own, dict) and "default" in own):
                verdict = self._comparison.fail(
                    "REQUIRED_PROPERTY_ADDED",
                    f"{path}/properties/{name}",
                    "the reader requires it, the writer does not",
                )
        return verdict

    def _properties(self, path: str, depth: int) -> bool:
        verdict = True
        names = dict.fromkeys([*_table(self._reader_schema, "properties"), *_table(self._writer_schema, "properties")])
        for name in names:
            here = f"{path}/properties/{name}"
            mark = len(self._comparison.findings.found)
            for reader_schema in _schemas_of(self._reader_schema, name, if_unclear=True):
                if self._accepts_any(
                    reader_schema, _schemas_of(self._writer_schema, name, if_unclear=False), here, depth
                ):
                    continue
                verdict = False
                self._comparison.findings.forget(mark)
                self._tell(name, reader_schema, here, depth)
                break
        return verdict

    def _accepts_any(self, reader_schema: Any, written: list[Any], path: str, depth: int) -> bool:
        """All of what is written holds at once: one that is accepted is enough."""
        return any(
            self._comparison.accepts(
                SchemaLocation(reader_schema, self._reader.document),
                SchemaLocation(each, self._writer.document),
                path,
                depth + 1,
            )
            for each in written
        )

    def _tell(self, name: str, reader_schema: Any, path: str, depth: int) -> None:
        is_declared = name in _table(self._reader_schema, "properties")
        is_written = name in _table(self._writer_schema, "properties")
        if is_declared and is_written:
            written = SchemaLocation(_table(self._writer_schema, "properties")[name], self._writer.document)
            mark = len(self._comparison.findings.found)
            self._comparison.compare(SchemaLocation(reader_schema, self._reader.document), written, path, depth + 1)
            if len(self._comparison.findings.found) == mark:  # reported before, elsewhere
                self._comparison.fail("PROPERTY_CHANGED", path, "the reader does not allow what is written")
        elif is_declared:
            reason = "the writer is open: it may have written the property with another schema"
            self._comparison.fail("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", path, reason)
        else:
            reason = "the reader is closed, and the writer may have written the property"
            self._comparison.fail("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path, reason)

    def _others(self, path: str, depth: int) -> bool:
        """Properties that neither side names."""
        comparison = self._comparison
        reader_patterns, writer_patterns = (
            _table(each, "patternProperties") for each in (self._reader_schema, self._writer_schema)
        )
        others = self._writer_schema.get("additionalProperties", True)
        verdict = True
        for pattern, own in reader_patterns.items():
            here = f"{path}/patternProperties/{pattern}"
            if pattern in writer_patterns:
                verdict &= comparison.compare(
                    SchemaLocation(own, self._reader.document),
                    SchemaLocation(writer_patterns[pattern], self._writer.document),
                    here,
                    depth + 1,
                )
            elif not all(
                comparison.accepts(
                    SchemaLocation(own, self._reader.document),
                    SchemaLocation(each, self._writer.document),
                    here,
                    depth + 1,
                )
                for each in (others, *writer_patterns.values())
            ):
                verdict = comparison.fail("PATTERN_PROPERTY_ADDED", here, "the writer may have written such a property")
        own_others = self._reader_schema.get("additionalProperties", True)
        for pattern, each in writer_patterns.items():
            here = f"{path}/patternProperties/{pattern}"
            if pattern not in reader_patterns and not comparison.accepts(
                SchemaLocation(own_others, self._reader.document),
                SchemaLocation(each, self._writer.document),
                here,
                depth + 1,
            ):
                verdict = comparison.fail("PATTERN_PROPERTY_REMOVED", here, "the reader is closed to such properties")
        if others is not False and own_others is False:
            return comparison.fail(
                "ADDITIONAL_PROPERTIES_REMOVED", f"{path}/additionalProperties", "the reader is closed, the writer open"
            )
        return verdict & comparison.compare(
            SchemaLocation(own_others, self._reader.document),
            SchemaLocation(others, self._writer.document),
            f"{path}/additionalProperties",
            depth + 1,
        )

    # Items

    def items_hold(self, path: str, depth: int) -> bool:
        reader_items, own_rest = _items(self._reader_schema)
        writer_items, rest = _items(self._writer_schema)
        verdict = True
        for index in range(max(len(reader_items), len(writer_items))):
            reader = reader_items[index] if index < len(reader_items) else own_rest
            writer = writer_items[index] if index < len(writer_items) else rest
            verdict &= self._comparison.compare(
                SchemaLocation(reader, self._reader.document),
                SchemaLocation(writer, self._writer.document),
                f"{path}/items/{index}",
                depth + 1,
            )
        return verdict & self._comparison.compare(
            SchemaLocation(own_rest, self._reader.document),
            SchemaLocation(rest, self._writer.document),
            f"{path}/items",
            depth + 1,
        )


def _schemas_of(schema: dict[str, Any], name: str, *, if_unclear: bool) -> list[Any]:
    """What holds for a property."""
    found = [own] if (own := _table(schema, "properties").get(name)) is not None else []
    patterns = _table(schema, "patternProperties")
    found += [each for pattern, each in patterns.items() if _matches(pattern, name, if_unclear)]
    return found or [schema.get("additionalProperties", True)]


def _matches(pattern: str, name: str, if_unclear: bool) -> bool:
    """By RE2, which needs no more than linear time. What it does not understand is unclear: a reader is then taken to
    ask for more, and a writer to promise less."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1024 * 1024
    try:
        return re2.compile(pattern, options).search(name) is not None
    except re2.error:
        return if_unclear


def _items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """Schemas of the first items, and of the rest. Until 2019-09 the first ones were a list under `items`."""
    if isinstance(schema.get("prefixItems"), list):
        return schema["prefixItems"], schema.get("items", True)
    items = schema.get("items", True)
    return (items, schema.get("additionalItems", True)) if isinstance(items, list) else ([], items)


def _table(schema: dict[str, Any], key: str) -> dict[str, Any]:
    found = schema.get(key)
    return found if isinstance(found, dict) else {}


def _names(schema: dict[str, Any]) -> list[str]:
    found = schema.get("required")
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
