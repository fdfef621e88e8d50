"""Lengths of time as people write them."""

import pytest

from headwater.model.durations import format_duration, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [("500ms", 500), ("0s", 0), ("90s", 90_000), ("15m", 900_000), ("12h", 43_200_000), ("2w", 1_209_600_000)],
)
def test_a_number_and_a_unit_are_a_length_of_time(text: str, value_ms: int) -> None:
    assert parse_duration_ms(text) == value_ms


@pytest.mark.parametrize("text", ["", "14", "d", "-1d", "1.5h", "1 d", "1y", "14d ", "\u0661d", "9999999999s"])
def test_anything_else_is_not(text: str) -> None:
    assert parse_duration_ms(text) is None


def test_how_many_digits_are_read_is_the_callers_choice() -> None:
    assert parse_duration_ms("9999999999s", max_digits=10) == 9_999_999_999_000


def test_a_length_of_time_is_shown_in_its_largest_unit() -> None:
    lengths_ms = (1_209_600_000, 86_400_000, 90_000, 1_500, 0)
    assert [format_duration(value_ms) for value_ms in lengths_ms] == ["14d", "1d", "90s", "1500ms", "0ms"]
