"""The distinguished name of a certificate, written as Java's X500Principal.getName() writes it (RFC 2253): rules for
principals and bindings were written against that text.

    SEQUENCE                          CN=Duke+UID=d1,O=Acme\\, Inc.
      SET                             the last step first; the attributes of a step in the order of the encoding
        SEQUENCE { OID, value }

- RFC 2253 names nine attributes. Every other is its number and `#`, and the hexadecimal encoding of its value; so is a
  value whose type holds no text.
- In text `,=+<>#;"\\` have a backslash wherever they are, a space or a carriage return has one at either end, NUL is
  `\\00`, and all else is itself, line feeds too.
- Java reads the bytes of every string as UTF-8, also those of a BMPString, which is UTF-16: `duke` is then
  `\\00d\\00u\\00k\\00e`. That is kept. But where bytes are not UTF-8, Java writes U+FFFD for them, and so one text for
  several names: such a name is refused here.

The encoding is read here, not by `cryptography`, which refuses a whole certificate for what old authorities have
signed, and TLS and Java accept: a `*` in a PrintableString.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cryptography import x509

MAX_SUBJECT_BYTES: Final = 16 * 1024
_MAX_LENGTH_OCTETS: Final = 4
_MAX_OID_OCTETS: Final = 100
_LONG_TAG: Final = 0x1F

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
_UTF8_STRING: Final = 0x0C
_PRINTABLE_STRING: Final = 0x13
_TELETEX_STRING: Final = 0x14
_IA5_STRING: Final = 0x16
_GENERAL_STRING: Final = 0x1B
_BMP_STRING: Final = 0x1E
_TEXT_TYPES: Final = frozenset(
    {_UTF8_STRING, _PRINTABLE_STRING, _TELETEX_STRING, _IA5_STRING, _GENERAL_STRING, _BMP_STRING}
)

_COMMON_NAME: Final = "2.5.4.3"
_KEYWORDS: Final = {
    _COMMON_NAME: "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPES: Final = str.maketrans({"\0": "\\00"} | {each: f"\\{each}" for each in ',=+<>#;"\\'})
_PADDING: Final = " \r"


class UnreadableName(ValueError):
    """The subject of a certificate has no encoding that could be read, or none that has one text only."""


def dn_of_certificate(certificate: bytes) -> str:
    """The text of the subject of an encoded certificate. Raises UnreadableName."""
    return dn_of_der(subject_of(certificate))


def dn_of_name(name: x509.Name) -> str:
    """The text of a name that was not read from a certificate. Raises UnreadableName."""
    return dn_of_der(name.public_bytes())


def dn_of_der(subject: bytes) -> str:
    """The text of an encoded name. Raises UnreadableName."""
    steps = ("+".join(each.text() for each in step) for step in reversed(_steps(subject)))
    return ",".join(steps)


def common_names(subject: bytes) -> list[str]:
    """The text of each CN of an encoded name, without escapes, in the order of the encoding. Raises UnreadableName."""
    return [each.value.text() for step in _steps(subject) for each in step if each.oid == _COMMON_NAME]


def subject_of(certificate: bytes) -> bytes:
    """The encoded subject of an encoded certificate. Raises UnreadableName."""
    [whole] = _exactly(certificate, (_SEQUENCE,))
    fields = next(_elements(whole.content), whole)
    elements = [each for each in _elements(fields.content) if each.tag != _VERSION]
    if len(elements) < 5 or elements[4].tag != _SEQUENCE:
        raise UnreadableName("The certificate has no subject.")
    return elements[4].encoding


@dataclass(frozen=True, slots=True)
class _Element:
    tag: int
    encoding: bytes
    content: bytes

    def utf8(self) -> str:
        """As Java reads text of any type."""
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            raise UnreadableName("A value in the name of a certificate is not UTF-8.") from None

    def text(self) -> str:
        if self.tag not in _TEXT_TYPES:
            raise UnreadableName(
                f"A value in the name of a certificate has the type 0x{self.tag:02x}, which is not text."
            )
        if self.tag != _BMP_STRING:
            return self.utf8()
        try:
            return self.content.decode("utf-16-be")
        except UnicodeDecodeError:
            raise UnreadableName("A BMPString in the name of a certificate is not UTF-16.") from None


@dataclass(frozen=True, slots=True)
class _Attribute:
    oid: str
    value: _Element

    def text(self) -> str:
        keyword = _KEYWORDS.get(self.oid)
        if keyword is None or self.value.tag not in _TEXT_TYPES:
            return f"{keyword or self.oid}=#{self.value.encoding.hex()}"
        return f"{keyword}={_escaped(self.value.utf8())}"


def _escaped(text: str) -> str:
    core = text.lstrip(_PADDING)
    leading = text[: len(text) - len(core)]
    core = core.rstrip(_PADDING)
    trailing = text[len(leading) + len(core) :]
    return _padding(leading) + core.translate(_ESCAPES) + _padding(trailing)


def _padding(text: str) -> str:
    return "".join(f"\\{each}" for each in text)


def _steps(subject: bytes) -> list[list[_Attribute]]:
    if len(subject) > MAX_SUBJECT_BYTES:
        raise UnreadableName(f"The name of a certificate has {len(subject)} bytes, the limit is {MAX_SUBJECT_BYTES}.")
    [name] = _exactly(subject, (_SEQUENCE,))
    return [_attributes(step) for step in _elements(name.content)]


def _attributes(step: _Element) -> list[_Attribute]:
    pairs = list(_elements(step.content))
    if step.tag != _SET or not pairs or any(each.tag != _SEQUENCE for each in pairs):
        raise UnreadableName("A step in the name of a certificate is not a set of attributes.")
    return [_attribute(each) for each in pairs]


def _attribute(pair: _Element) -> _Attribute:
    oid, value = _exactly(pair.content, (_OID, None))
    return _Attribute(_dotted(oid.content), value)


def _dotted(content: bytes) -> str:
    """An object identifier as numbers with dots between them."""
    if not 0 < len(content) <= _MAX_OID_OCTETS or content[-1] & 0x80:
        raise UnreadableName("The name of a certificate has an object identifier that is cut short, or endless.")
    numbers, number = [], 0
    for octet in content:
        number = number << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _exactly(data: bytes, tags: tuple[int | None, ...]) -> list[_Element]:
    """The elements of these types, and no other. None stands for any type."""
    elements = list(_elements(data))
    if len(elements) != len(tags) or any(tag not in (None, each.tag) for tag, each in zip(tags, elements, strict=True)):
        raise UnreadableName("The name of a certificate is not built as X.501 says.")
    return elements


def _elements(data: bytes) -> Iterator[_Element]:
    """The DER elements of which `data` consists."""
    begin = 0
    while begin < len(data):
        size, content = _length(data, begin)
        end = content + size
        if end > len(data):
            raise UnreadableName("The name of a certificate is cut short.")
        yield _Element(data[begin], data[begin:end], data[content:end])
        begin = end


def _length(data: bytes, begin: int) -> tuple[int, int]:
    """The size of the content of the element that begins there, and where the content begins."""
    content = begin + 2
    if content > len(data):
        raise UnreadableName("The name of a certificate is cut short.")
    size = data[begin + 1]
    if size >= 0x80:
        octets = size & 0x7F
        size, content = int.from_bytes(data[content : content + octets], "big"), content + octets
        if octets > _MAX_LENGTH_OCTETS or size < 0x80 or size < 1 << 8 * (octets - 1):
            raise UnreadableName("The name of a certificate is not DER.")
    if data[begin] & _LONG_TAG == _LONG_TAG:
        raise UnreadableName("The name of a certificate has a value of a type that X.501 does not know.")
    return size, content
