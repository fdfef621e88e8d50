"""The broker's log: one line per fact on stderr, `fact key=value …`, or one JSON object per fact."""

import json
import logging
import shlex
import sys
import time
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")


def start_logging(level: str, *, as_json: bool, stream: TextIO | None = None) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info fact key=value`. A message never becomes two lines, except for a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        line = f"{_timestamp(record)} {record.levelname.lower()} {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        fields: dict[str, str] = {"time": _timestamp(record), "level": record.levelname.lower()}
        fields |= _fact_fields(message)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _timestamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _fact_fields(message: str) -> dict[str, str]:
    """The fields of `fact key=value key='two words'`; of any other message, the message."""
    try:
        fact, *pairs = shlex.split(message)
        fields = dict(pair.split("=", 1) for pair in pairs)
    except ValueError:
        return {"message": message}
    return {"fact": fact, **fields}
