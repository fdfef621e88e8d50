"""Where something stands in a message: the names of fields with dots between them, `[]` behind those of arrays."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from headwater.wire.message import Message


class Leaf(NamedTuple):
    path: str
    value: Any
    around: tuple[Message, ...]
    """The structs that it is in, the outermost first."""


def leaves(message: Any) -> Iterator[Leaf]:
    if message is not None:
        yield from _leaves(message, "", ())


def error_codes(message: Any) -> list[Leaf]:
    return [leaf for leaf in leaves(message) if leaf.path.endswith("error_code")]


def values_at(message: Any, path: str) -> list[Any]:
    return [leaf.value for leaf in leaves(message) if leaf.path == path]


def _leaves(value: Any, path: str, around: tuple[Message, ...]) -> Iterator[Leaf]:
    if isinstance(value, Message):
        for name in value.__slots__:
            yield from _leaves(getattr(value, name), f"{path}.{name}" if path else name, (*around, value))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each, f"{path}[]", around)
    else:
        yield Leaf(path, value, around)
