"""Lengths of time as people write them: 30s, 15m, 12h, 14d, 2w."""

import re

from headwater.cli.output import Problem

UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
HELP = "a number and s, m, h, d or w, such as 12h or 14d"


def duration_ms(text: str) -> int | None:
    """None if the text is no length of time."""
    match = re.fullmatch(r"(\d{1,9})([smhdw])", text, re.ASCII)
    return int(match[1]) * UNIT_MS[match[2]] if match is not None else None


def parse_duration_ms(text: str, option: str) -> int:
    found = duration_ms(text)
    if found is None:
        raise Problem(f"{option} {text!r} is not a length of time.", f"Use {HELP}.", exit_code=2)
    return found


def show_duration(value_ms: int) -> str:
    """In the largest unit up to days that gives a whole number: 1209600000 is 14d."""
    for unit in "dhms":
        if value_ms and value_ms % UNIT_MS[unit] == 0:
            return f"{value_ms // UNIT_MS[unit]}{unit}"
    return f"{value_ms}ms"
