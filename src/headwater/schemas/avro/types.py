"""An Avro schema as a graph of types: names are resolved, rules are checked, and a type may contain itself."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.schemas.limits import MAX_DEPTH, MAX_TYPES
from headwater.schemas.schema import InvalidSchema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
NO_DEFAULT: Final = object()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_INT, _LONG = 2**31, 2**63


@dataclass(slots=True, eq=False)
class RecordField:
    name: str
    type: "Type"
    default: object = NO_DEFAULT
    aliases: tuple[str, ...] = ()

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


@dataclass(slots=True, eq=False)
class Type:
    kind: str
    """A primitive's name, record, enum, fixed, array, map or union."""
    name: str = ""
    """Full; of a record, an enum or a fixed alone."""
    aliases: tuple[str, ...] = ()
    fields: list[RecordField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    items: "Type | None" = None
    """Of an array; the values of a map."""
    branches: list["Type"] = field(default_factory=list)


class TypeReader:
    """Reads declarations, one after another; each may use the names of those before it."""

    def __init__(self, known: "Mapping[str, Type] | None" = None) -> None:
        self.named: dict[str, Type] = dict(known or {})
        self._count = 0
        self._defaults: list[tuple[RecordField, str]] = []

    def read(self, declared: Any) -> Type:
        """Raises InvalidSchema."""
        found = self._read(declared, "", "", 0)
        for each, path in self._defaults:  # when all names are known
            expected = each.type.branches[0] if each.type.kind == "union" and each.type.branches else each.type
            _check_default(each.default, expected, path, 0)
        self._defaults.clear()
        return found

    def _read(self, declared: Any, namespace: str, path: str, depth: int) -> Type:
        self._count += 1
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"{path or '/'}: types are nested deeper than {MAX_DEPTH} levels.")
        if self._count > MAX_TYPES:
            raise InvalidSchema(f"There are more than {MAX_TYPES} types.")
        if isinstance(declared, str):
            return self._by_name(declared, namespace, path)
        if isinstance(declared, list):
            return self._union(declared, namespace, path, depth)
        if not isinstance(declared, dict):
            raise InvalidSchema(f"{path or '/'}: a type is a name, an object or a list, not {_shown(declared)}.")
        kind = declared.get("type")
        if isinstance(kind, dict | list):
            return self._read(kind, namespace, path + "/type", depth + 1)
        if not isinstance(kind, str):
            raise InvalidSchema(f"{path or '/'}: there is no type.")
        if kind in NAMED:
            return self._declare(kind, declared, namespace, path, depth)
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in declared:
                raise InvalidSchema(f"{path or '/'}: {kind} has no {key}.")
            return Type(kind, items=self._read(declared[key], namespace, f"{path}/{key}", depth + 1))
        return self._by_name(kind, namespace, path)

    def _by_name(self, name: str, namespace: str, path: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        for full in (full_name(name, namespace), name):
            if full in self.named:
                return self.named[full]
        raise InvalidSchema(f"{path or '/'}: {_shown(name)} is no type.")

    def _union(self, declared: list[Any], namespace: str, path: str, depth: int) -> Type:
        branches = [self._read(each, namespace, f"{path}/{index}", depth + 1) for index, each in enumerate(declared)]
        seen = set()
        for index, branch in enumerate(branches):
            if branch.kind == "union":
                raise InvalidSchema(f"{path}/{index}: a union may not hold a union.")
            if (branch.name or branch.kind) in seen:
                raise InvalidSchema(f"{path}/{index}: {branch.name or branch.kind} is twice in the union.")
            seen.add(branch.name or branch.kind)
        return Type("union", branches=branches)

    def _declare(self, kind: str, declared: Mapping[str, Any], namespace: str, path: str, depth: int) -> Type:
        name, inner = _declared_name(declared, namespace, path)
        if name in self.named:
            raise InvalidSchema(f"{path or '/'}: {name} is declared twice.")
        found = Type("record" if kind == "error" else kind, name)
        found.aliases = tuple(full_name(alias, inner) for alias in _names(declared, "aliases", path, dotted=True))
        self.named[name] = found
        if kind == "enum":
            found.symbols = _names(declared, "symbols", path)
            if "symbols" not in declared or len(set(found.symbols)) != len(found.symbols):
                raise InvalidSchema(f"{path or '/'}: enum {name} has no symbols, or one of them twice.")
            default = declared.get("default")
            if default is not None and default not in found.symbols:
                raise InvalidSchema(f"{path}/default: {_shown(default)} is no symbol of {name}.")
            found.default_symbol = default
        elif kind == "fixed":
            size = declared.get("size")
            if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < _INT:
                raise InvalidSchema(f"{path or '/'}: fixed {name} has no size.")
            found.size = size
        else:
            self._read_fields(found, declared.get("fields"), inner, path, depth)
        return found

    def _read_fields(self, record: Type, declared: Any, namespace: str, path: str, depth: int) -> None:
        if not isinstance(declared, list):
            raise InvalidSchema(f"{path or '/'}: record {record.name} has no list of fields.")
        seen: set[str] = set()
        for index, each in enumerate(declared):
            here = f"{path}/fields/{index}"
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                raise InvalidSchema(f"{here}: {_shown(name)} is no name for a field.")
            if name in seen:
                raise InvalidSchema(f"{here}: {record.name} has a field {name} already.")
            if "type" not in each:
                raise InvalidSchema(f"{here}: field {name} has no type.")
            seen.add(name)
            found = RecordField(
                name,
                self._read(each["type"], namespace, here + "/type", depth + 1),
                each.get("default", NO_DEFAULT),
                _names(each, "aliases", here),
            )
            record.fields.append(found)
            if found.has_default:
                self._defaults.append((found, here + "/default"))


def full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _declared_name(declared: Mapping[str, Any], namespace: str, path: str) -> tuple[str, str]:
    """The full name, and the namespace of what is declared inside."""
    name, own = declared.get("name"), declared.get("namespace", namespace)
    if not isinstance(name, str) or not isinstance(own, str):
        raise InvalidSchema(f"{path or '/'}: {declared['type']} has no name.")
    full = full_name(name, own)
    if not all(_NAME.fullmatch(part) for part in full.split(".")):
        raise InvalidSchema(f"{path or '/'}: {_shown(full)} is no name.")
    return full, full.rpartition(".")[0]


def _names(declared: Mapping[str, Any], key: str, path: str, *, dotted: bool = False) -> tuple[str, ...]:
    found = declared.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise InvalidSchema(f"{path}/{key}: this is no list of names.")
    for each in found:
        parts = each.split(".") if isinstance(each, str) and dotted else [each]
        if not all(isinstance(part, str) and _NAME.fullmatch(part) for part in parts):
            raise InvalidSchema(f"{path}/{key}: {_shown(each)} is no name.")
    return tuple(found)


def _check_default(value: object, expected: Type, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidSchema(f"{path}: the default is nested deeper than {MAX_DEPTH} levels.")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match expected.kind:
        case "null":
            fits = value is None
        case "boolean":
            fits = isinstance(value, bool)
        case "int" | "long":
            most = _INT if expected.kind == "int" else _LONG
            fits = isinstance(value, int) and not isinstance(value, bool) and -most <= value < most
        case "float" | "double":
            fits = is_number or value in ("NaN", "Infinity", "-Infinity")
        case "string":
            fits = isinstance(value, str)
        case "bytes":
            fits = _is_latin(value)
        case "fixed":
            fits = _is_latin(value) and isinstance(value, str) and len(value) == expected.size
        case "enum":
            fits = value in expected.symbols
        case "union":
            fits = _fits_a_branch(value, expected, path, depth)
        case "array" | "map":
            assert expected.items is not None, "an array has items, a map has values"
            fits = isinstance(value, list if expected.kind == "array" else dict)
            if isinstance(value, list | dict) and fits:
                for each in value.values() if isinstance(value, dict) else value:
                    _check_default(each, expected.items, path, depth + 1)
        case _:
            fits = isinstance(value, dict)
            if isinstance(value, dict):
                for each in expected.fields:
                    if each.name in value:
                        _check_default(value[each.name], each.type, f"{path}/{each.name}", depth + 1)
                    elif not each.has_default:
                        raise InvalidSchema(f"{path}: field {each.name} of {expected.name} is missing.")
    if not fits:
        raise InvalidSchema(f"{path}: {_shown(value)} is no {expected.name or expected.kind}.")


def _fits_a_branch(value: object, union: Type, path: str, depth: int) -> bool:
    for branch in union.branches:
        try:
            _check_default(value, branch, path, depth + 1)
        except InvalidSchema:
            continue
        return True
    return False


def _is_latin(value: object) -> bool:
    return isinstance(value, str) and all(ord(letter) < 256 for letter in value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
