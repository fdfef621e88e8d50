"""Log events: a name and fields, which stay fields until a formatter writes them (`logs.formats`).

An event is logged under the name of the module that logs it, so that an administrator can alter the level of a room,
a package or everything.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

LINES_PER_SECOND: Final = 3
"""Of one event, where clients can cause as many as they like."""
FIELDS: Final = "event_fields"
"""The attribute of a log record that holds the fields of an event."""


def log_event(event: str, level: int = logging.INFO, exc_info: BaseException | None = None, **fields: Any) -> None:
    """One line, followed by the traceback of `exc_info` if there is one."""
    _log(sys._getframe(1).f_globals["__name__"], event, level, exc_info, fields)


def _log(name: str, event: str, level: int, exc_info: BaseException | None, fields: dict[str, Any]) -> None:
    logger = logging.getLogger(name)
    if logger.isEnabledFor(level):
        logger.log(level, "%s", EventText(event, fields), exc_info=exc_info, extra={FIELDS: fields})


class EventText:
    """An event as a line, put together only if a handler asks for it: `event name=value other='two words'`."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: dict[str, Any]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={_quoted(value)}" for name, value in self.fields.items())])


def _quoted(value: Any) -> str:
    text = str(value)
    return repr(text) if not text or any(char.isspace() or char == "=" for char in text) else text


@dataclass(slots=True)
class _Second:
    began_s: float
    level: int
    lines: int = 0
    left_out: int = 0


class RateLimitedLog:
    """Events that clients can cause as often as they like: a few lines a second of each, and how many were left out.

    The number is a field of the event's next line; `flush`, called now and then, writes it where no line follows.
    Memory: one entry for each name of an event, and those are constants of the code."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._seconds: dict[str, _Second] = {}

    def log(self, event: str, level: int = logging.INFO, exc_info: BaseException | None = None, **fields: Any) -> None:
        now_s = self._now_s()
        second = self._seconds.get(event)
        if second is None or now_s - second.began_s >= 1.0:
            if second is not None and second.left_out:
                fields["left_out"] = second.left_out
            second = self._seconds[event] = _Second(now_s, level)
        if second.lines >= LINES_PER_SECOND:
            second.left_out += 1
            return
        second.lines += 1
        _log(sys._getframe(1).f_globals["__name__"], event, level, exc_info, fields)

    def flush(self) -> None:
        """Log how many lines were left out in seconds that are over."""
        now_s = self._now_s()
        for event, second in self._seconds.items():
            if second.left_out and now_s - second.began_s >= 1.0:
                log_event(event, second.level, left_out=second.left_out)
                second.left_out = 0
