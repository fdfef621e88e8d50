"""SQL of a pipeline file, judged without Spark: its grammar by sqlglot in Spark's dialect, its types, functions and
columns by what is known here.

Nothing that Spark takes may be refused. What is judged by a grammar or a list that is not Spark's own counts as unsure:
before a run, Spark judges that itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.pipelines.spec.mistakes import TextFault, suggestion
from headwater.pipelines.spec.spark_functions import PARSED, built_in

if TYPE_CHECKING:
    from sqlglot import exp

    from headwater.pipelines.spec.sql_grammar import ParsedSql

Columns = Mapping[str, str]
"""The names of columns, by themselves in lower case: Spark does not tell upper case from lower."""
Tables = Mapping[str, Columns | None]
"""What can be selected from, by names in lower case; None where only Spark knows the columns."""
NO_QUERY = "it is no query: a step selects, as in select * from NAME"


@dataclass(frozen=True, slots=True)
class Judged:
    faults: tuple[TextFault, ...] = ()
    columns: Columns | None = None
    """What a query gives, if that is known."""


def can_judge() -> bool:
    """Whether sqlglot is installed: it comes with headwater[spark]."""
    try:
        import sqlglot  # noqa: F401
    except ImportError:
        return False
    return True


def judge_query(text: str, tables: Tables, *, may_have_functions: bool = False) -> Judged:
    """`may_have_functions`: others than Spark's own may be defined, so that no name of one is wrong."""
    return _judge(text, tables, {}, is_query=True, knows_functions=not may_have_functions)


def judge_expression(text: str, sides: Tables, *, may_have_functions: bool = False) -> Judged:
    """An expression over columns of `sides`, which it may name in front of a column."""
    return _judge(text, {}, sides, is_query=False, knows_functions=not may_have_functions)


def _judge(text: str, tables: Tables, sides: Tables, *, is_query: bool, knows_functions: bool) -> Judged:
    if not can_judge():
        return Judged()
    from sqlglot.errors import SqlglotError

    from headwater.pipelines.spec.sql_grammar import parse

    query, lines_before = (text, 0) if is_query else (f"select\n{text}", 1)
    try:
        parsed = parse(query)
    except SqlglotError as error:
        return Judged((_grammar_fault(error, lines_before),))
    except Exception:  # NotParsed, or of sqlglot's builders, which do not expect such arguments: Spark judges the text
        return Judged()
    faults, columns = _judge_parsed(parsed, query, tables, sides, is_query=is_query, knows_functions=knows_functions)
    in_text = (TextFault(max(0, each.line - lines_before), each.what, each.is_sure) for each in faults)
    return Judged(tuple(dict.fromkeys(in_text)), columns)


def _judge_parsed(
    parsed: "ParsedSql", query: str, tables: Tables, sides: Tables, *, is_query: bool, knows_functions: bool
) -> tuple[list[TextFault], Columns | None]:
    from sqlglot import exp

    from headwater.pipelines.spec.sql_columns import find_columns

    faults = [*parsed.faults]
    if not parsed.trees:
        return faults or [TextFault(0, NO_QUERY)], None
    tree = parsed.trees[0]
    if len(parsed.trees) > 1:
        faults.append(TextFault(0, "it is more than one query: a step has one"))
    if not isinstance(tree, exp.Query):
        return [*faults, TextFault(0, NO_QUERY, is_sure=False)], None
    faults += _empty_clauses(tree)
    if not is_query and len(tree.expressions) != 1:
        faults.append(TextFault(0, "it is more than one expression"))
    if knows_functions:
        faults += _unknown_functions(tree, query)
    if parsed.is_piped:
        return faults, None
    try:
        columns, missing = find_columns(tree, tables, sides)
    except RecursionError:
        return faults, None
    return faults + missing, columns


def _grammar_fault(error: Exception, lines_before: int) -> TextFault:
    """sqlglot names the token at which it stopped; what it says beside that concerns its own classes."""
    found = getattr(error, "errors", None)
    if not found:
        return TextFault(0, "it is no SQL: a quote or a comment does not end", is_sure=False)
    at = found[0]
    near = " ".join(f"{at.get('start_context') or ''}{at.get('highlight') or ''}".split())
    near = (near.removeprefix("select").strip() if lines_before else near)[-40:]
    line = max(0, int(at.get("line") or 1) - 1 - lines_before)
    return TextFault(
        line, f"it is no SQL that Spark reads: look at “{near}”" if near else "it is no SQL", is_sure=False
    )


def _empty_clauses(tree: "exp.Expr") -> list[TextFault]:
    from sqlglot import exp

    faults = []
    for select in tree.find_all(exp.Select):
        if not select.expressions:
            faults.append(TextFault(0, "it selects nothing: columns belong after select"))
        group = select.args.get("group")
        if group is not None and not any(group.args.values()):
            faults.append(TextFault(0, "its group by names nothing"))
    return faults


# Functions


def _unknown_functions(tree: "exp.Expr", text: str) -> list[TextFault]:
    from sqlglot import exp

    faults = []
    for call in tree.find_all(exp.Func):
        start, end = call.meta.get("start"), call.meta.get("end")
        if start is None or end is None or not text[end + 1 :].lstrip().startswith("("):
            continue
        name = text[start : end + 1]
        is_plain = name.isidentifier() and text[:start].rstrip()[-1:] != "."
        if is_plain and name.lower() not in built_in() | PARSED:
            line = text.count("\n", 0, start)
            faults.append(TextFault(line, f"there is no function {name}.{suggestion(name, built_in())}", is_sure=False))
    return faults
