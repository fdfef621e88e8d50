"""Clients that are opened once for each name and address, and closed together."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Generic, Protocol, TypeVar


class Closeable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closeable)


class Opening(Generic[C]):
    def __init__(self, open_one: Callable[[str, str], C]) -> None:
        self._open_one = open_one
        self._opened: dict[tuple[str, str], C] = {}
        self._closing = ExitStack()

    def __enter__(self) -> "Opening[C]":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.clear()
        self._closing.close()

    def __call__(self, name: str, bootstrap: str) -> C:
        if (name, bootstrap) not in self._opened:
            client = self._opened[name, bootstrap] = self._open_one(name, bootstrap)
            self._closing.callback(client.close)
        return self._opened[name, bootstrap]
