"""Columns and their types as Spark's DDL writes them, read without Spark:

    id string not null, at timestamp comment 'when', items array<struct<product: string, price: decimal(12,2)>>

What is refused here Spark refuses, and what is taken Spark takes, as far as the text alone decides it: of collations
and of spatial reference systems only the form is judged. `tests/pipelines/test_spec_schema_text.py` asks both.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.pipelines.spec.mistakes import TextFault, suggestion

MAX_DEPTH = 100
"""Types inside types; Python's own stack ends at a thousand calls."""

PLAIN_TYPES = frozenset(
    {
        *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
        *("float", "real", "double", "date", "string", "binary", "void", "variant"),
    }
)
MOMENTS = frozenset({"timestamp", "timestamp_ltz", "timestamp_ntz"})
DECIMALS = frozenset({"decimal", "dec", "numeric"})
LETTERS = frozenset({"char", "character", "varchar"})
NESTED = frozenset({"array", "map", "struct"})
SPATIAL = frozenset({"geometry", "geography"})
TYPES = PLAIN_TYPES | MOMENTS | DECIMALS | LETTERS | NESTED | SPATIAL | {"interval", "time"}
MOMENT_PRECISION = 6
MAX_TIME_PRECISION = 9
MAX_DECIMAL_PRECISION = 38
MAX_LENGTH = 2**31 - 1
INTERVALS = {
    "year": ("month",),
    "month": (),
    "day": ("hour", "minute", "second"),
    "hour": ("minute", "second"),
    "minute": ("second",),
    "second": (),
}
"""The units that an interval begins with, each with the units that it may end with."""

_TOKEN = re.compile(
    r"(?P<skip>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<string>[rR]?'(?:\\.|''|[^'\\])*'|[rR]?\"(?:\\.|\"\"|[^\"\\])*\")"
    r"|`(?P<quoted>(?:``|[^`])*)`"
    r"|(?P<word>\w+)"
    r"|(?P<mark>.)",
    re.DOTALL,
)
_NUMBER = re.compile(r"\d+(?:e\d+)?(?:[lsydf]|bd)?", re.IGNORECASE | re.ASCII)
"""What Spark reads as a number, whatever stands around it."""
_COLLATION = re.compile(
    r"(?:utf8_binary|utf8_lcase|unicode|[a-z]{2,3}(?:_[a-z]{4})?(?:_[a-z]{3})?)(?:_[ac][is]|_rtrim)*"
)
_COLLATION_SCHEMA = ("system", "builtin")


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    name: str
    type: str
    """The word that its type begins with, in lower case."""


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    columns: tuple[DeclaredColumn, ...]
    faults: tuple[TextFault, ...]
    """With some, the columns are those before them."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    line: int
    kind: str

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""

    @property
    def is_number(self) -> bool:
        return self.kind == "word" and _NUMBER.fullmatch(self.text) is not None


class _Unreadable(Exception):
    def __init__(self, token: _Token, what: str) -> None:
        super().__init__(what)
        self.fault = TextFault(token.line, what)


def read_schema(text: str, *, is_strict: bool = False) -> DeclaredSchema:
    """The columns of a table. PySpark also takes `name: type` and `struct<…>`; Spark's readers of files, which are
    strict, do not."""
    return _Reader(text).schema(is_strict=is_strict)


def read_type(text: str) -> DeclaredSchema:
    """One type alone, such as that of a cast: without columns, with its faults."""
    return _Reader(text).only_type()


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text)]
        self._end = _Token("", text.count("\n"), "end")
        self._at = 0
        self._depth = 0
        self._faults: list[TextFault] = []

    def schema(self, *, is_strict: bool) -> DeclaredSchema:
        columns: list[DeclaredColumn] = []
        try:
            if not is_strict and self._now.word == "struct" and self._after.text == "<":
                self._take()
                self._take()
                columns += self._columns(may_have_colon=True) if self._now.text != ">" else ()
                self._expect(">")
            else:
                columns += self._columns(may_have_colon=not is_strict)
            self._expect_end()
        except _Unreadable as unreadable:
            self._faults.append(unreadable.fault)
        return DeclaredSchema(tuple(columns), tuple(self._faults))

    def only_type(self) -> DeclaredSchema:
        try:
            self._type()
            self._expect_end()
        except _Unreadable as unreadable:
            self._faults.append(unreadable.fault)
        return DeclaredSchema((), tuple(self._faults))

    def _columns(self, *, may_have_colon: bool) -> list[DeclaredColumn]:
        columns = [self._column(may_have_colon)]
        while self._now.text == "," and self._now.kind == "mark":
            self._take()
            columns.append(self._column(may_have_colon))
        return columns

    def _column(self, may_have_colon: bool) -> DeclaredColumn:
        name = self._name()
        if may_have_colon and self._now.text == ":":
            self._take()
        if self._now.kind == "end" or self._now.text == ",":
            raise _Unreadable(self._now, f"{name} has no type, as in {name} string")
        kind = self._type()
        if self._now.word == "not":
            self._take()
            self._expect_word("null")
        if self._now.word == "comment" and self._after.kind == "string":
            self._take()
            while self._now.kind == "string":
                self._take()
        return DeclaredColumn(name, kind)

    def _name(self) -> str:
        token = self._take()
        if token.kind == "quoted":
            return token.text
        if token.kind != "word" or token.is_number:
            raise _Unreadable(token, f"{_shown(token)} stands where the name of a column belongs")
        if not token.text.isascii():
            raise _Unreadable(token, f"{token.text} has to be quoted: `{token.text}`")
        if self._now.text == "-":
            raise _Unreadable(token, f"a name with a dash has to be quoted: `{token.text}-{self._after.text}`")
        return token.text

    def _type(self) -> str:
        token = self._take()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Unreadable(token, "its types are nested too deeply")
        word = token.word
        if token.kind not in ("word", "quoted") or token.is_number:
            raise _Unreadable(token, f"{_shown(token)} stands where a type belongs")
        if word not in TYPES:
            self._faults.append(TextFault(token.line, f"there is no type {token.text}.{suggestion(token.text, TYPES)}"))
            self._skip_rest_of_type()
        elif word in NESTED:
            self._nested(word)
        elif word == "interval":
            self._interval()
        else:
            self._sized(token, self._numbers(may_be_any=word in SPATIAL))
        self._depth -= 1
        return word

    def _nested(self, word: str) -> None:
        if self._now.text != "<":
            example = {"array": "array<int>", "map": "map<string, int>", "struct": "struct<name: string>"}[word]
            raise _Unreadable(self._now, f"{word} needs the types of what is in it, as in {example}")
        self._take()
        if word == "struct":
            if self._now.text != ">":
                self._columns(may_have_colon=True)
        else:
            self._type()
            if word == "map":
                self._expect(",")
                self._type()
        self._expect(">")

    def _interval(self) -> None:
        if self._now.word in INTERVALS:
            begin = self._take().word
            if self._now.word == "to":
                self._take()
                end = self._take()
                if end.word not in INTERVALS[begin]:
                    raise _Unreadable(end, f"there is no interval {begin} to {_shown(end)}")

    def _sized(self, token: _Token, numbers: tuple[int, ...] | None) -> None:
        """What follows the name of a type: how many numbers it takes and how large they are."""
        word = token.word

        def wrong(what: str) -> None:
            self._faults.append(TextFault(token.line, what))

        given = numbers or ()
        if word in DECIMALS:
            if len(given) > 2 or (given and given[0] > MAX_DECIMAL_PRECISION) or (given[1:] and given[1] > given[0]):
                wrong(f"{word} takes a precision up to {MAX_DECIMAL_PRECISION} and a scale up to the precision")
        elif word in LETTERS:
            if len(given) != 1 or given[0] > MAX_LENGTH:
                wrong(f"{word} takes a length, as in {word}(10)")
        elif word in MOMENTS and given and given != (MOMENT_PRECISION,):
            wrong(f"{word} has the precision {MOMENT_PRECISION} and no other")
        elif word == "time" and given and (len(given) > 1 or given[0] > MAX_TIME_PRECISION):
            wrong(f"time takes a precision up to {MAX_TIME_PRECISION}")
        elif word in SPATIAL and numbers is None:
            wrong(f"{word} needs its reference system, as in {word}(4326)")
        elif word in PLAIN_TYPES and given:
            wrong(f"{word} takes no numbers")
        if word in ("timestamp", "time") and self._now.word == "without":
            self._expect_words("without", "time", "zone")
        elif word == "timestamp" and self._now.word == "with":
            self._expect_words("with", "local", "time", "zone")
        elif (word == "string" or word in LETTERS) and self._now.word == "collate" and self._after.kind != "end":
            self._collation()

    def _collation(self) -> None:
        self._take()
        parts = [self._take()]
        while self._now.text == ".":
            self._take()
            parts.append(self._take())
        *qualifiers, name = (part.text.lower() for part in parts)
        if qualifiers not in ([], [*_COLLATION_SCHEMA]) or _COLLATION.fullmatch(name) is None:
            raise _Unreadable(parts[0], f"there is no collation {'.'.join(part.text for part in parts)}")

    def _numbers(self, *, may_be_any: bool) -> tuple[int, ...] | None:
        if self._now.text != "(":
            return None
        self._take()
        found: list[int] = []
        if may_be_any and self._now.word == "any":
            self._take()
        else:
            found.append(self._number())
            while self._now.text == ",":
                self._take()
                found.append(self._number())
        self._expect(")")
        return tuple(found)

    def _number(self) -> int:
        token = self._take()
        if not token.text.isascii() or not token.text.isdigit() or len(token.text) > 20:
            raise _Unreadable(token, f"{_shown(token)} stands where a whole number belongs")
        return int(token.text)

    def _skip_rest_of_type(self) -> None:
        """After a type that does not exist: what stands in its brackets, so that the next column can be judged."""
        depth = 0
        while self._now.kind != "end" and (depth or self._now.text in ("(", "<")):
            depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(self._take().text, 0)

    def _expect(self, mark: str) -> None:
        if self._now.text != mark or self._now.kind != "mark":
            raise _Unreadable(self._now, f"{_shown(self._now)} stands where {mark} belongs")
        self._take()

    def _expect_word(self, word: str) -> None:
        if self._now.word != word:
            raise _Unreadable(self._now, f"{_shown(self._now)} stands where {word} belongs")
        self._take()

    def _expect_words(self, *words: str) -> None:
        for word in words:
            self._expect_word(word)

    def _expect_end(self) -> None:
        if self._now.kind != "end":
            raise _Unreadable(self._now, f"{_shown(self._now)} is too much: a comma belongs between columns")

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else self._end

    @property
    def _after(self) -> _Token:
        return self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else self._end

    def _take(self) -> _Token:
        token = self._now
        self._at += 1
        return token


def _tokens(text: str) -> Iterator[_Token]:
    line = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "mark"
        if kind == "quoted":
            yield _Token(match["quoted"].replace("``", "`"), line, kind)
        elif kind != "skip":
            yield _Token(match[0], line, kind)
        line += match[0].count("\n")


def _shown(token: _Token) -> str:
    return token.text if token.kind != "end" else "the end"
