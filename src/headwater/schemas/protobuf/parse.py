"""Text of a .proto file to a file descriptor: the language by a parser, the meaning by protobuf itself."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from headwater.schemas.limits import MAX_DEPTH, MAX_PROTOBUF_BYTES
from headwater.schemas.protobuf.options import set_options
from headwater.schemas.schema import InvalidSchema

if TYPE_CHECKING:
    from proto_schema_parser import ast

SCALARS: Final = {
    name: getattr(FieldDescriptorProto, "TYPE_" + name.upper())
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
        "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip
_LABELS: Final = {
    "REQUIRED": FieldDescriptorProto.LABEL_REQUIRED,
    "OPTIONAL": FieldDescriptorProto.LABEL_OPTIONAL,
    "REPEATED": FieldDescriptorProto.LABEL_REPEATED,
}
_MAX_NUMBER, _MAX_ENUM_NUMBER = 2**29, 2**31 - 1
_QUIET = r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|//[^\n]*|/\*.*?\*/'
"""Texts and comments."""
_WORDS = re.compile(_QUIET + r"|[{}\[\]()<>]", re.DOTALL)
_NUMBERS = re.compile(_QUIET + r"|(?<![\w.])(?:(?P<hex>0[xX][0-9a-fA-F]+)|(?P<octal>0[0-7]+))(?![\w.])", re.DOTALL)


def parse_proto(text: str, name: str) -> FileDescriptorProto:
    """Names of types are left as they are written. Raises InvalidSchema."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_PROTOBUF_BYTES:
        raise InvalidSchema(f"The text has more than {MAX_PROTOBUF_BYTES} bytes.")
    _check_depth(text)
    tree = _tree(_NUMBERS.sub(_in_decimal, text))
    try:
        return _FileBuilder(tree, name).build()
    except ValueError as error:
        raise InvalidSchema(f"It is no .proto file: {error}.") from None


def _in_decimal(found: re.Match[str]) -> str:
    """The parser knows no other numbers of fields."""
    if found["hex"]:
        return str(int(found["hex"], 16))
    return str(int(found["octal"], 8)) if found["octal"] else found[0]


def _check_depth(text: str) -> None:
    depth = 0
    for word in _WORDS.finditer(text):
        depth += (word[0] in "{[(<") - (word[0] in "}])>") if len(word[0]) == 1 else 0
        if depth > MAX_DEPTH // 4:  # the parser needs many calls for a level
            raise InvalidSchema(f"It is nested deeper than {MAX_DEPTH // 4} levels.")


def _tree(text: str) -> "ast.File":
    """Imported here: the parser's tables take longer to load than a broker takes to start."""
    from antlr4.error.ErrorListener import ErrorListener
    from proto_schema_parser.parser import Parser

    class Raising(ErrorListener):  # type: ignore[misc]
        def syntaxError(self, _: Any, __: Any, line: int, column: int, message: str, ___: Any) -> None:
            raise InvalidSchema(f"Line {line}, column {column + 1}: {message[:200]}.")

    def strict(part: Any) -> None:
        part.removeErrorListeners()
        part.addErrorListener(Raising())

    try:
        return Parser(setup_lexer=strict, setup_parser=strict).parse(text)
    except RecursionError:
        raise InvalidSchema("It is nested too deeply.") from None
    except (ValueError, AttributeError, TypeError, KeyError, IndexError) as error:
        raise InvalidSchema(f"It is no .proto file: {error}.") from None


class _FileBuilder:
    def __init__(self, tree: "ast.File", name: str) -> None:
        self._tree = tree
        self._file = FileDescriptorProto(name=name)
        self._is_proto3 = tree.syntax == "proto3"
        self._is_proto2 = tree.edition is None and not self._is_proto3

    def build(self) -> FileDescriptorProto:
        self._set_syntax()
        elements: list[Any] = list(self._tree.file_elements)
        for element in elements:
            match type(element).__name__:
                case "Package":
                    if self._file.HasField("package"):
                        raise InvalidSchema("The file has two packages.")
                    self._file.package = element.name
                case "Import":
                    self._import(element)
                case "Message":
                    self._message(element, self._file.message_type.add())
                case "Enum":
                    _enum(element, self._file.enum_type.add())
                case "Service":
                    _service(element, self._file.service.add())
                case "Extension":
                    self._extension(element, self._file.extension.add, self._file.message_type.add)
        set_options(self._file.options, elements)
        return self._file

    def _set_syntax(self) -> None:
        syntax, edition = self._tree.syntax, self._tree.edition
        if syntax not in (None, "proto2", "proto3"):
            raise InvalidSchema(f"{syntax!r} is no syntax: it can be proto2 or proto3.")
        if syntax is not None:
            self._file.syntax = syntax
        if edition is not None:
            if f"EDITION_{edition}" not in Edition.keys():  # noqa: SIM118
                raise InvalidSchema(f"{edition!r} is no edition that is known.")
            self._file.syntax = "editions"
            self._file.edition = Edition.Value(f"EDITION_{edition}")

    def _import(self, element: Any) -> None:
        index = len(self._file.dependency)
        self._file.dependency.append(element.name)
        if element.public:
            self._file.public_dependency.append(index)
        if element.weak:
            self._file.weak_dependency.append(index)

    def _message(self, tree: Any, message: DescriptorProto) -> None:
        message.name = tree.name
        synthetic: list[FieldDescriptorProto] = []
        for element in tree.elements:
            match type(element).__name__:
                case "Field":
                    found = message.field.add()
                    self._field(element, found)
                    if self._is_proto3 and element.cardinality == "OPTIONAL":
                        found.proto3_optional = True
                        synthetic.append(found)
                case "MapField":
                    self._map(element, message)
                case "Group":
                    self._group(element, message.field.add(), message.nested_type.add())
                case "OneOf":
                    self._oneof(element, message)
                case "Message":
                    self._message(element, message.nested_type.add())
                case "Enum":
                    _enum(element, message.enum_type.add())
                case "Extension":
                    self._extension(element, message.extension.add, message.nested_type.add)
                case "Reserved":
                    message.reserved_name.extend(_unquoted(name) for name in element.names)
                    for text in element.ranges:
                        start, end = _range(text, _MAX_NUMBER - 1)
                        message.reserved_range.add(start=start, end=end + 1)
                case "ExtensionRange":
                    for text in element.ranges:
                        start, end = _range(text, _MAX_NUMBER - 1)
                        message.extension_range.add(start=start, end=end + 1)
        set_options(message.options, tree.elements)
        if message.options.HasField("map_entry"):
            raise InvalidSchema(f"{message.name}: map_entry is not for files. Use map<key, value>.")
        for found in synthetic:  # real choices come first
            found.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name="_" + found.name)

    def _field(self, tree: Any, found: FieldDescriptorProto, *, is_choice: bool = False) -> None:
        found.name = tree.name
        found.number = _number(tree.number, tree.name)
        found.label = self._label(tree, is_choice=is_choice)
        _set_type(found, tree.type)
        set_options(found.options, tree.options, found)

    def _map(self, tree: Any, message: DescriptorProto) -> None:
        entry = message.nested_type.add(name=_entry_name(tree.name))
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", tree.key_type), ("value", tree.value_type)), 1):
            inner = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            _set_type(inner, kind)
        found = message.field.add(name=tree.name, label=FieldDescriptorProto.LABEL_REPEATED, type_name=entry.name)
        found.number = _number(tree.number, tree.name)
        found.type = FieldDescriptorProto.TYPE_MESSAGE
        set_options(found.options, tree.options, found)

    def _label(self, tree: Any, *, is_choice: bool = False) -> FieldDescriptorProto.Label.ValueType:
        label = tree.cardinality.value if tree.cardinality else None
        if self._tree.edition is not None and label in ("OPTIONAL", "REQUIRED"):
            raise InvalidSchema(f"Field {tree.name}: editions have no {label.lower()}; see features.field_presence.")
        if self._is_proto2 and label is None and not is_choice:
            raise InvalidSchema(f"Field {tree.name} must be optional, required or repeated in proto2.")
        return _LABELS[label or "OPTIONAL"]

    def _oneof(self, tree: Any, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        choice = message.oneof_decl.add(name=tree.name)
        for element in tree.elements:
            kind = type(element).__name__
            if kind == "Field":
                found = message.field.add()
                self._field(element, found, is_choice=True)
                found.oneof_index = index
            elif kind == "Group":
                found = message.field.add()
                self._group(element, found, message.nested_type.add(), is_choice=True)
                found.oneof_index = index
        set_options(choice.options, tree.elements)

    def _group(
        self, tree: Any, found: FieldDescriptorProto, message: DescriptorProto, *, is_choice: bool = False
    ) -> None:
        self._message(tree, message)
        found.name = tree.name.lower()
        found.number = _number(tree.number, tree.name)
        found.label = self._label(tree, is_choice=is_choice)
        found.type = FieldDescriptorProto.TYPE_GROUP
        found.type_name = tree.name

    def _extension(
        self, tree: Any, add_field: Callable[[], FieldDescriptorProto], add_message: Callable[[], DescriptorProto]
    ) -> None:
        for element in tree.elements:
            kind = type(element).__name__
            if kind in ("Field", "Group"):
                found = add_field()
                found.extendee = tree.typeName
                if kind == "Field":
                    self._field(element, found)
                else:
                    self._group(element, found, add_message())


def _set_type(found: FieldDescriptorProto, name: str) -> None:
    if name in SCALARS:
        found.type = SCALARS[name]
    else:  # a message or an enum: protobuf finds out
        found.type_name = name


def _enum(tree: Any, found: EnumDescriptorProto) -> None:
    found.name = tree.name
    for element in tree.elements:
        kind = type(element).__name__
        if kind == "EnumValue":
            if not -_MAX_ENUM_NUMBER - 1 <= element.number <= _MAX_ENUM_NUMBER:
                raise InvalidSchema(f"{element.number} is no number for {element.name}.")
            value = found.value.add(name=element.name, number=element.number)
            set_options(value.options, element.options)
        elif kind == "EnumReserved":
            found.reserved_name.extend(_unquoted(name) for name in element.names)
            for text in element.ranges:
                start, end = _range(text, _MAX_ENUM_NUMBER)
                found.reserved_range.add(start=start, end=end)
    set_options(found.options, tree.elements)


def _service(tree: Any, found: ServiceDescriptorProto) -> None:
    found.name = tree.name
    for element in tree.elements:
        if type(element).__name__ == "Method":
            method = found.method.add(
                name=element.name, input_type=element.input_type.type, output_type=element.output_type.type
            )
            if element.input_type.stream:
                method.client_streaming = True
            if element.output_type.stream:
                method.server_streaming = True
            set_options(method.options, element.elements)
    set_options(found.options, tree.elements)


def _entry_name(name: str) -> str:
    """As protoc names the message of a map's entries: runtimes look for it."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _number(number: int, name: str) -> int:
    if not 1 <= number < _MAX_NUMBER or 19_000 <= number < 20_000:
        raise InvalidSchema(f"{number} is no number for field {name}.")
    return number


def _range(text: str, most: int) -> tuple[int, int]:
    parts = text.split()
    numbers = [most if part == "max" else int(part, 0) for part in parts if part != "to"]
    if len(numbers) not in (1, 2) or not -(2**31) <= numbers[0] <= numbers[-1] <= most:
        raise InvalidSchema(f"{text!r} is no range of numbers.")
    return numbers[0], numbers[-1]


def _unquoted(name: str) -> str:
    return name.strip("\"'")
