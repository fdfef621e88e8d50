"""Filters: expressions on the key and the headers of a record."""

from collections.abc import Callable
from typing import TypeAlias

from headwater.records.record import Headers

Filter: TypeAlias = Callable[[bytes | None, Headers], bool]
"""Says whether a record with this key and these headers is wanted. Never raises."""


class FilterError(ValueError):
    """The expression is not one; the message says where and why."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} (at character {position + 1})")
        self.position = position


def compile_filter(text: str) -> Filter:
    """Raises FilterError."""
    raise NotImplementedError
