"""One key of a pipeline file: how it is declared in a dataclass, and how what stands in the file becomes its value.

    topic: str = required(text, "The topic to read.")
    watermark_ms: int | None = optional(duration, "How late rows may be.", file_name="watermark")

A reader takes what TOML or Python gives and returns the value, or raises `NotAccepted` with what is needed.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from headwater.client.security_options import SECRET_OPTIONS
from headwater.pipelines.spec.declarations import Declaration
from headwater.pipelines.spec.durations import HELP, duration_ms
from headwater.pipelines.spec.mistakes import Mistake, name_hint

MAX_COUNT = 2**31 - 1
Read = Callable[[object], Any]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_SIZE = re.compile(r"(\d{1,9})\s*(B|KB|MB|GB|KiB|MiB|GiB)", re.ASCII)
_SIZE_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class NotAccepted(Exception):
    """A value that its key does not take. The message says what is needed."""


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    """In the file."""
    read: Read
    doc: str
    is_required: bool


def required(read: Read, doc: str, *, file_name: str = "") -> Any:
    return field(kw_only=True, metadata={"key": (file_name, read, doc)})


def optional(read: Read, doc: str, default: object = None, *, file_name: str = "") -> Any:
    return field(default=default, kw_only=True, metadata={"key": (file_name, read, doc)})


def mapping(read: Read, doc: str, *, file_name: str = "") -> Any:
    """An optional table, empty by default."""
    return field(default_factory=dict, kw_only=True, hash=False, metadata={"key": (file_name, read, doc)})


def keys_of(kind: type) -> dict[str, Key]:
    """The keys of a dataclass by the names of its fields."""
    found = {}
    for each in fields(kind):
        if "key" in each.metadata:
            file_name, read, doc = each.metadata["key"]
            is_required = each.default is MISSING and each.default_factory is MISSING
            found[each.name] = Key(file_name or each.name, read, doc, is_required)
    return found


def read_keys(kind: type, declaration: Declaration, *, but: frozenset[str] = frozenset()) -> Any:
    """An instance of the dataclass, or all that keeps it from being one. Keys in `but` were read by the caller."""
    keys = keys_of(kind)
    known = {key.name for key in keys.values()}
    mistakes = [
        Mistake(declaration.location_of(name), f"{declaration} has no key {name}.{name_hint(name, known | but)}")
        for name in declaration.values
        if name not in known | but
    ]
    values = {}
    for field_name, key in keys.items():
        if key.name in declaration.values:
            try:
                values[field_name] = key.read(declaration.values[key.name])
            except NotAccepted as error:
                mistakes.append(Mistake(declaration.location_of(key.name), f"{declaration}: {key.name} needs {error}."))
        elif key.is_required:
            mistakes.append(Mistake(declaration.location, f"{declaration} lacks {key.name}: {_lower_first(key.doc)}"))
    return mistakes or kind(**values)


# Readers


def text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise NotAccepted("a text")
    return value


def query(value: object) -> str:
    """A query in Spark's SQL; `texts.py` judges it."""
    return text(value)


def expression(value: object) -> str:
    """An expression in Spark's SQL; `texts.py` judges it."""
    return text(value)


def schema(value: object) -> str:
    """Columns and their types; `texts.py` judges them."""
    return text(value)


def text_with_variables(value: object) -> str:
    """`${NAME}` stands for a variable of the environment: a file holds no passwords."""

    def look_up(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None:
            raise NotAccepted(f"the environment variable {match[1]}, which is not set")
        return found

    return _VARIABLE.sub(look_up, text(value))


def identifier(value: object) -> str:
    if not isinstance(value, str) or _IDENTIFIER.fullmatch(value) is None:
        raise NotAccepted("a name of letters, digits and underscores that begins with no digit")
    return value


def topic_name(value: object) -> str:
    if not isinstance(value, str) or _TOPIC.fullmatch(value) is None or value in (".", ".."):
        raise NotAccepted("the name of a topic: up to 249 letters, digits, dots, dashes and underscores")
    return value


def texts(value: object) -> tuple[str, ...]:
    """A list of texts; one alone need not be in a list."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not all(isinstance(each, str) and each for each in items):
        raise NotAccepted("a text or a list of texts")
    return tuple(items)


def identifiers(value: object) -> tuple[str, ...]:
    return tuple(identifier(each) for each in texts(value))


def duration(value: object) -> int:
    found = duration_ms(value) if isinstance(value, str) else None
    if not found:
        raise NotAccepted(f"a length of time: {HELP}")
    return found


def byte_size(value: object) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or not int(match[1]):
        raise NotAccepted('a size such as "16MiB" or "128MB"')
    return int(match[1]) * _SIZE_UNITS[match[2]]


def count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
        raise NotAccepted(f"a whole number from 1 to {MAX_COUNT}")
    return value


def switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise NotAccepted("true or false")
    return value


def choice(*words: str) -> Read:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise NotAccepted(f"one of: {', '.join(words)}")
        return value

    return read


def expressions(value: object) -> dict[str, str]:
    """A table from names of columns to SQL expressions."""
    if not isinstance(value, Mapping) or not value:
        raise NotAccepted('a table from names to SQL expressions, such as { revenue = "sum(amount)" }')
    return {identifier(name): text(each) for name, each in value.items()}


def option_table(value: object) -> dict[str, str]:
    """A table of texts, numbers and switches under names with dots, which may be quoted or not."""
    return {name: text_with_variables(item) if item.strip() else item for name, item in _flat(value).items()}


def topic_options(value: object) -> dict[str, str]:
    """As `option_table`, of what reads or writes a topic: a password in it comes from the environment."""
    for name, item in _flat(value).items():
        if name.lower().removeprefix("kafka.") in SECRET_OPTIONS and _VARIABLE.search(item) is None:
            raise NotAccepted(
                f'{name} from the environment, as "${{NAME}}": a file holds no passwords. Or leave the login to '
                "`headwater pipeline run --client`"
            )
    return option_table(value)


def _flat(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise NotAccepted("a table")
    flat: dict[str, str] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat |= {f"{name}.{inner}": inner_text for inner, inner_text in _flat(item).items()}
        elif isinstance(item, bool):
            flat[str(name)] = str(item).lower()
        elif isinstance(item, int | float):
            flat[str(name)] = str(item)
        elif isinstance(item, str):
            flat[str(name)] = item
        else:
            raise NotAccepted(f"texts, numbers, true or false; {name} is none of them")
    return flat


def _lower_first(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
