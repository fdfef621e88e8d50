"""What a query selects from, found without Spark: enough of SQL's grammar to tell tables from everything else.

A name is a table's where a FROM clause expects a relation, unless it is qualified (`db.t`), a function (`range(3)`) or
defined by the query itself (`WITH t AS`). A query that does not parse gives some names or none; Spark explains it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<string>[rR]?'(?:\\.|''|[^'\\])*'|\"(?:\\.|\"\"|[^\"\\])*\")"
    r"|`(?P<quoted>(?:``|[^`])*)`"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<number>\d\w*)"
    r"|(?P<mark>.)",
    re.DOTALL,
)
_FROM_IS_NO_CLAUSE = {"extract", "trim", "substring", "substr", "overlay", "position"}
_RELATION_FOLLOWS = {"from", "join"}
_NOT_A_NAME = {"lateral", "select", "values", "table", "unnest", "stream", "only"}
_STILL_EXPECTED = {"lateral", "table", "stream"}
_ENDS_FROM = {
    *("where", "group", "order", "having", "limit", "offset", "window", "union", "intersect", "except", "minus"),
    *("select", "sort", "cluster", "distribute", "qualify", "pivot", "unpivot", "view", "with"),
}


@dataclass(frozen=True, slots=True)
class Relation:
    name: str
    line: int
    """Within the query, from 0."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    line: int
    is_word: bool
    is_quoted: bool

    @property
    def keyword(self) -> str:
        return self.text.lower() if self.is_word and not self.is_quoted else ""


@dataclass(slots=True)
class _Clause:
    """What one pair of parentheses is about."""

    is_call_with_from: bool = False
    is_from: bool = False
    """Between FROM and what ends it: after a comma another relation follows."""
    is_relation_expected: bool = False


def relations(query: str) -> list[Relation]:
    """The tables that the query names, as often as it does."""
    tokens = list(_tokens(query))
    defined = {token.text.lower() for token in _common_tables(tokens)}
    found = []
    clauses = [_Clause()]
    for index, token in enumerate(tokens):
        clause = clauses[-1]
        if token.text == "(" and not token.is_word:
            before = tokens[index - 1].keyword if index else ""
            # (a JOIN b): what is expected outside is expected inside
            clauses.append(_Clause(before in _FROM_IS_NO_CLAUSE, is_relation_expected=clause.is_relation_expected))
            clauses[-1].is_from = clause.is_relation_expected
            clause.is_relation_expected = False
        elif token.text == ")" and not token.is_word:
            if len(clauses) > 1:
                clauses.pop()
        elif token.text == "," and not token.is_word:
            clause.is_relation_expected = clause.is_from
        elif token.keyword in _RELATION_FOLLOWS:
            if not clause.is_call_with_from and not _is_distinct_from(tokens, index):
                clause.is_from = clause.is_relation_expected = True
        elif token.keyword == "table" and not index:
            clause.is_relation_expected = True
        elif token.keyword in _ENDS_FROM:
            clause.is_from = clause.is_relation_expected = False
        elif clause.is_relation_expected and token.keyword not in _STILL_EXPECTED:
            clause.is_relation_expected = False
            if _is_table(tokens, index) and token.text.lower() not in defined:
                found.append(Relation(token.text, token.line))
    return found


def _tokens(query: str) -> Iterator[_Token]:
    line = 0
    for match in _TOKEN.finditer(query):
        text = match[0]
        if match.lastgroup in ("word", "number", "mark", "string"):
            yield _Token(text, line, match.lastgroup == "word", is_quoted=False)
        elif match.lastgroup == "quoted":
            yield _Token(match["quoted"].replace("``", "`"), line, is_word=True, is_quoted=True)
        line += text.count("\n")


def _common_tables(tokens: list[_Token]) -> Iterator[_Token]:
    """WITH a AS (…), b (x, y) AS (…): names that are followed by AS and a parenthesis."""
    if not any(token.keyword == "with" for token in tokens):
        return
    for index, token in enumerate(tokens):
        begins = index and (tokens[index - 1].keyword in ("with", "recursive") or _mark(tokens, index - 1, ","))
        if not token.is_word or not begins:
            continue
        after = index + 1
        if _mark(tokens, after, "("):
            while after < len(tokens) and not _mark(tokens, after, ")"):
                after += 1
            after += 1
        if after + 1 < len(tokens) and tokens[after].keyword == "as" and _mark(tokens, after + 1, "("):
            yield token


def _is_table(tokens: list[_Token], index: int) -> bool:
    token = tokens[index]
    if not token.is_word or token.keyword in _NOT_A_NAME:
        return False
    return not _mark(tokens, index + 1, ".") and not _mark(tokens, index + 1, "(")


def _is_distinct_from(tokens: list[_Token], index: int) -> bool:
    return index >= 2 and tokens[index - 1].keyword == "distinct" and tokens[index - 2].keyword in ("is", "not")


def _mark(tokens: list[_Token], index: int, mark: str) -> bool:
    return index < len(tokens) and not tokens[index].is_word and tokens[index].text == mark
