"""Lengths of time as people and Spark write them: 500ms, 30s, 15m, "10 minutes", "1 hour"."""

import re

from headwater.model.durations import UNIT_MS

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
