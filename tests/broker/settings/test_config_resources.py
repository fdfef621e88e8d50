"""Describing and altering configurations, as decisions on values."""

import pytest

from headwater.broker.settings.config_resources import (
    AlterOperation,
    changed,
    describe_topic,
    replaced,
)
from headwater.broker.settings.topic_config import BrokerDefaults
from headwater.model.config_key import ConfigSource, ConfigType
from headwater.model.errors import ErrorCode, RequestError

DEFAULTS = BrokerDefaults()
SET, DELETE, APPEND, SUBTRACT = AlterOperation


def test_a_topic_shows_every_key_with_its_value_and_where_it_comes_from() -> None:
    defaults = BrokerDefaults({"segment.ms": "5"})
    entries = {entry.name: entry for entry in describe_topic({"retention.ms": "9", "durability": "os"}, defaults)}
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("9", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert entries["headwater.durability"].value == "os"
    assert (entries["segment.ms"].value, entries["segment.ms"].source) == ("5", ConfigSource.STATIC_BROKER_CONFIG)
    assert entries["cleanup.policy"].type is ConfigType.LIST
    assert entries["segment.bytes"].source is ConfigSource.DEFAULT_CONFIG
    assert not any(entry.is_read_only for entry in entries.values())


def test_set_and_delete_change_the_keys_they_name() -> None:
    before = {"retention.ms": "1", "segment.ms": "2"}
    after = changed(before, [("retention.ms", SET, "5"), ("segment.ms", DELETE, None)], DEFAULTS)
    assert after == {"retention.ms": "5"}
    assert before == {"retention.ms": "1", "segment.ms": "2"}
    for name in ("retention.ms", "no.such.key"):
        assert changed({}, [(name, DELETE, None)], DEFAULTS) == {}


def test_append_and_subtract_work_on_what_is_in_force() -> None:
    appended = changed({}, [("cleanup.policy", APPEND, "compact")], DEFAULTS)
    assert appended == {"cleanup.policy": "delete,compact"}
    assert changed(appended, [("cleanup.policy", APPEND, "compact")], DEFAULTS) == appended
    subtracted = changed(appended, [("cleanup.policy", SUBTRACT, "delete")], DEFAULTS)
    assert subtracted == {"cleanup.policy": "compact"}
    emptied = changed(subtracted, [("cleanup.policy", SUBTRACT, "compact")], DEFAULTS)
    assert emptied == {"cleanup.policy": ""}
    assert changed(emptied, [("cleanup.policy", APPEND, "compact")], DEFAULTS) == subtracted


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
        (("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_done_is_refused(change: tuple[str, int, str | None], code: ErrorCode) -> None:
    with pytest.raises(RequestError) as caught:
        changed({}, [change], DEFAULTS)
    assert caught.value.code is code


def test_a_key_named_twice_in_one_change_is_refused() -> None:
    with pytest.raises(RequestError, match="twice") as caught:
        changed({}, [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], DEFAULTS)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(RequestError, match="twice"):
        replaced([("retention.ms", "1"), ("retention.ms", "2")])


def test_replacing_keeps_only_what_is_named_under_its_full_name() -> None:
    assert replaced([("durability", "os"), ("retention.ms", "1")]) == {
        "headwater.durability": "os",
        "retention.ms": "1",
    }
    with pytest.raises(RequestError, match="needs a value"):
        replaced([("retention.ms", None)])
