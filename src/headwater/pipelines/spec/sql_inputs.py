"""The relations that a query reads, found by sqlglot without Spark.

A name is a source or step unless it is qualified (`db.t`), a function (`range(3)`) or defined by the query itself
(`WITH t AS`). In a text that sqlglot does not parse, every name that stands where a relation can stand may be one:
Spark decides.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp

_POSSIBLE = re.compile(
    r"(?:\b(?:from|join|table|stream)\b|[,(])(?=\s*(?:`([^`]+)`|([^\W\d]\w*)\b)(?!\s*[.(]))", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Relation:
    name: str
    line: int
    """Within the query, from 0."""
    is_certain: bool = True
    """False: sqlglot does not parse the query, and the name may be a column's or an alias."""


def relations(query: str) -> list[Relation]:
    """Each mention of a relation, in the order of the text."""
    try:
        from headwater.pipelines.spec.sql_grammar import parse

        trees = parse(query).trees
        names = {name.meta["start"]: name for tree in trees for name in _names(tree)}
    except Exception:  # sqlglot is not installed or does not parse this; it raises more than its own exceptions
        return _possible(query)
    if not trees:
        return _possible(query)
    return [Relation(name.name, query.count("\n", 0, start)) for start, name in sorted(names.items())]


def _names(tree: "exp.Expr") -> "Iterator[exp.Identifier]":
    from sqlglot import exp

    for table in tree.find_all(exp.Table):
        if not isinstance(table.find_ancestor(exp.Query, exp.Hint), exp.Query):
            continue  # the target of an INSERT, or an alias in a hint
        defined = set(_common_tables(table))
        yield from (name for name in _names_of(table) if name.name.lower() not in defined)


def _common_tables(table: "exp.Expr") -> Iterator[str]:
    """The names of WITH that a relation can stand for: inside of WITH itself, only the earlier ones.

    sqlglot's own scopes tell upper case from lower and miss a relation in parentheses with an alias."""
    from sqlglot import exp

    child = table
    while (parent := child.parent) is not None:
        if isinstance(parent, exp.With):
            index = next(index for index, each in enumerate(parent.expressions) if each is child)
            visible = parent.expressions[: index + (1 if parent.recursive else 0)]
            parent = parent.parent
            assert parent is not None, "WITH belongs to a query"
        else:
            visible = parent.ctes if isinstance(parent, exp.Query) else []
        yield from (each.alias.lower() for each in visible)
        child = parent


def _names_of(table: "exp.Table") -> "Iterator[exp.Identifier]":
    """The unqualified name of a relation, or the relations that are arguments of a function."""
    from sqlglot import exp

    if not isinstance(table.this, exp.Identifier):
        for call in table.find_all(exp.Anonymous):
            if call.name.lower() in ("stream", "table"):
                yield from (each.this for each in call.expressions if isinstance(each, exp.Column) and not each.table)
    elif not table.db:
        alias = table.args.get("alias")
        # STREAM a: sqlglot takes it for a relation with an alias.
        is_streamed = table.name.lower() == "stream" and not table.this.quoted
        yield alias.this if is_streamed and alias is not None else table.this


def _possible(query: str) -> list[Relation]:
    return [
        Relation(match[1] or match[2], query.count("\n", 0, match.start(match.lastindex or 0)), is_certain=False)
        for match in _POSSIBLE.finditer(query)
    ]
