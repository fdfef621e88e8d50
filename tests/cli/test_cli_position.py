"""Where to begin: the words, and the offsets that they mean."""

from datetime import UTC, datetime

import pytest

from headwater.cli.output import Problem
from headwater.cli.position import Anchor, Position, parse_position

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Position(Anchor.BEGINNING)),
        ("end", Position(Anchor.END)),
        ("42", Position(Anchor.OFFSET, 42)),
        ("-10", Position(Anchor.LAST, 10)),
        ("15m", Position(Anchor.TIME, NOW_MS - 900_000)),
        ("1d", Position(Anchor.TIME, NOW_MS - 86_400_000)),
        ("999999999d", Position(Anchor.TIME, 0)),
        (
            "2026-01-31T12:00:00+00:00",
            Position(Anchor.TIME, int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)),
        ),
    ],
)
def test_a_position_is_a_word_an_offset_a_count_an_age_or_a_time(text: str, position: Position) -> None:
    assert parse_position(text, NOW_MS) == position


@pytest.mark.parametrize("text", ["", "middle", "1.5", "15 minutes", "--1", "9" * 30, "2026-13-01", "0x10"])
def test_anything_else_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(Problem, match="is not a position") as refused:
        parse_position(text, NOW_MS)
    assert refused.value.exit_code == 2
    assert "beginning" in str(refused.value)
