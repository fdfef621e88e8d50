"""Options of a .proto file: those that protobuf knows become fields, others are kept as they are written.

A custom option is defined in a file of its own, which need not be at hand; protobuf has a place for those that nobody
has interpreted yet, and there they stay.
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, UninterpretedOption
from google.protobuf.message import Message

from headwater.schemas.schema import InvalidSchema

_TEXTS = (FieldDescriptor.TYPE_STRING,)


def set_options(options: Message, elements: Iterable[Any], of: FieldDescriptorProto | None = None) -> None:
    for element in elements:
        if type(element).__name__ != "Option":
            continue
        name, value = element.name, element.value
        if of is not None and name == "default":
            of.default_value = _default(value)
        elif of is not None and name == "json_name":
            of.json_name = str(value)
        elif not _set_known(options, name, value):
            _keep(options.uninterpreted_option.add(), name, value)  # type: ignore[attr-defined]


def _set_known(options: Message, name: str, value: Any) -> bool:
    known = options.DESCRIPTOR.fields_by_name.get(name)
    if known is None or known.message_type is not None or name == "uninterpreted_option":
        return False
    word = _word(value)
    try:
        if known.enum_type is not None:
            chosen = known.enum_type.values_by_name.get(word)
            if chosen is None:
                raise InvalidSchema(f"Option {name} cannot be {word!r}.")
            setattr(options, name, chosen.number)
        elif known.type in _TEXTS:
            setattr(options, name, word)
        else:
            setattr(options, name, value if not hasattr(value, "name") else {"true": True, "false": False}[word])
    except (TypeError, ValueError, KeyError, AttributeError):
        raise InvalidSchema(f"Option {name} cannot be {word!r}.") from None
    return True


def _keep(kept: UninterpretedOption, name: str, value: Any) -> None:
    kept.name.add(name_part=name, is_extension=False)
    match value:
        case bool():
            kept.identifier_value = "true" if value else "false"
        case int() if -(2**63) <= value < 0:
            kept.negative_int_value = value
        case int() if 0 <= value < 2**64:
            kept.positive_int_value = value
        case int() | float():
            kept.double_value = float(value)
        case str():
            kept.string_value = value.encode("utf-8", "surrogatepass")
        case _ if hasattr(value, "name"):
            kept.identifier_value = value.name
        case _:
            kept.aggregate_value = literal(value)


def literal(value: Any) -> str:
    """A message literal in protobuf's text format."""
    if isinstance(value, list):
        return "[" + ", ".join(literal(each) for each in value) + "]"
    if hasattr(value, "elements"):
        fields = [each for each in value.elements if type(each).__name__ == "MessageLiteralField"]
        return "{ " + " ".join(f"{each.name}: {literal(each.value)}" for each in fields) + " }"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    return value.name if hasattr(value, "name") else str(value)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.name) if hasattr(value, "name") else str(value)


def _default(value: Any) -> str:
    return _word(value)
