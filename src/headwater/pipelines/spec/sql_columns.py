"""Which columns a query gives, and which it names though nothing that it selects from has them.

A name is missing only where everything that could have it is known: a table without known columns, a generator, a pivot
or a function among the tables makes the whole clause one about which nothing is said.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from headwater.pipelines.spec.mistakes import TextFault, suggestion
from headwater.pipelines.spec.sql_text import Columns, Tables

WORDS = frozenset(
    {
        *("current_catalog", "current_database", "current_date", "current_path", "current_schema", "current_time"),
        *(
            "current_timestamp",
            "current_timezone",
            "current_user",
            "localtime",
            "localtimestamp",
            "session_user",
            "user",
        ),
        *("grouping__id", "_metadata"),
    }
)
"""What Spark gives a meaning where no column has the name."""
MADE_BY_CALLS = ("window", "session_window")
"""Functions in a group by that make a column of their own name."""


@dataclass(slots=True)
class _Scope:
    """What one select can name."""

    sources: dict[str, Columns | None]
    outer: "_Scope | None" = None
    made: set[str] = field(default_factory=set)
    """Names that the select itself makes: its aliases, and windows."""

    @property
    def is_open(self) -> bool:
        return any(columns is None for columns in self.sources.values())

    def has(self, name: str) -> bool:
        return self.is_open or self.knows(name)

    def knows(self, name: str) -> bool:
        return name in self.made or any(name in columns for columns in self._known)

    def names(self) -> Iterator[str]:
        for columns in self._known:
            yield from columns.values()

    @property
    def _known(self) -> list[Columns]:
        return [columns for columns in self.sources.values() if columns is not None]


def find_columns(tree: exp.Expr, tables: Tables, sides: Tables) -> tuple[Columns | None, list[TextFault]]:
    """What the query gives, if that is known, and the columns that are missing."""
    finder = _Finder()
    scope = _Scope(dict(sides)) if sides else None
    return finder.query(tree, dict(tables), scope), finder.faults


class _Finder:
    def __init__(self) -> None:
        self.faults: list[TextFault] = []

    def query(self, node: exp.Expr, tables: dict[str, Columns | None], outer: _Scope | None) -> Columns | None:
        tables = self._with_common_tables(node, tables, outer)
        match node:
            case exp.Select():
                return self._select(node, tables, outer)
            case exp.SetOperation():
                columns = self.query(node.left, tables, outer)
                self.query(node.right, tables, outer)
                return columns
            case exp.Subquery():
                columns = self.query(node.this, tables, outer) if isinstance(node.this, exp.Query) else None
                is_changed = any(node.args.get(key) for key in ("pivots", "laterals", "joins"))
                return None if is_changed else _renamed(columns, node)
            case _:
                return None

    def _with_common_tables(
        self, node: exp.Expr, tables: dict[str, Columns | None], outer: _Scope | None
    ) -> dict[str, Columns | None]:
        known = dict(tables)
        for common in node.ctes if isinstance(node, exp.Query) else ():
            name = common.alias.lower()
            known[name] = None  # it may select from itself
            known[name] = _renamed(self.query(common.this, known, outer), common)
        return known

    def _select(self, node: exp.Select, tables: dict[str, Columns | None], outer: _Scope | None) -> Columns | None:
        scope = _Scope({}, outer)
        joins: list[exp.Expr] = node.args.get("joins") or []
        begin = node.args.get("from_") or node.args.get("from")
        for relation in ([begin] if begin is not None else []) + joins:
            name, columns = self._relation(relation.this, tables, scope)
            scope.sources[name or f" {len(scope.sources)}"] = columns
        if node.args.get("laterals") or node.args.get("pivots"):
            scope.sources[" generated"] = None
        scope.made = set(_made(node))
        for key, value in node.args.items():
            if key in ("from_", "from", "with_", "with", "laterals", "hint"):
                continue
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, exp.Join):
                    self._join(each, tables, scope)
                elif isinstance(each, exp.Expr):
                    self._visit(each, tables, scope, frozenset())
        return _given(node, scope)

    def _relation(self, node: exp.Expr, tables: dict[str, Columns | None], scope: _Scope) -> tuple[str, Columns | None]:
        name = node.alias_or_name.lower()
        if any(node.args.get(key) for key in ("pivots", "laterals", "joins")):
            self._look_inside(node, tables, scope)
            return name, None
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            is_plain = not node.db and node.name.lower() in tables
            return name, _renamed(tables[node.name.lower()], node) if is_plain else None
        if isinstance(node, exp.Subquery):
            return name, self.query(node, tables, scope.outer)
        return name, None

    def _look_inside(self, node: exp.Expr, tables: dict[str, Columns | None], scope: _Scope) -> None:
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            self.query(node.this, tables, scope.outer)

    def _join(self, join: exp.Expr, tables: dict[str, Columns | None], scope: _Scope) -> None:
        if isinstance(condition := join.args.get("on"), exp.Expr):
            self._visit(condition, tables, scope, frozenset())
        for column in join.args.get("using") or ():
            if isinstance(column, exp.Identifier) and not scope.has(column.name.lower()):
                self._missing(column, column.name, scope)

    def _visit(
        self, node: exp.Expr, tables: dict[str, Columns | None], scope: _Scope, parameters: frozenset[str]
    ) -> None:
        match node:
            case exp.Query():
                self.query(node, tables, scope)
                return
            case exp.Hint():
                return
            case exp.Column():
                self._check(node, scope, parameters)
                return
            case exp.Lambda():
                parameters |= {each.name.lower() for each in node.expressions}
        for child in node.iter_expressions():
            self._visit(child, tables, scope, parameters)

    def _check(self, column: exp.Column, scope: _Scope, parameters: frozenset[str]) -> None:
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        if not parts:
            return
        first = parts[0].name.lower()
        if first in parameters or first in WORDS:
            return
        of_source: tuple[exp.Identifier, Columns] | None = None
        around: _Scope | None = scope
        is_open = False
        while around is not None:
            is_open = is_open or around.is_open
            is_qualifier = len(parts) > 1 and first in around.sources
            if around.knows(first) or (around.is_open and not is_qualifier):
                return
            if is_qualifier:
                columns = around.sources[first]
                if columns is None or parts[1].name.lower() in columns:
                    return
                of_source = of_source or (parts[1], columns)
            elif len(parts) == 1 and isinstance(column.this, exp.Star) and first in around.sources:
                return
            around = around.outer
        if of_source is not None:
            part, columns = of_source
            problem = f"{parts[0].name} has no column {part.name}.{suggestion(part.name, columns.values())}"
            # Something else may have a column of the table's name, with fields.
            self.faults.append(TextFault(_line(part), problem, is_sure=not is_open))
        elif not is_open:
            self._missing(parts[0], ".".join(part.name for part in parts), scope)

    def _missing(self, part: exp.Identifier, name: str, scope: _Scope) -> None:
        known = [*scope.names(), *(scope.outer.names() if scope.outer is not None else ())]
        self.faults.append(TextFault(_line(part), f"there is no column {name}.{suggestion(part.name, known)}"))


def _given(node: exp.Select, scope: _Scope) -> Columns | None:
    """The names of what a select gives; None as soon as one of them is Spark's to choose."""
    given: list[str] = []
    for each in node.expressions:
        match each:
            case exp.Star():
                if scope.is_open or not scope.sources:
                    return None
                left_out = {one.name.lower() for one in each.args.get("except_") or each.args.get("except") or ()}
                given += [name for name in scope.names() if name.lower() not in left_out]
            case exp.Column(this=exp.Star()):
                columns = scope.sources.get(each.table.lower())
                if columns is None:
                    return None
                given += columns.values()
            case exp.Alias():
                given.append(each.alias)
            case exp.Aliases():
                given += [alias.name for alias in each.aliases]
            case exp.Column():
                given.append(each.name)
            case _:
                return None
    return {name.lower(): name for name in given}


def _made(node: exp.Select) -> Iterator[str]:
    for each in node.expressions:
        match each:
            case exp.Alias():
                yield each.alias.lower()
            case exp.Aliases():
                yield from (alias.name.lower() for alias in each.aliases)
    for call in node.find_all(exp.Func):
        if call.name.lower() in MADE_BY_CALLS:
            yield call.name.lower()


def _renamed(columns: Columns | None, node: exp.Expr) -> Columns | None:
    """As they are called behind `AS t (x, y)`."""
    alias = node.args.get("alias")
    names = [each.name for each in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []
    return {name.lower(): name for name in names} if names else columns


def _line(part: exp.Identifier) -> int:
    return int(part.meta.get("line") or 1) - 1
