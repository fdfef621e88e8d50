"""A configuration as TOML: for files that commands and tests write. Keys and values are plain; paths become texts."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any


def toml_text(config: Mapping[str, Any]) -> str:
    """Values first, then a table for each mapping, and one for each in a list of mappings."""
    return "\n".join(_lines(config)) + "\n"


def _lines(config: Mapping[str, Any]) -> Iterator[str]:
    for key, value in config.items():
        if not _is_table(value) and not _are_tables(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in config.items():
        if _is_table(value):
            yield from ("", f"[{_key(key)}]", *_pairs(value))
        elif _are_tables(value):
            for each in value:
                yield from ("", f"[[{_key(key)}]]", *_pairs(each))


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _are_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):  # an address is a text
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(getattr(value, "value", value))
    return json.dumps(text, ensure_ascii=False)  # whose escapes TOML has
