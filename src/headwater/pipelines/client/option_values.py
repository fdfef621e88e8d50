"""Values of options, from the text that Spark hands over. What is wrong is said with the name of the option."""

import re
from collections.abc import Sequence

from headwater.model.durations import UNIT_MS
from headwater.pipelines.errors import InvalidOption

_DURATION = re.compile(r"(\d{1,12}) ?([a-z]*)")
_UNITS = {"": "ms", "ms": "ms", "s": "s", "m": "m", "min": "m", "h": "h", "d": "d"}
_MAX_INTEGER_CHARS = 20


def a_boolean(option: str, text: str) -> bool:
    return a_choice(option, text, ("true", "false")) == "true"


def a_choice(option: str, text: str, choices: Sequence[str]) -> str:
    """One of the choices, in lower case."""
    chosen = text.strip().lower()
    if chosen not in choices:
        raise InvalidOption(f"Option {option} is {text!r}; it can be {' or '.join(choices)}.")
    return chosen


def an_integer(option: str, text: str, at_least: int, at_most: int = 2**63 - 1) -> int:
    stripped = text.strip()
    try:
        value = int(stripped) if len(stripped) <= _MAX_INTEGER_CHARS else None
    except ValueError:
        value = None
    if value is None or not at_least <= value <= at_most:
        limit = f"from {at_least} to {at_most}" if at_most < 2**63 - 1 else f"of at least {at_least}"
        raise InvalidOption(f"Option {option} is {text!r}; it must be a whole number {limit}.")
    return value


def a_duration_ms(option: str, text: str) -> int:
    """`15m`, `90s`, `500ms`, as Spark writes them; a bare number is milliseconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise InvalidOption(f"Option {option} is {text!r}; it must be a duration like 500ms, 90s, 15m or 2h.")
    return int(match[1]) * UNIT_MS[_UNITS[match[2]]]
