"""Messages of any API by the names of their fields, for tests that speak bytes: structs inside are `nested(...)`, and
become of the class that their field has. A name that no such field has is a TypeError."""

from collections.abc import Iterator
from typing import Any, TypeVar

from headwater.wire.message import Message

MessageT = TypeVar("MessageT", bound=Message)


def build(message_class: type[MessageT], **fields: Any) -> MessageT:
    structs = message_class.STRUCTS
    make: Any = message_class
    message: MessageT = make(**{name: _built(structs.get(name), value) for name, value in fields.items()})
    return message


def nested(**fields: Any) -> dict[str, Any]:
    """The fields of a struct inside a message."""
    return fields


def values_at(message: Message, place: str) -> Iterator[Any]:
    """What stands at a place of a message, `topics[].partitions[].error_code`."""
    name, _, rest = place.partition(".")
    value = getattr(message, name.removesuffix("[]"))
    for each in value if name.endswith("[]") else [value]:
        yield from values_at(each, rest) if rest else [each]


def _built(message_class: type[Message] | None, value: Any) -> Any:
    if message_class is None:
        return value
    if isinstance(value, dict):
        return build(message_class, **value)
    return [_built(message_class, each) for each in value] if isinstance(value, list | tuple) else value
