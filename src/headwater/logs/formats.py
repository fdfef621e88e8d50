"""The log on stderr: one line for each event, `event key=value …`, or one JSON object with the fields as they are.

Clients choose some of the texts. A character that is not seen is written as an escape, so that none begins a line or
commands a terminal that shows the log.
"""

import json
import logging
import sys
import time
from typing import Any, TextIO

from headwater.logs.events import FIELDS, EventText

LEVELS = ("debug", "info", "warning", "error")


def start_logging(level: str, *, as_json: bool, stream: TextIO | None = None) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info event key=value`. A message is one line; only a traceback adds more."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_timestamp(record)} {record.levelname.lower()} {_visible(record.getMessage())}"
        if record.exc_info:
            line += "\n" + "\n".join(map(_visible, self.formatException(record.exc_info).split("\n")))
        return line


class JsonFormatter(logging.Formatter):
    """Numbers, truth values and null stay what they are; everything else is a string."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _timestamp(record), "level": record.levelname.lower()}
        fields = getattr(record, FIELDS, None)
        if fields is not None and isinstance(record.args, tuple) and isinstance(record.args[0], EventText):
            line["event"] = record.args[0].event
            line |= {name: _plain(value) for name, value in fields.items()}
        else:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _visible(json.dumps(line, ensure_ascii=False, allow_nan=False))


def _visible(text: str) -> str:
    """The escapes are those of JSON, so JSON means the same as before."""
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float and value == value and abs(value) != float("inf"):
        return value
    return str(value)


def _timestamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
