"""Log lines: the name of a fact, then its fields."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LINES_PER_SECOND = 3
"""Of one fact, where clients can cause as many as they like."""
_logger = logging.getLogger("headwater")


def log_fact(fact: str, level: int = logging.INFO, exc_info: BaseException | None = None, **fields: Any) -> None:
    """One line, followed by the traceback of `exc_info` where there is one."""
    if _logger.isEnabledFor(level):
        text = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
        _logger.log(level, "%s %s", fact, text, exc_info=exc_info)


def _shown(value: Any) -> str:
    text = str(value)
    return repr(text) if not text or any(char.isspace() or char == "=" for char in text) else text


@dataclass(slots=True)
class _Second:
    began: float
    level: int
    lines: int = 0
    left_out: int = 0


class SparseLog:
    """Facts that clients can cause as often as they like: a few lines a second of each, and how many were left out.

    The number is a field of the next line of that fact; `flush`, called now and then, writes it where no line follows.
    Memory: one entry for each name of a fact, and those are constants of the code."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seconds: dict[str, _Second] = {}

    def log(self, fact: str, level: int = logging.INFO, exc_info: BaseException | None = None, **fields: Any) -> None:
        now = self._now()
        second = self._seconds.get(fact)
        if second is None or now - second.began >= 1.0:
            if second is not None and second.left_out:
                fields["left_out"] = second.left_out
            second = self._seconds[fact] = _Second(now, level)
        if second.lines >= LINES_PER_SECOND:
            second.left_out += 1
            return
        second.lines += 1
        log_fact(fact, level, exc_info, **fields)

    def flush(self) -> None:
        """Say how many lines were left out in seconds that are over."""
        now = self._now()
        for fact, second in self._seconds.items():
            if second.left_out and now - second.began >= 1.0:
                log_fact(fact, second.level, left_out=second.left_out)
                second.left_out = 0
