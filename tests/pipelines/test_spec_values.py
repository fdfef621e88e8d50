"""Durations, starts, triggers and sizes as files give them."""

from datetime import UTC, datetime

import pytest

from headwater.pipelines.spec.durations import duration_ms
from headwater.pipelines.spec.keys import NotAccepted, byte_size, option_table, texts
from headwater.pipelines.spec.starts import EARLIEST, LATEST, Start, read_start
from headwater.pipelines.spec.triggers import AVAILABLE_NOW, Trigger, read_trigger


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("10 minutes", 600_000),
        ("1 Hour", 3_600_000),
        ("2 days", 172_800_000),
        ("0s", 0),
        ("1 fortnight", None),
        ("s", None),
        ("-1s", None),
        ("1.5s", None),
        ("10", None),
        ("9999999999s", None),
    ],
)
def test_durations_are_read_as_people_and_spark_write_them(text: str, expected_ms: int | None) -> None:
    assert duration_ms(text) == expected_ms


def test_a_start_is_an_end_a_time_or_an_age() -> None:
    assert (read_start("earliest"), read_start("latest")) == (EARLIEST, LATEST)
    assert read_start("15m").resolved(1_000_000) == Start(time_ms=100_000)
    assert read_start("2026-01-31T12:00+00:00") == Start(time_ms=1_769_860_800_000)
    assert read_start(datetime(2026, 1, 31, 12, tzinfo=UTC)) == Start(time_ms=1_769_860_800_000)
    for bad in ("yesterday", 3, "", "2026-13-01"):
        with pytest.raises(NotAccepted):
            read_start(bad)


def test_a_trigger_is_an_interval_or_available_now() -> None:
    assert read_trigger("available_now") == AVAILABLE_NOW
    assert read_trigger("2s") == Trigger(2_000)
    for bad in ("once", "0s", 5):
        with pytest.raises(NotAccepted):
            read_trigger(bad)


def test_sizes_have_units() -> None:
    assert (byte_size("16MiB"), byte_size("2 KB")) == (16 * 1024 * 1024, 2_000)
    for bad in ("16", "0MB", "1TB", 5):
        with pytest.raises(NotAccepted):
            byte_size(bad)


def test_dotted_names_of_options_may_be_quoted_or_not() -> None:
    nested = {"spark": {"sql": {"ansi": {"enabled": True}}}, "spark.cores": 2}
    assert option_table(nested) == {"spark.sql.ansi.enabled": "true", "spark.cores": "2"}


def test_one_text_need_not_be_in_a_list() -> None:
    assert texts("a") == texts(["a"]) == ("a",)
    for bad in ([], [""], [1], 3):
        with pytest.raises(NotAccepted):
            texts(bad)
