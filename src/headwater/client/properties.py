"""Java's .properties, the form of Kafka's client files: text in, keys and values with their lines out.

    # a comment, as behind !
    security.protocol=SASL_SSL            also with : or a space for the equals sign
    sasl.jaas.config=a \\
        line that goes on                 the blanks before it do not count
    name=\\u00e9\\t\\\\                       escapes

Java reads bytes as Latin-1, librdkafka as UTF-8; here the text is UTF-8, and what is written with escapes is the same
for all.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_CHARS: Final = 64 * 1024
_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[^u]|u)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")


class MalformedProperties(ValueError):
    """Text that is no .properties; the message names the line."""


class Property(NamedTuple):
    line: int
    """Where it begins, from 1."""
    key: str
    value: str


def parse_properties(text: str) -> list[Property]:
    """Raises MalformedProperties."""
    if len(text) > MAX_CHARS:
        raise MalformedProperties(f"it has more than {MAX_CHARS} characters")
    return [_property(line, content) for line, content in _logical_lines(text)]


def property_line(key: str, value: str) -> str:
    """The line that says this, in ASCII, so that every reader reads the same."""
    return f"{_escaped(key, in_key=True)}={_escaped(value)}"


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Without comments and empty lines, each with the number of its first line."""
    begun: tuple[int, str] | None = None
    for number, line in enumerate(_LINE_ENDS.split(text.removeprefix("\ufeff")), 1):
        content = line.lstrip(_BLANKS)
        if begun is None and (not content or content[0] in "#!"):
            continue
        first, before = begun or (number, "")
        goes_on = (len(content) - len(content.rstrip("\\"))) % 2 == 1
        begun = (first, before + (content[:-1] if goes_on else content))
        if not goes_on:
            yield begun
            begun = None
    if begun is not None:
        yield begun


def _property(line: int, content: str) -> Property:
    match = _KEY.match(content)
    assert match is not None, "the pattern matches every text"
    return Property(line, _unescaped(line, match["key"]), _unescaped(line, content[match.end() :]))


def _unescaped(line: int, text: str) -> str:
    def character(match: re.Match[str]) -> str:
        name = match[1]
        if name == "u":
            raise MalformedProperties(f"line {line} has a \\u without four hexadecimal digits behind it")
        return chr(int(name[1:], 16)) if len(name) > 1 else _LETTERS.get(name, name)

    try:  # Java writes what is beyond 16 bits as two escapes
        return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise MalformedProperties(f"line {line} has half of a character in its \\u escapes") from None


def _escaped(text: str, *, in_key: bool = False) -> str:
    special = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    if in_key:
        special |= {"=": "\\=", ":": "\\:", " ": "\\ ", "#": "\\#", "!": "\\!"}
    words = []
    for char in text:
        units = char.encode("utf-16-be", "surrogatepass")
        codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
        is_plain = " " <= char <= "~"
        words.append(special.get(char) or (char if is_plain else "".join(f"\\u{code:04x}" for code in codes)))
    escaped = "".join(words)
    return f"\\{escaped}" if escaped.startswith(" ") and not in_key else escaped
