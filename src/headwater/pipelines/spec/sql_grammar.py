"""SQL of a pipeline file as sqlglot's syntax trees, in Spark's dialect.

Where sqlglot's grammar and Spark's differ, the tokens are changed into ones that both read the same way (`_adapted`).
Importing this module needs sqlglot, which comes with headwater[spark].
"""

import logging
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.databricks import Databricks
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError

from headwater.pipelines.spec.mistakes import TextFault
from headwater.pipelines.spec.schema_text import read_type

MAX_CHARS = 100_000
"""Of one text; a longer one is left to Spark."""
SUBSTITUTION = "${"
"""Spark puts settings in its place, which are not known here."""
MAX_CACHED = 256
"""Syntax trees that are kept: a query is parsed once for its relations and its columns."""
BEFORE_QUERY = (
    *(TokenType.L_PAREN, TokenType.R_PAREN, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT),
    *(TokenType.ALL, TokenType.DISTINCT),
)
BEGINS_LIST = (TokenType.L_PAREN, TokenType.SELECT)
ENDS_LIST = (TokenType.COMMA, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.SEMICOLON, TokenType.FROM)

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of syntax that it skips


class NotParsed(Exception):
    """The text is left to Spark: it is too long, not complete, or sqlglot does not know its part of the grammar."""


@dataclass(frozen=True, slots=True)
class ParsedSql:
    """The trees are shared and must not be changed."""

    trees: tuple[exp.Expr, ...]
    faults: tuple[TextFault, ...]
    """What is wrong apart from the grammar. If the text does not parse because of them, there is no tree."""
    is_piped: bool


@lru_cache(MAX_CACHED)
def parse(text: str) -> ParsedSql:
    """Raises SqlglotError with the token that sqlglot does not expect, or NotParsed. sqlglot raises other exceptions,
    too, for calls whose arguments it does not expect."""
    if SUBSTITUTION in text or len(text) > MAX_CHARS:
        raise NotParsed
    tokens, faults = _adapted(Spark().tokenize(text), text)
    is_piped = any(token.token_type == TokenType.PIPE_GT for token in tokens)
    dialects: tuple[Dialect, ...] = (Spark(), Databricks())  # the second reads paths into variants, value:a.b
    for dialect in dialects:
        try:
            trees = dialect.parser().parse([*tokens], text)
            return ParsedSql(tuple(tree for tree in trees if tree is not None), tuple(faults), is_piped)
        except ParseError as error:
            if any("Unsupported pipe syntax" in str(each.get("description")) for each in error.errors):
                raise NotParsed from None
            if dialect is dialects[-1] and not faults:
                raise
    return ParsedSql((), tuple(faults), is_piped)


def _adapted(tokens: list[Token], text: str) -> tuple[list[Token], list[TextFault]]:
    """Tokens that sqlglot reads as Spark reads them. Types are judged here, and any other stands for them."""
    faults: list[TextFault] = []
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
        elif token.token_type == TokenType.COMMA:
            faults += _needless_comma(token, kept[-1] if kept else None, following)
        elif token.token_type == TokenType.TABLE and _begins_query(kept[-1] if kept else None, following):
            kept += [Token(kind, kind.name, token.line) for kind in (TokenType.SELECT, TokenType.STAR)]
            token = Token(TokenType.FROM, "from", token.line)
        kept.append(token)
        index += 1
        if (end := _end_of_type(tokens, index - 1)) is not None:
            begun = tokens[index]
            written = text[begun.start : tokens[end - 1].end + 1]
            faults += [TextFault(begun.line - 1 + fault.line, fault.what) for fault in read_type(written).faults]
            kept.append(Token(TokenType.VAR, "string", begun.line, begun.col, begun.start, tokens[end - 1].end))
            index = end
    return kept, faults


def _needless_comma(comma: Token, before: Token | None, following: Token | None) -> list[TextFault]:
    if following is None or following.token_type in ENDS_LIST:
        where = f"before {'the end' if following is None else following.text}"
    elif before is not None and before.token_type in BEGINS_LIST:
        where = f"after {before.text}"
    else:
        return []
    return [TextFault(comma.line - 1, f"a comma too many stands {where}")]


def _begins_query(before: Token | None, following: Token | None) -> bool:
    """Whether TABLE stands for SELECT * FROM. Elsewhere it is a name, or a function."""
    is_name = following is not None and following.token_type not in (TokenType.L_PAREN, TokenType.ALIAS, *ENDS_LIST)
    return is_name and (before is None or before.token_type in BEFORE_QUERY)


def _end_of_type(tokens: list[Token], index: int) -> int | None:
    """The index after the type that begins after this one; None if none begins there."""
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


def _is_of_cast(tokens: list[Token], index: int) -> bool:
    """Whether AS belongs to the parenthesis of a cast."""
    depth = 0
    for before in range(index - 1, 0, -1):
        kind = tokens[before].token_type
        depth += kind == TokenType.R_PAREN
        if kind == TokenType.L_PAREN:
            if not depth:
                return tokens[before - 1].text.lower() in ("cast", "try_cast")
            depth -= 1
    return False
