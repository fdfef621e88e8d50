"""Lengths of time as people write them: a whole number and a unit, such as 500ms, 30s, 15m, 12h, 14d or 2w."""

import re
from typing import Final

UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}

_DURATION = re.compile(r"([0-9]+)(ms|s|m|h|d|w)")
_FORMAT_UNITS = ("d", "h", "m", "s")


def parse_duration_ms(text: str, max_digits: int = 9) -> int | None:
    """None if the text is not a number of at most so many digits and a unit."""
    match = _DURATION.fullmatch(text)
    if match is None or len(match[1]) > max_digits:
        return None
    return int(match[1]) * UNIT_MS[match[2]]


def format_duration(value_ms: int) -> str:
    """In the largest unit up to days that gives a whole number: 90000 is 90s, 1209600000 is 14d."""
    for unit in _FORMAT_UNITS:
        if value_ms and value_ms % UNIT_MS[unit] == 0:
            return f"{value_ms // UNIT_MS[unit]}{unit}"
    return f"{value_ms}ms"
