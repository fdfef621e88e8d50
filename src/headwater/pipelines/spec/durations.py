"""Lengths of time as people and Spark write them: 500ms, 30s, 15m, "10 minutes", "1 hour"."""

import re

UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
WORDS = {
    "millisecond": "ms",
    "second": "s",
    "sec": "s",
    "minute": "m",
    "min": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
}
HELP = 'a number and ms, s, m, h, d or w, such as "500ms" or "10m"; "10 minutes" is understood, too'


def duration_ms(text: str) -> int | None:
    """None if the text is no length of time."""
    match = re.fullmatch(r"\s*(\d{1,9})\s*([a-z]+)\s*", text.lower(), re.ASCII)
    if match is None:
        return None
    word = match[2]
    unit = word if word in UNIT_MS else WORDS.get(word.removesuffix("s"))
    return int(match[1]) * UNIT_MS[unit] if unit is not None else None


def interval(value_ms: int) -> str:
    """As Spark's SQL reads it."""
    return f"{value_ms} milliseconds"


def shown(value_ms: int) -> str:
    """In the largest unit that gives a whole number: 90000 is 90s."""
    for unit in ("d", "h", "m", "s"):
        if value_ms and value_ms % UNIT_MS[unit] == 0:
            return f"{value_ms // UNIT_MS[unit]}{unit}"
    return f"{value_ms}ms"
