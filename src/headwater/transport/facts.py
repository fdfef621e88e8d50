"""Log lines: the name of a fact, then its fields."""

import logging
from typing import Any

_logger = logging.getLogger("headwater")


def log_fact(fact: str, level: int = logging.INFO, **fields: Any) -> None:
    if _logger.isEnabledFor(level):
        _logger.log(level, "%s %s", fact, " ".join(f"{name}={_shown(value)}" for name, value in fields.items()))


def _shown(value: Any) -> str:
    text = str(value)
    return repr(text) if not text or any(char.isspace() or char == "=" for char in text) else text
