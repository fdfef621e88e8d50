"""Lengths of time as people write them."""

import pytest

from headwater.cli.duration import duration_ms, parse_duration_ms, show_duration
from headwater.cli.output import Problem


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [("0s", 0), ("90s", 90_000), ("15m", 900_000), ("12h", 43_200_000), ("14d", 1_209_600_000), ("2w", 1_209_600_000)],
)
def test_a_number_and_a_unit_are_a_length_of_time(text: str, value_ms: int) -> None:
    assert duration_ms(text) == value_ms


@pytest.mark.parametrize("text", ["", "14", "d", "-1d", "1.5h", "1 d", "1y", "14d ", "\u0661d", "9999999999s"])
def test_anything_else_is_not(text: str) -> None:
    assert duration_ms(text) is None
    with pytest.raises(Problem, match="--retention"):
        parse_duration_ms(text, "--retention")


def test_a_length_of_time_is_shown_in_its_largest_unit() -> None:
    assert [show_duration(value) for value in (1_209_600_000, 86_400_000, 90_000, 1_500, 0)] == [
        "14d",
        "1d",
        "90s",
        "1500ms",
        "0ms",
    ]
