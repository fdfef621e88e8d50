"""Which handler a path means. Subjects may hold any character, a slash, too: paths are cut before they are decoded."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import quote, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

Handler: TypeAlias = Callable[[Request, Mapping[str, str]], Awaitable[Response]]
MAX_PARTS = 8


class PathTable:
    def __init__(self, handlers: Mapping[tuple[str, str], Handler]) -> None:
        """By method and path, as in ("GET", "/subjects/{subject}/versions")."""
        self._paths: dict[str, dict[str, Handler]] = {}
        for (method, path), handler in handlers.items():
            self._paths.setdefault(path, {})[method] = handler

    def find(self, scope: Scope) -> tuple[str, dict[str, Handler], dict[str, str]] | None:
        """The path as it was declared, its handlers by method, and what stands for the names in it."""
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        parts = raw.partition(b"?")[0].strip(b"/").split(b"/")
        if len(parts) > MAX_PARTS:
            return None
        try:
            decoded = [unquote_to_bytes(part).decode() for part in parts]
        except UnicodeDecodeError:
            return None
        for path, handlers in self._paths.items():
            values = _match(path.strip("/").split("/"), decoded)
            if values is not None:
                return path, handlers, values
        return None


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
