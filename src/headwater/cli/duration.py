"""Lengths of time in options of commands: 30s, 15m, 12h, 14d, 2w."""

from headwater.cli.output import CommandFailed
from headwater.model.durations import parse_duration_ms

HELP = "a number and s, m, h, d or w, such as 12h or 14d"


def duration_ms(text: str) -> int | None:
    """None if the text is no length of time. Milliseconds are too fine for a command."""
    return None if text.endswith("ms") else parse_duration_ms(text)


def duration_option_ms(text: str, option: str) -> int:
    """Raises CommandFailed with the option's name if the text is no length of time."""
    value_ms = duration_ms(text)
    if value_ms is None:
        raise CommandFailed(f"{option} {text!r} is not a length of time.", f"Use {HELP}.", exit_code=2)
    return value_ms
