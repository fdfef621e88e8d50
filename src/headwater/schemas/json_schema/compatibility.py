"""Whether every JSON value that one schema allows is allowed by another, as far as the keywords say.

The answer leans to no: what is called readable is readable, with two exceptions that the registry's users expect. A
required property that has a default counts as present. And choices of `oneOf` count as apart: one of them may be added,
though a value that was allowed by one might be allowed by the new one, too.
"""

from typing import Any, Final

from headwater.schemas.incompatibility import Findings, Incompatibility
from headwater.schemas.json_schema.bounds import check_bounds
from headwater.schemas.json_schema.documents import Document, SchemaLocation
from headwater.schemas.json_schema.objects import ObjectRules, undecided
from headwater.schemas.json_schema.values import allowed_types, check_values, may_be
from headwater.schemas.limits import MAX_DEPTH

_SUMS: Final = ("anyOf", "oneOf")


def unreadable(reader: Document, writer: Document) -> list[Incompatibility]:
    """Empty if everything that the writer's schema allows is allowed by the reader's."""
    comparison = Comparison()
    comparison.compare(SchemaLocation(reader.root, reader), SchemaLocation(writer.root, writer), "#", 0)
    return comparison.findings.found


class Comparison:
    def __init__(self) -> None:
        self.findings = Findings()
        self._verdicts: dict[tuple[int, int], bool] = {}
        """By the identities of two schemas; one that is being compared counts as readable."""
        self._believed: list[tuple[int, int]] = []
        """Those pairs, in the order in which they were met."""
        self._alive: list[Any] = []
        """What was made on the way is kept, so that no two schemas have one identity."""

    def fail(self, kind: str, path: str, reason: str) -> bool:
        self.findings.add(kind, path, reason)
        return False

    def compare(self, reader: SchemaLocation, writer: SchemaLocation, path: str, depth: int) -> bool:
        if not self.findings.may_compare(path):
            return False
        if depth > MAX_DEPTH:
            return self.fail("TOO_COMPLEX", path, f"schemas are nested deeper than {MAX_DEPTH} levels")
        if writer.schema is False or reader.schema is True or reader.schema == {}:
            return True
        if reader.schema is False:
            return self.fail("NOTHING_ALLOWED", path, "the reader allows no value here")
        if not isinstance(reader.schema, dict) or not isinstance(writer.schema, dict | bool):
            return self.fail("TYPE_CHANGED", path, "this is no schema")
        pair = (id(reader.schema), id(writer.schema))
        known = self._verdicts.get(pair) if isinstance(writer.schema, dict) else None
        if known is not None:
            return known
        before = len(self._believed)
        self._believed.append(pair)
        self._verdicts[pair] = True
        self._alive.append((reader.schema, writer.schema))
        verdict = self._follow(reader, writer, path, depth)
        if (
            not verdict
        ):  # what was found meanwhile may rest on the belief that it is readable; and reasons are reported anew
            for inner in self._believed[before:]:
                self._verdicts.pop(inner, None)
            del self._believed[before:]
        elif not isinstance(writer.schema, dict):
            self._verdicts.pop(pair, None)
        return verdict

    def accepts(self, reader: SchemaLocation, writer: SchemaLocation, path: str, depth: int) -> bool:
        """As `compare`, without telling why not."""
        mark = len(self.findings.found)
        verdict = self.compare(reader, writer, path, depth)
        self.findings.forget(mark)
        return verdict

    def _follow(self, reader: SchemaLocation, writer: SchemaLocation, path: str, depth: int) -> bool:
        """References of the writer narrow it, references of the reader must accept everything."""
        reference = reader.schema.get("$ref")
        if isinstance(reference, str):
            target = reader.document.find(reference)
            if target is None:
                return self.fail("REFERENCE_CHANGED", path, f"{reference!r} leads nowhere")
            rest = {key: value for key, value in reader.schema.items() if key != "$ref"}
            verdict = self.compare(target, writer, path, depth + 1)
            return (
                verdict & self._follow(SchemaLocation(rest, reader.document), writer, path, depth + 1)
                if rest
                else verdict
            )
        if isinstance(writer.schema, dict) and isinstance(writer.schema.get("$ref"), str):
            target = writer.document.find(writer.schema["$ref"])
            rest = {key: value for key, value in writer.schema.items() if key != "$ref"}
            if target is None:
                return self._split(reader, SchemaLocation(rest, writer.document), path, depth)
            if rest and self.accepts(reader, SchemaLocation(rest, writer.document), path, depth + 1):
                return True
            return self.compare(reader, target, path, depth + 1)
        return self._split(reader, writer, path, depth)

    def _split(self, reader: SchemaLocation, writer: SchemaLocation, path: str, depth: int) -> bool:
        """Choices and conjunctions, until plain keywords are compared with plain keywords."""
        written = writer.schema if isinstance(writer.schema, dict) else {}
        verdict = True
        members = reader.schema.get("allOf")
        if isinstance(members, list):
            verdict = self._all_of(reader, members, writer, path, depth)
            rest = {key: value for key, value in reader.schema.items() if key != "allOf"}
            reader = SchemaLocation(rest, reader.document)
        for key in _SUMS:
            branches = written.get(key)
            if isinstance(branches, list) and not _is_same(key, reader, writer):
                rest = {name: value for name, value in written.items() if name != key}
                return self._each_branch(reader, writer.document, key, branches, rest, path=path, depth=depth) & verdict
        if isinstance(written.get("allOf"), list):
            return verdict & self._narrowed(reader, writer, written, path, depth)
        for key in _SUMS:
            branches = reader.schema.get(key)
            if isinstance(branches, list):
                verdict &= self._some_branch(reader, writer, key, branches, path, depth)
        return verdict & self._plain(reader, SchemaLocation(written, writer.document), path, depth)

    def _all_of(
        self, reader: SchemaLocation, members: list[Any], writer: SchemaLocation, path: str, depth: int
    ) -> bool:
        verdict = True
        for index, member in enumerate(members):
            here = f"{path}/allOf/{index}"
            if not self.compare(SchemaLocation(member, reader.document), writer, here, depth + 1):
                verdict = self.fail("PRODUCT_TYPE_EXTENDED", here, "the reader asks for more than the writer does")
        return verdict

    def _each_branch(
        self,
        reader: SchemaLocation,
        document: Document,
        key: str,
        branches: list[Any],
        rest: Any,
        path: str,
        depth: int,
    ) -> bool:
        verdict = True
        for index, branch in enumerate(branches):
            whole = {**rest, **branch} if isinstance(branch, dict) and not set(rest) & set(branch) else branch
            if isinstance(branch, dict) and set(rest) & set(branch):
                whole = {"allOf": [branch, rest]}
            mark = len(self.findings.found)
            if not self.compare(reader, SchemaLocation(whole, document), f"{path}/{key}/{index}", depth + 1):
                verdict = False
                if len(self.findings.found) == mark:
                    self.fail("SUM_TYPE_NARROWED", f"{path}/{key}/{index}", "the reader lacks this choice")
        return verdict

    def _narrowed(self, reader: SchemaLocation, writer: SchemaLocation, written: Any, path: str, depth: int) -> bool:
        """Whatever accepts one part of a conjunction accepts the conjunction; and its plain objects may be merged."""
        merged: dict[str, Any] = {key: value for key, value in written.items() if key != "allOf"}
        for member in written["allOf"]:
            if self.accepts(reader, SchemaLocation(member, writer.document), path, depth + 1):
                return True
            merged = _merged(merged, member)
        return self.compare(reader, SchemaLocation(merged, writer.document), path, depth + 1)

    def _some_branch(
        self, reader: SchemaLocation, writer: SchemaLocation, key: str, branches: list[Any], path: str, depth: int
    ) -> bool:
        if _is_same(key, reader, writer):
            return True
        accepting = [
            branch
            for index, branch in enumerate(branches)
            if self.accepts(SchemaLocation(branch, reader.document), writer, f"{path}/{key}/{index}", depth + 1)
        ]
        if not accepting:
            return self.fail("SUM_TYPE_NARROWED", f"{path}/{key}", "no choice of the reader allows what is written")
        if key == "oneOf" and len(accepting) > 1:
            return self.fail(
                "SUM_TYPE_NARROWED", f"{path}/{key}", "several choices of the reader allow what is written"
            )
        return True

    def _plain(self, reader: SchemaLocation, writer: SchemaLocation, path: str, depth: int) -> bool:
        reader_schema, writer_schema = reader.schema, writer.schema
        values = check_values(reader_schema, writer_schema)
        if values is not None:
            return self.fail(values.kind, path + values.path, values.reason)
        if "enum" in writer_schema or "const" in writer_schema:
            return True  # each value was tried
        verdict = True
        for finding in (*check_bounds(reader_schema, writer_schema), *undecided(reader_schema, writer_schema)):
            verdict = self.fail(finding.kind, path + finding.path, finding.reason)
        types = allowed_types(writer_schema)
        if may_be(types, "object"):
            verdict &= ObjectRules(self, reader, writer).hold(path, depth)
        if may_be(types, "array"):
            verdict &= ObjectRules(self, reader, writer).items_hold(path, depth)
        return verdict


def _is_same(key: str, reader: SchemaLocation, writer: SchemaLocation) -> bool:
    """Two times the same choice needs no closer look, where references mean the same."""
    if not isinstance(writer.schema, dict) or reader.schema.get(key) != writer.schema.get(key):
        return False
    return reader.document.root == writer.document.root or "$ref" not in str(reader.schema.get(key))


def _merged(one: dict[str, Any], other: Any) -> dict[str, Any]:
    """Keywords of both, where they do not meet; a conjunction may always be made weaker on the writer's side."""
    if not isinstance(other, dict):
        return one
    found = dict(one)
    for key, value in other.items():
        if key not in found:
            found[key] = value
        elif key == "properties" and isinstance(value, dict) and not set(value) & set(found[key]):
            found[key] = {**found[key], **value}
        elif key == "required" and isinstance(value, list):
            found[key] = [*found[key], *value]
    return found
