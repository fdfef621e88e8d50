"""Filters: small expressions on the key and the headers of a record, compiled once, run for each record.

    expression  = all { "or" all }
    all         = one { "and" one }
    one         = "not" one | "(" expression ")" | test
    test        = "exists" "(" field ")"
                | field ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) literal
                | field [ "not" ] "in" "(" literal { "," literal } ")"
                | field ( "prefix" | "contains" ) string
    field       = "key" | "header" "(" string ")"
    literal     = string | number
    string      = '…' or "…"; \\\\ \\' \\" are the only escapes
    number      = digits, with an optional sign and decimal point

- Nothing is evaluated but this. Length, depth and the number of tests are limited, and no test takes longer than its
  field is long, so a filter costs no more than reading the record.
- Of a header that occurs more than once the last one counts. A field that is missing, or null, is only ever `!=`,
  `not in`, and not there: every other test of it is false.
- Against a string, bytes are compared with its UTF-8, and order is the order of bytes. Against a number, the field is
  read as decimal text; if it is none, it differs from every number and is neither less nor more.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from headwater.records.record import Headers

MAX_FILTER_CHARS: Final = 2_048
MAX_DEPTH: Final = 32
MAX_TESTS: Final = 100
MAX_NUMBER_CHARS: Final = 32
"""Longer numbers are refused in an expression, and are no numbers in a record."""

Filter: TypeAlias = Callable[[bytes | None, Headers], bool]
"""Whether a record with this key and these headers passes. Never raises."""

_Fields: TypeAlias = Mapping[str | None, bytes | None]
"""The headers by name; the key goes by None."""
_Test: TypeAlias = Callable[[_Fields], bool]
_Literal: TypeAlias = bytes | Decimal

_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z]+)"""
    r"""|(?P<number>[+-]?\d+(?:\.\d+)?)"""
    r"""|(?P<string>'(?:[^'\\]|\\['"\\])*'|"(?:[^"\\]|\\['"\\])*")"""
    r"""|(?P<sign>!=|<=|>=|[=<>(),]))""",
    re.ASCII,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NUMBER = re.compile(rb"[+-]?\d+(?:\.\d+)?")
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISONS: Final = ("=", "!=", *_ORDERS)


class FilterError(ValueError):
    """The text is not a filter; the message says where and why."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} (at character {position + 1})")
        self.position = position


def compile_filter(text: str) -> Filter:
    """The filter that the text describes. Raises FilterError."""
    if len(text) > MAX_FILTER_CHARS:
        raise FilterError(MAX_FILTER_CHARS, f"a filter has at most {MAX_FILTER_CHARS} characters")
    parser = _Parser(_tokens(text))
    test = parser.whole()

    def matches(key: bytes | None, headers: Headers) -> bool:
        fields: dict[str | None, bytes | None] = dict(headers)
        fields[None] = key
        return test(fields)

    return matches


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """word, number, string, sign or end."""
    text: str
    position: int

    def shown(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            what = "this string does not end" if text[start] in "'\"" else f"{text[start]!r} means nothing here"
            raise FilterError(start, what)
        kind = found.lastgroup
        assert kind is not None, "each alternative has a name"
        tokens.append(_Token(kind, found[kind], found.start(kind)))
        position = found.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


class _Parser:
    """Recursive descent: every method reads what its name says and leaves the position behind it."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = 0
        self._tests = 0

    def whole(self) -> _Test:
        test = self._expression()
        if self._next.kind != "end":
            raise self._expected("and, or, or the end")
        return test

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _expression(self) -> _Test:
        tests = [self._all()]
        while self._skip("or"):
            tests.append(self._all())
        return tests[0] if len(tests) == 1 else lambda fields: any(test(fields) for test in tests)

    def _all(self) -> _Test:
        tests = [self._one()]
        while self._skip("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda fields: all(test(fields) for test in tests)

    def _one(self) -> _Test:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FilterError(self._next.position, f"an expression is nested at most {MAX_DEPTH} deep")
        if self._skip("not"):
            inner = self._one()
            test: _Test = lambda fields: not inner(fields)  # noqa: E731
        elif self._skip("("):
            test = self._expression()
            self._need(")")
        else:
            test = self._test()
        self._depth -= 1
        return test

    def _test(self) -> _Test:
        self._tests += 1
        if self._tests > MAX_TESTS:
            raise FilterError(self._next.position, f"a filter has at most {MAX_TESTS} tests")
        if self._skip("exists"):
            self._need("(")
            field = self._field()
            self._need(")")
            return lambda fields: fields.get(field) is not None
        field = self._field()
        token = self._next
        if token.text in _COMPARISONS and token.kind == "sign":
            self._index += 1
            return _comparison(field, token.text, self._literal())
        if self._skip("prefix"):
            start = self._string()
            return lambda fields: (fields.get(field) or b"").startswith(start) and fields.get(field) is not None
        if self._skip("contains"):
            part = self._string()
            return lambda fields: part in (fields.get(field) or b"") and fields.get(field) is not None
        is_negated = self._skip("not")
        if not self._skip("in"):
            raise self._expected("in" if is_negated else "a comparison, in, not in, prefix or contains")
        return _membership(field, self._literals(), is_negated)

    def _field(self) -> str | None:
        if self._skip("key"):
            return None
        if not self._skip("header"):
            raise self._expected("key, header(…), exists(…), not or (")
        self._need("(")
        name = self._string().decode()
        self._need(")")
        return name

    def _literals(self) -> list[_Literal]:
        self._need("(")
        literals = [self._literal()]
        while self._skip(","):
            literals.append(self._literal())
        self._need(")")
        return literals

    def _literal(self) -> _Literal:
        token = self._next
        if token.kind != "number":
            return self._string()
        if len(token.text) > MAX_NUMBER_CHARS:
            raise FilterError(token.position, f"a number has at most {MAX_NUMBER_CHARS} characters")
        self._index += 1
        return Decimal(token.text)

    def _string(self) -> bytes:
        token = self._next
        if token.kind != "string":
            raise self._expected("a string in quotes")
        self._index += 1
        try:
            return _ESCAPE.sub(r"\1", token.text[1:-1]).encode()
        except UnicodeEncodeError:
            raise FilterError(token.position, "a string is text that UTF-8 can write") from None

    def _skip(self, text: str) -> bool:
        token = self._next
        is_there = token.kind in ("word", "sign") and token.text.lower() == text
        self._index += is_there
        return is_there

    def _need(self, text: str) -> None:
        if not self._skip(text):
            raise self._expected(repr(text))

    def _expected(self, what: str) -> FilterError:
        return FilterError(self._next.position, f"{what} is expected, not {self._next.shown()}")


def _comparison(field: str | None, sign: str, literal: _Literal) -> _Test:
    def value(fields: _Fields) -> _Literal | None:
        found = fields.get(field)
        return found if found is None or isinstance(literal, bytes) else _number(found)

    if sign == "=":
        return lambda fields: value(fields) == literal
    if sign == "!=":
        return lambda fields: value(fields) != literal
    is_in_order = _ORDERS[sign]
    return lambda fields: (found := value(fields)) is not None and is_in_order(found, literal)


def _membership(field: str | None, literals: list[_Literal], is_negated: bool) -> _Test:
    texts = frozenset(each for each in literals if isinstance(each, bytes))
    numbers = frozenset(each for each in literals if isinstance(each, Decimal))

    def is_in(fields: _Fields) -> bool:
        value = fields.get(field)
        return value is not None and (value in texts or (bool(numbers) and _number(value) in numbers))

    return (lambda fields: not is_in(fields)) if is_negated else is_in


def _number(value: bytes) -> Decimal | None:
    if len(value) > MAX_NUMBER_CHARS or _NUMBER.fullmatch(value) is None:
        return None
    return Decimal(value.decode())
