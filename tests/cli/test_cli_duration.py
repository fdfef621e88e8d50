"""Lengths of time in options of commands."""

import pytest

from headwater.cli.duration import duration_ms, duration_option_ms
from headwater.cli.output import CommandFailed


def test_a_number_and_a_unit_are_a_length_of_time() -> None:
    assert duration_ms("15m") == duration_option_ms("15m", "--retention") == 900_000


@pytest.mark.parametrize("text", ["14", "1y", "500ms"])
def test_anything_else_is_refused_with_the_name_of_the_option(text: str) -> None:
    assert duration_ms(text) is None
    with pytest.raises(CommandFailed, match="--retention"):
        duration_option_ms(text, "--retention")
