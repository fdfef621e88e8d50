"""SQL of a pipeline file, judged without Spark: its grammar by sqlglot in Spark's dialect, its types, functions and
columns by what is known here.

Nothing that Spark takes may be refused. Where the two grammars differ, the text is made one that both read
(`_adapted`), and what is judged by a grammar or a list that is not Spark's own counts as unsure: before a run, Spark
judges that itself.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.pipelines.spec.mistakes import Fault, suggestion
from headwater.pipelines.spec.schema_text import read_type
from headwater.pipelines.spec.spark_functions import PARSED, built_in

if TYPE_CHECKING:
    from sqlglot import Token, exp
    from sqlglot.dialects.dialect import Dialect

Columns = Mapping[str, str]
"""The names of columns, by themselves in lower case: Spark does not tell upper case from lower."""
Tables = Mapping[str, Columns | None]
"""What can be selected from, by names in lower case; None where only Spark knows the columns."""
MAX_CHARS = 100_000
"""Of one text; a longer one is left to Spark."""
SUBSTITUTION = "${"
"""Spark puts settings in its place, which are not known here."""


@dataclass(frozen=True, slots=True)
class Judged:
    faults: tuple[Fault, ...] = ()
    columns: Columns | None = None
    """What a query gives, if that can be told."""


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
    if SUBSTITUTION in text or len(text) > MAX_CHARS or not can_judge():
        return Judged()
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    from headwater.pipelines.spec.sql_columns import find_columns

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of what it passes over
    try:
        tree, faults, is_piped = _parsed(text, is_query=is_query)
    except _NotJudged:
        return Judged()
    except SqlglotError as error:
        return Judged((_grammar_fault(error, 0 if is_query else 1),))
    except Exception:  # of its builders, which do not expect such arguments: Spark says what is wrong
        return Judged()
    lines_before = 0 if is_query else 1
    if not isinstance(tree, exp.Query):
        return Judged((*faults, Fault(0, "it is no query: a step selects, as in select * from NAME", is_sure=False)))
    faults += _empty_clauses(tree)
    if not is_query and len(tree.expressions) != 1:
        faults.append(Fault(0, "it is more than one expression"))
    if knows_functions:
        faults += _unknown_functions(tree, text if is_query else f"select\n{text}")
    columns = None
    if not is_piped:
        try:
            columns, missing = find_columns(tree, tables, sides)
            faults += missing
        except RecursionError:
            pass
    told = tuple(Fault(max(0, each.line - lines_before), each.what, each.is_sure) for each in faults)
    return Judged(tuple(dict.fromkeys(told)), columns)


# The grammar


class _NotJudged(Exception):
    """sqlglot knows less of Spark's grammar than this text uses."""


def _parsed(text: str, *, is_query: bool) -> "tuple[exp.Expr | None, list[Fault], bool]":
    """The tree, what is wrong beside the grammar, and whether it is written with pipes."""
    from sqlglot import TokenType
    from sqlglot.dialects.databricks import Databricks
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import ParseError

    whole = text if is_query else f"select\n{text}"
    tokens, faults = _adapted(Spark().tokenize(whole), whole)
    is_piped = any(token.token_type == TokenType.PIPE_GT for token in tokens)
    dialects: tuple[Dialect, ...] = (Spark(), Databricks())  # the other reads paths into variants, value:a.b
    for dialect in dialects:
        try:
            trees = [tree for tree in dialect.parser().parse([*tokens], whole) if tree is not None]
            break
        except ParseError as error:
            if any("Unsupported pipe syntax" in str(each.get("description")) for each in error.errors):
                raise _NotJudged from None
            if dialect is dialects[-1]:
                if faults:
                    return _nothing(), faults, True
                raise
    if len(trees) != 1:
        faults.append(Fault(0, "it is no query" if not trees else "it is more than one query: a step has one"))
    return (trees[0] if trees else None), faults, is_piped


def _nothing() -> "exp.Expr":
    """Stands for a text whose faults are known already."""
    from sqlglot import exp

    return exp.Select(expressions=[exp.Star()])


def _adapted(tokens: "list[Token]", text: str) -> "tuple[list[Token], list[Fault]]":
    """Tokens that sqlglot reads as Spark reads them, with types in place of which any other would do as well."""
    from sqlglot import Token, TokenType

    faults: list[Fault] = []
    kept: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if token.token_type == TokenType.WINDOW and following and following.token_type == TokenType.L_PAREN:
            token.token_type = TokenType.VAR  # the function; sqlglot takes it for the clause
        elif text[token.start - 2 : token.start + 1] == ">>>" and token.token_type == TokenType.GT:
            index += 1  # >>> shifts as well as >>
            continue
        elif token.token_type == TokenType.COMMA and _ends_list(following):
            before = "the end" if following is None else following.text
            faults.append(Fault(token.line - 1, f"a comma too many stands before {before}"))
        elif (
            token.token_type == TokenType.COMMA
            and kept
            and kept[-1].token_type in (TokenType.L_PAREN, TokenType.SELECT)
        ):
            faults.append(Fault(token.line - 1, f"a comma too many stands after {kept[-1].text}"))
        elif token.token_type == TokenType.TABLE and not kept:
            kept += [Token(kind, kind.name, token.line) for kind in (TokenType.SELECT, TokenType.STAR)]
            token = Token(TokenType.FROM, "from", token.line)
        kept.append(token)
        index += 1
        if (end := _end_of_type(tokens, index - 1)) is not None:
            begun = tokens[index]
            written = text[begun.start : tokens[end - 1].end + 1]
            faults += [Fault(begun.line - 1 + fault.line, fault.what) for fault in read_type(written).faults]
            kept.append(Token(TokenType.VAR, "string", begun.line, begun.col, begun.start, tokens[end - 1].end))
            index = end
    return kept, faults


def _ends_list(token: "Token | None") -> bool:
    from sqlglot import TokenType

    if token is None:
        return True
    ends = (TokenType.COMMA, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.SEMICOLON, TokenType.FROM)
    return token.token_type in ends


def _end_of_type(tokens: "list[Token]", index: int) -> int | None:
    """The index after the type that begins after this one; None if none begins there."""
    from sqlglot import TokenType

    token = tokens[index]
    if token.token_type == TokenType.ALIAS and _is_of_cast(tokens, index):
        depth, end = 0, index + 1
        while end < len(tokens) and (depth or tokens[end].token_type != TokenType.R_PAREN):
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[end].token_type, 0)
            end += 1
        return end if index + 1 < end < len(tokens) else None
    if token.token_type == TokenType.DCOLON and index + 1 < len(tokens):
        if tokens[index + 1].start <= token.end:
            return None  # a number with the letter of its type, which sqlglot takes apart
        if tokens[index + 1].text.lower() == "interval":
            return None  # its units follow, or something else
        depth, end = 0, index + 2
        opens = {TokenType.L_PAREN: 1, TokenType.LT: 1, TokenType.R_PAREN: -1, TokenType.GT: -1}
        while end < len(tokens) and (depth or tokens[end].text in ("(", "<")):
            if (
                not depth
                and tokens[end].text == "<"
                and tokens[index + 1].text.lower() not in ("array", "map", "struct")
            ):
                break  # a comparison
            depth += -2 if tokens[end].text == ">>" else opens.get(tokens[end].token_type, 0)
            end += 1
        return end
    return None


def _is_of_cast(tokens: "list[Token]", index: int) -> bool:
    """Whether AS belongs to the parenthesis of a cast."""
    from sqlglot import TokenType

    depth = 0
    for before in range(index - 1, 0, -1):
        kind = tokens[before].token_type
        depth += kind == TokenType.R_PAREN
        if kind == TokenType.L_PAREN:
            if not depth:
                return tokens[before - 1].text.lower() in ("cast", "try_cast")
            depth -= 1
    return False


def _grammar_fault(error: Exception, lines_before: int) -> Fault:
    """sqlglot names the token at which it stopped; what it says beside that concerns its own classes."""
    found = getattr(error, "errors", None)
    if not found:
        return Fault(0, "it is no SQL: a quote or a comment does not end", is_sure=False)
    at = found[0]
    near = " ".join(f"{at.get('start_context') or ''}{at.get('highlight') or ''}".split())
    near = (near.removeprefix("select").strip() if lines_before else near)[-40:]
    line = max(0, int(at.get("line") or 1) - 1 - lines_before)
    return Fault(line, f"it is no SQL that Spark reads: look at “{near}”" if near else "it is no SQL", is_sure=False)


def _empty_clauses(tree: "exp.Expr") -> list[Fault]:
    from sqlglot import exp

    faults = []
    for select in tree.find_all(exp.Select):
        if not select.expressions:
            faults.append(Fault(0, "it selects nothing: columns belong after select"))
        group = select.args.get("group")
        if group is not None and not any(group.args.values()):
            faults.append(Fault(0, "its group by names nothing"))
    return faults


# Functions


def _unknown_functions(tree: "exp.Expr", text: str) -> list[Fault]:
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
            faults.append(Fault(line, f"there is no function {name}.{suggestion(name, built_in())}", is_sure=False))
    return faults
