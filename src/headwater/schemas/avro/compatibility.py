"""Whether an Avro reader can read what a writer wrote: the rules of schema resolution in Avro's specification."""

from typing import Final

from headwater.schemas.avro.types import RecordField, Type
from headwater.schemas.incompatibility import Findings, Incompatibility
from headwater.schemas.limits import MAX_DEPTH

PROMOTED: Final = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""What else a reader of a primitive takes."""


def unreadable(reader: Type, writer: Type) -> list[Incompatibility]:
    """Empty if everything that the writer writes can be read."""
    comparison = _Comparison()
    comparison.compare(reader, writer, "", 0)
    return comparison.findings.found


class _Comparison:
    def __init__(self) -> None:
        self.findings = Findings()
        self._verdicts: dict[tuple[int, int], bool] = {}
        """By the identities of two types. A pair that is being compared counts as readable: it is met again only inside
        itself."""
        self._believed: list[tuple[int, int]] = []
        """Pairs that count as readable, in the order in which they were met."""

    def compare(self, reader: Type, writer: Type, path: str, depth: int) -> bool:
        """Say whether it is readable, and why not."""
        if not self.findings.may_compare(path):
            return False
        if depth > MAX_DEPTH:
            self.findings.add("TOO_COMPLEX", path, f"types are nested deeper than {MAX_DEPTH} levels")
            return False
        pair = (id(reader), id(writer))
        known = self._verdicts.get(pair)
        if known is not None:
            return known
        self._verdicts[pair] = True
        before = len(self._believed)
        self._believed.append(pair)
        verdict = self._compare(reader, writer, path, depth)
        if not verdict:  # what was found meanwhile may rest on the belief that it is readable
            for inner in self._believed[before:]:
                del self._verdicts[inner]
            del self._believed[before:]
            self._verdicts[pair] = False
        return verdict

    def _compare(self, reader: Type, writer: Type, path: str, depth: int) -> bool:
        if writer.kind == "union":
            return self._each_branch(reader, writer, path, depth)
        if reader.kind == "union":
            return self._some_branch(reader, writer, path, depth)
        if reader.kind != writer.kind:
            if writer.kind in PROMOTED.get(reader.kind, ()):
                return True
            return self._fail("TYPE_MISMATCH", path, f"a reader of {_word(reader)} gets {_word(writer)}")
        match reader.kind:
            case "array" | "map":
                assert reader.items is not None and writer.items is not None, "an array has items, a map has values"
                key = "items" if reader.kind == "array" else "values"
                return self.compare(reader.items, writer.items, f"{path}/{key}", depth + 1)
            case "record":
                return self._same_name(reader, writer, path) & self._fields(reader, writer, path, depth)
            case "enum":
                return self._same_name(reader, writer, path) & self._symbols(reader, writer, path)
            case "fixed":
                is_named = self._same_name(reader, writer, path)
                if reader.size == writer.size:
                    return is_named
                return self._fail("FIXED_SIZE_MISMATCH", path + "/size", f"{writer.size} is not {reader.size}")
        return True

    def _each_branch(self, reader: Type, writer: Type, path: str, depth: int) -> bool:
        verdict = True
        for index, branch in enumerate(writer.branches):
            here = f"{path}/{index}"
            mark = len(self.findings.found)
            if not self.compare(reader, branch, here, depth + 1):
                verdict = False
                if len(self.findings.found) == mark:  # reported before, elsewhere
                    self.findings.add("MISSING_UNION_BRANCH", here, f"the reader cannot read {_word(branch)}")
        return verdict

    def _some_branch(self, reader: Type, writer: Type, path: str, depth: int) -> bool:
        mark = len(self.findings.found)
        for index, branch in enumerate(reader.branches):
            if self.compare(branch, writer, f"{path}/{index}", depth + 1):
                self.findings.forget(mark)
                return True
        self.findings.forget(mark)
        return self._fail("MISSING_UNION_BRANCH", path, f"the reader's union lacks {_word(writer)}")

    def _same_name(self, reader: Type, writer: Type, path: str) -> bool:
        """Without their namespaces: data do not carry names, and records are moved between packages."""
        if _simple(reader.name) == _simple(writer.name) or writer.name in reader.aliases:
            return True
        if _simple(writer.name) in {_simple(alias) for alias in reader.aliases}:
            return True
        return self._fail("NAME_MISMATCH", path + "/name", f"{writer.name} is not {reader.name}")

    def _fields(self, reader: Type, writer: Type, path: str, depth: int) -> bool:
        verdict = True
        written = {each.name: each for each in writer.fields}
        for index, field in enumerate(reader.fields):
            here = f"{path}/fields/{index}"
            found = _written(field, written)
            if found is not None:
                verdict &= self.compare(field.type, found.type, here + "/type", depth + 1)
            elif not field.has_default:
                reason = f"field {field.name} of {reader.name} has no default, and the writer does not have it"
                verdict = self._fail("READER_FIELD_MISSING_DEFAULT_VALUE", here, reason)
        return verdict

    def _symbols(self, reader: Type, writer: Type, path: str) -> bool:
        missing = [symbol for symbol in writer.symbols if symbol not in set(reader.symbols)]
        if not missing or reader.default_symbol is not None:
            return True
        shown = ", ".join(missing[:10])
        return self._fail("MISSING_ENUM_SYMBOLS", path + "/symbols", f"{reader.name} lacks {shown} and has no default")

    def _fail(self, kind: str, path: str, reason: str) -> bool:
        self.findings.add(kind, path, reason)
        return False


def _written(field: RecordField, written: dict[str, RecordField]) -> RecordField | None:
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _word(each: Type) -> str:
    return f"{each.kind} {each.name}" if each.name else each.kind
