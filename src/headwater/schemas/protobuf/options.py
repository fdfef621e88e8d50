"""Options of a .proto file: options that protobuf knows become fields, others are kept as they are written.

A custom option is defined in another file, which need not be at hand; protobuf has a field for options that were not
interpreted yet, and there they stay.
"""

import re
from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, UninterpretedOption
from google.protobuf.message import Message

from headwater.schemas.schema import InvalidSchema

_TEXTS = (FieldDescriptor.TYPE_STRING,)
_TRUTHS = {"true": True, "false": False}
_ESCAPE = re.compile(r"\\([xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def set_options(options: Message, elements: Iterable[Any], of: FieldDescriptorProto | None = None) -> None:
    for element in elements:
        if type(element).__name__ != "Option":
            continue
        name, value = element.name, element.value
        if of is not None and name == "default":
            # Of bytes the descriptor has the escaped form.
            of.default_value = value if isinstance(value, str) and of.type == of.TYPE_BYTES else _word(value)
        elif of is not None and name == "json_name":
            of.json_name = _word(value)
        elif not _set_known(options, name, value):
            if not _may_be_known_elsewhere(options, name):
                raise InvalidSchema(f"Option {name[:200]} is unknown.")
            _keep(options.uninterpreted_option.add(), name, value)  # type: ignore[attr-defined]


def _set_known(options: Message, name: str, value: Any) -> bool:
    known = options.DESCRIPTOR.fields_by_name.get(name)
    if known is None or known.message_type is not None or name == "uninterpreted_option":
        return False
    word = _word(value)
    if not known.is_repeated and options.HasField(name):
        raise InvalidSchema(f"Option {name} is set twice.")
    try:
        if known.enum_type is not None:
            chosen = known.enum_type.values_by_name.get(word)
            if chosen is None:
                raise InvalidSchema(f"Option {name} cannot be {word!r}.")
            setattr(options, name, chosen.number)
        elif known.type in _TEXTS:
            setattr(options, name, word)
        elif known.type == FieldDescriptor.TYPE_BOOL:
            setattr(options, name, _TRUTHS[word if not isinstance(value, str) else ""])
        else:
            setattr(options, name, value)
    except (TypeError, ValueError, KeyError, AttributeError):
        raise InvalidSchema(f"Option {name} cannot be {word!r}.") from None
    return True


def _may_be_known_elsewhere(options: Message, name: str) -> bool:
    """A custom option, or one of the features of an edition."""
    if name.startswith("("):
        return True
    first, dot, second = name.partition(".")
    known = options.DESCRIPTOR.fields_by_name.get(first)
    if known is None or known.message_type is None:
        return False
    return not dot or second.startswith("(") or second.partition(".")[0] in known.message_type.fields_by_name


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
            kept.string_value = unescaped(value).encode("utf-8", "surrogatepass")
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
        return quoted(unescaped(value))
    return value.name if hasattr(value, "name") else str(value)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.name) if hasattr(value, "name") else unescaped(str(value))


def unescaped(text: str) -> str:
    """The parser leaves texts as they stand between their quotation marks."""
    return _ESCAPE.sub(lambda found: _meaning(found[1]), text)


def _meaning(escape: str) -> str:
    if escape[0] in "xX":
        return chr(int(escape[1:], 16))
    if escape[0] in "uU":
        number = int(escape[1:], 16)
        return chr(number) if number < 0x110000 else "\ufffd"
    if escape[0] in "01234567":
        return chr(int(escape, 8) & 0xFF)
    return _ESCAPED.get(escape, escape)
