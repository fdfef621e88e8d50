"""Where each key of a TOML file stands: what `tomllib` reads and does not keep.

The text is one that `tomllib` has accepted, so nothing is validated here: tables, keys and values only have to be
distinguished. A path is the keys from the top of the file; the elements of arrays count from 0:

    [sink.out]                    ("sink", "out")                 line 1
    sql = \"\"\"                      ("sink", "out", "sql")          line 2, its text begins in line 3
    select 1\"\"\"
"""

import re
from dataclasses import dataclass

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|"{1,2}(?!")|[^"\\])*"{3,5}'  # a quote or two may stand before the three that end the text
    r"|'''(?:'{1,2}(?!')|[^'])*'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\", "e": "\x1b"}


@dataclass(frozen=True, slots=True)
class Lines:
    key: int
    """Where the key stands, or the header of a table."""
    value: int
    """Where the value begins; for a text in three quotes, where its first line does."""


def key_lines(text: str) -> dict[Path, Lines]:
    """The lines of every table and key."""
    return _Scan(text).run()


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counted_at, self._counted = 0, 1
        self._found: dict[Path, Lines] = {}
        self._array_sizes: dict[Path, int] = {}

    def run(self) -> dict[Path, Lines]:
        table: Path = ()
        while self._skip(_BLANK) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._assignment(table)
        return self._found

    def _header(self) -> Path:
        line = self._line()
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        keys = self._key()
        self._at += 2 if is_array else 1
        path: Path = ()
        for depth, key in enumerate(keys):
            path = (*path, key)
            self._found.setdefault(path, Lines(line, line))
            if is_array and depth == len(keys) - 1:
                self._array_sizes[path] = self._array_sizes.get(path, 0) + 1
            if path in self._array_sizes:
                path = (*path, self._array_sizes[path] - 1)  # a header goes on in the newest element
        self._found[path] = Lines(line, line)
        return path

    def _assignment(self, table: Path) -> None:
        line = self._line()
        keys = self._key()
        self._skip(_SPACE)
        self._at += 1  # =
        self._skip(_SPACE)
        for depth in range(1, len(keys)):
            self._found.setdefault(table + keys[:depth], Lines(line, line))
        self._value(table + keys, line)

    def _key(self) -> Path:
        keys: list[str] = []
        while True:
            self._skip(_SPACE)
            if quoted := _STRING.match(self._text, self._at):
                keys.append(_unquoted(quoted[0]))
                self._at = quoted.end()
            else:
                bare = _BARE_KEY.match(self._text, self._at)
                assert bare is not None, "a text that tomllib accepted has keys where they belong"
                keys.append(bare[0])
                self._at = bare.end()
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return tuple(keys)
            self._at += 1

    def _value(self, path: Path, key_line: int) -> None:
        value_line = self._line()
        if string := _STRING.match(self._text, self._at):
            if re.match(r"(\"\"\"|''')\r?\n", string[0]):
                value_line += 1  # the line break after the quotes is not part of the text
            self._at = string.end()
        elif self._text.startswith("[", self._at):
            self._array(path)
        elif self._text.startswith("{", self._at):
            self._inline_table(path)
        else:
            self._skip(_SCALAR)
        self._found[path] = Lines(key_line, value_line)

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while self._text[self._skip(_BLANK)] != "]":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._value((*path, index), self._line())
            index += 1
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while self._text[self._skip(_BLANK)] != "}":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._assignment(path)
        self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return self._at

    def _line(self) -> int:
        self._counted += self._text.count("\n", self._counted_at, self._at)
        self._counted_at = self._at
        return self._counted


def _unquoted(key: str) -> str:
    if key.startswith("'"):
        return key[1:-1]
    return re.sub(
        r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))",
        lambda m: chr(int(m[1] or m[2] or m[3], 16)) if m[1] or m[2] or m[3] else _ESCAPES.get(m[4], m[4]),
        key[1:-1],
    )
