"""Where in a topic to begin reading, in words:

beginning | end | 42 (an offset) | -10 (ten before the end) | 15m (a quarter of an hour ago; s, m, h, d, w)
2026-01-31T12:00:00Z (a time; UTC unless it names its zone)
"""

import re
from datetime import UTC, datetime

from headwater.gateway.http.problems import bad_request
from headwater.model.durations import parse_duration_ms
from headwater.model.position import ENDS, Anchor, Position

MAX_TEXT = 64
MAX_AGE_DIGITS = 12
HELP = "beginning, end, an offset (42), so many before the end (-10), an age (15m) or a time (2026-01-31T12:00:00Z)"


def parse_position(text: str, now_ms: int) -> Position:
    if text in ENDS:
        return ENDS[text]
    if len(text) > MAX_TEXT:
        raise bad_request(f"A position is one of: {HELP}.")
    if re.fullmatch(r"[0-9]{1,18}", text):
        return Position(Anchor.OFFSET, int(text))
    if re.fullmatch(r"-[0-9]{1,18}", text):
        return Position(Anchor.LAST, -int(text))
    if (age_ms := parse_duration_ms(text, MAX_AGE_DIGITS)) is not None:
        return Position(Anchor.TIME, max(0, now_ms - age_ms))
    try:
        at = datetime.fromisoformat(text)
        return Position(Anchor.TIME, max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)))
    except (ValueError, OverflowError):
        raise bad_request(f"{text!r} is not a position. Use {HELP}.") from None
