"""Topic configs parse as Kafka's do, or the refusal names key, value and what is allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.settings.topic_config import BrokerDefaults, ConfigCandidate, TopicConfig, candidates, canonical
from headwater.broker.settings.topic_keys import BROKER_NAMES, TOPIC_KEYS
from headwater.broker.settings.topic_name import check_no_collision, check_topic_name
from headwater.model.config_key import ConfigSource
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import segment_id
from headwater.model.replica import Durability
from headwater.records.compression import LZ4_LEVEL

DEFAULTS = BrokerDefaults()


def parse(**overrides: str) -> TopicConfig:
    return TopicConfig.parse({name.replace("_", "."): value for name, value in overrides.items()}, DEFAULTS)


def test_the_defaults_are_kafkas() -> None:
    config = parse()
    assert config.retention_ms == 7 * 24 * 3600 * 1000
    assert config.retention_bytes == -1
    assert config.segment_bytes == 1 << 30
    assert config.max_message_bytes == 1_048_588
    assert config.message_timestamp_after_max_ms == 3_600_000
    assert config.min_insync_replicas == 1
    assert config.compression_type == "producer"
    assert config.is_deleted and not config.is_compacted
    assert not config.uses_log_append_time
    assert config.durability is Durability.SYNC


def test_an_override_holds_for_its_key_alone() -> None:
    config = parse(
        retention_ms="-1", message_timestamp_type="LogAppendTime", preallocate="TRUE", segment_bytes=" 1024 "
    )
    assert (config.retention_ms, config.preallocate, config.segment_bytes) == (-1, True, 1024)
    assert config.uses_log_append_time
    assert config.max_message_bytes == parse().max_message_bytes


def test_no_override_costs_no_new_object() -> None:
    assert parse() is parse()


@pytest.mark.parametrize("text", ["compact,delete", "delete, compact", "compact,delete "])
def test_a_topic_may_be_compacted_and_deleted(text: str) -> None:
    config = parse(cleanup_policy=text)
    assert config.is_compacted and config.is_deleted


def test_a_topic_without_a_cleanup_policy_is_neither_compacted_nor_deleted() -> None:
    config = parse(cleanup_policy="")
    assert not config.is_compacted and not config.is_deleted


def test_throttled_replicas_are_a_list_all_or_none() -> None:
    for text, found in (("", set()), ("*", {"*"}), ("0:1, 12:3", {"0:1", "12:3"}), ("0:1," * 9_000 + "0:1", {"0:1"})):
        config = TopicConfig.parse({"leader.replication.throttled.replicas": text}, DEFAULTS)
        assert config.leader_replication_throttled_replicas == found


def test_keys_of_remote_storage_take_what_asks_for_nothing() -> None:
    for name in ("remote.log.copy.disable", "remote.log.delete.on.disable"):
        for value in ("true", "false"):
            TopicConfig.parse({name: value, "remote.storage.enable": "false"}, DEFAULTS)


def test_the_level_is_that_of_the_codec_in_force() -> None:
    assert parse(compression_type="producer", compression_gzip_level="9").compression_level is None
    assert parse(compression_type="gzip").compression_level is None
    assert parse(compression_type="gzip", compression_gzip_level="9").compression_level == 9
    assert parse(compression_type="lz4").compression_level == LZ4_LEVEL
    assert parse(compression_type="zstd", compression_zstd_level="-7").compression_level == -7


def test_segments_are_closed_up_to_the_jitter_before_their_age() -> None:
    config = TopicConfig.parse({"segment.ms": "1000", "segment.jitter.ms": "300"}, DEFAULTS)
    ages_ms = {config.roll_age_ms(segment_id(0, random_bits)) for random_bits in range(1000)}
    assert ages_ms == set(range(700, 1001))
    assert config.roll_age_ms(segment_id(7, 5)) == config.roll_age_ms(segment_id(7, 5))
    assert config.least_roll_age_ms == 700
    wide = TopicConfig.parse({"segment.ms": "10", "segment.jitter.ms": "300"}, DEFAULTS)
    assert {wide.roll_age_ms(segment_id(0, bits)) for bits in range(100)} == set(range(11))
    assert DEFAULTS.topic.roll_age_ms(segment_id(0, 12345)) == DEFAULTS.topic.segment_ms


def test_durability_has_a_short_name_on_input() -> None:
    assert parse(durability="os").durability is Durability.OS
    assert canonical({"durability": "os"}) == {"headwater.durability": "os"}
    with pytest.raises(RequestError, match="twice"):
        canonical({"durability": "os", "headwater.durability": "os"})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("retention.ms", "-2", "whole numbers from -1 up"),
        ("retention.ms", "1e3", "whole numbers from -1 up"),
        ("retention.ms", "1_000", "whole numbers from -1 up"),
        ("retention.ms", "٣", "whole numbers from -1 up"),
        ("retention.ms", "", "whole numbers from -1 up"),
        ("retention.ms", "9223372036854775808", "whole numbers from -1 up"),
        ("retention.ms", "9" * 5000, "at most 4096 characters"),
        ("segment.bytes", "1023", "whole numbers from 1024 up"),
        ("segment.bytes", "2147483648", "whole numbers from 1024 up"),
        ("segment.ms", "0", "whole numbers from 1 up"),
        ("cleanup.policy", ",", "delete, compact"),
        ("cleanup.policy", "delete,", "delete, compact"),
        ("cleanup.policy", "compact,compact", "without repetition"),
        ("cleanup.policy", "Delete", "delete, compact"),
        ("compression.type", "lzma", "uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "from 1 to 9, and -1"),
        ("compression.gzip.level", "10", "from -1 to 9"),
        ("compression.zstd.level", "23", "from -131072 to 22"),
        ("message.timestamp.type", "createtime", "CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "1.1", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "from 0 to 1"),
        ("min.insync.replicas", "0", "from 1 up"),
        ("preallocate", "yes", "true or false"),
        ("remote.storage.enable", "true", "only false"),
        ("headwater.durability", "none", "sync, os"),
        ("leader.replication.throttled.replicas", "0:x", "<partition>:<broker>"),
        ("leader.replication.throttled.replicas", "*:1", "<partition>:<broker>"),
        ("follower.replication.throttled.replicas", "*,0:1", "<partition>:<broker>"),
        ("follower.replication.throttled.replicas", "1:2," * 40_000, "at most 131072 characters"),
    ],
)
def test_a_bad_value_is_refused_with_key_value_and_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(RequestError) as caught:
        TopicConfig.parse({name: value}, DEFAULTS)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert name in caught.value.message
    assert value[:40] in caught.value.message
    assert allowed in caught.value.message
    assert len(caught.value.message) < 300


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(RequestError, match=r"retention\.millis") as caught:
        TopicConfig.parse({"retention.millis": "1"}, DEFAULTS)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "did you mean retention.ms?" in caught.value.message
    with pytest.raises(RequestError):
        TopicConfig.parse({"message.format.version": "3.0"}, DEFAULTS)


def test_a_key_without_a_value_is_refused() -> None:
    with pytest.raises(RequestError, match="needs a value"):
        TopicConfig.parse({"retention.ms": None}, DEFAULTS)


def test_the_compaction_lags_must_not_cross() -> None:
    assert parse(min_compaction_lag_ms="5", max_compaction_lag_ms="5").min_compaction_lag_ms == 5
    with pytest.raises(RequestError, match=r"max\.compaction\.lag\.ms") as caught:
        parse(min_compaction_lag_ms="6", max_compaction_lag_ms="5")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_where_a_value_comes_from_is_told_the_one_in_force_first() -> None:
    defaults = BrokerDefaults({"retention.ms": "5"})
    assert candidates("retention.ms", {"retention.ms": "9"}, defaults) == [
        ConfigCandidate("retention.ms", "9", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ConfigCandidate("log.retention.ms", "5", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigCandidate("log.retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert [c.source for c in candidates("segment.ms", {}, defaults)] == [ConfigSource.DEFAULT_CONFIG]


def test_every_key_parses_its_own_default_and_says_what_it_is_for() -> None:
    for key in TOPIC_KEYS.values():
        key.parse(key.default)
        assert key.doc.endswith(".")
    assert BROKER_NAMES["log.roll.ms"] == "segment.ms"


@given(st.dictionaries(st.sampled_from(sorted(TOPIC_KEYS)) | st.text(max_size=20), st.text(max_size=30), max_size=5))
def test_any_text_parses_or_is_refused_as_invalid_config(overrides: dict[str, str]) -> None:
    try:
        TopicConfig.parse(overrides, DEFAULTS)
    except RequestError as error:
        assert error.code is ErrorCode.INVALID_CONFIG


# Names


@pytest.mark.parametrize("name", ["a", "a.b_c-D9", "...", "_", "__consumer_offsets", "x" * 249])
def test_names_that_kafka_takes_are_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "a\x00", "x" * 250])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_two_topics_may_not_differ_only_in_dots_and_underscores() -> None:
    check_no_collision("a.b", ["a.b", "a-b", "ab", "a.b.c"])
    with pytest.raises(RequestError, match=r"collides with the topic 'a_b'") as caught:
        check_no_collision("a.b", ["x", "a_b"])
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
