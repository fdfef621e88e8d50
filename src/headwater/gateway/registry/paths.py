"""Which handler a path means. Subjects may hold any character, a slash, too: paths are cut before they are decoded.

A path may begin with a context, `/contexts/.staging/subjects/…`: then it means the same in that context. Handlers find
it in `values["context"]`, and in the subject, which comes in its shortest form.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import quote, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from headwater.schemas.contexts import DEFAULT, Qualified, parse_context, within

Handler: TypeAlias = Callable[[Request, Mapping[str, str]], Awaitable[Response]]
MAX_PARTS = 10
CONTEXTS = "contexts"
SETTINGS = ("config", "mode")


class PathTable:
    def __init__(self, handlers: Mapping[tuple[str, str], Handler]) -> None:
        """By method and path, as in ("GET", "/subjects/{subject}/versions")."""
        self._paths: dict[str, dict[str, Handler]] = {}
        for (method, path), handler in handlers.items():
            self._paths.setdefault(path, {})[method] = handler

    def find(self, scope: Scope) -> tuple[str, dict[str, Handler], dict[str, str]] | None:
        """The path as it was declared, its handlers by method, and what stands for the names in it. Raises
        BadContext."""
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        parts = raw.partition(b"?")[0].strip(b"/").split(b"/")
        if len(parts) > MAX_PARTS:
            return None
        try:
            decoded = [unquote_to_bytes(part).decode() for part in parts]
        except UnicodeDecodeError:
            return None
        context, decoded = _context(decoded)
        for path, handlers in self._paths.items():
            values = _match(path.strip("/").split("/"), decoded)
            if values is not None:
                if "subject" in values:
                    values["subject"] = within(context, values["subject"])
                return path, handlers, {"context": context, **values}
        return None


def _context(parts: list[str]) -> tuple[str, list[str]]:
    """The context that a path begins with, and the path in it. A level or mode without a subject is the context's."""
    if len(parts) < 2 or parts[0] != CONTEXTS or not parts[1]:
        return DEFAULT, parts
    context, rest = parse_context(parts[1]), parts[2:]
    if not rest:
        return DEFAULT, [CONTEXTS, context]
    if len(rest) == 1 and rest[0] in SETTINGS and context != DEFAULT:
        rest = [*rest, str(Qualified(context, ""))]
    return context, rest


def _match(declared: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(declared) != len(parts):
        return None
    values = {}
    for name, part in zip(declared, parts, strict=True):
        if name.startswith("{"):
            values[name[1:-1]] = part
        elif name != part:
            return None
    return values
