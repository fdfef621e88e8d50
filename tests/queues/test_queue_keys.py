import pytest

from headwater.model.errors import ErrorCode, RequestError
from headwater.queues.queue_keys import QUEUE_KEYS, parse_queue_settings
from headwater.queues.settings import IsolationLevel, OffsetReset, QueueSettings, RedeliveryBackoff, ResetTo, ShareOrder


def test_the_defaults_of_the_table_are_those_of_the_settings() -> None:
    assert parse_queue_settings({}) == QueueSettings()
    assert parse_queue_settings({name: key.default for name, key in QUEUE_KEYS.items()}) == QueueSettings()


def test_every_key_reaches_its_setting() -> None:
    settings = parse_queue_settings(
        {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": "15000",
            "share.delivery.count.limit": "3",
            "share.partition.max.record.locks": "500",
            "share.isolation.level": "read_committed",
            "share.heartbeat.interval.ms": "1000",
            "share.session.timeout.ms": "9000",
            "errors.deadletterqueue.topic.name": "dead",
            "errors.deadletterqueue.copy.record.enable": "FALSE",
            "headwater.share.order": "key",
            "headwater.share.fair": "false",
            "headwater.retry.backoff.ms": "100",
            "headwater.retry.backoff.max.ms": "5000",
            "headwater.retry.backoff.list": "1, 2,3",
            "headwater.filter": "key prefix 'a'",
            "headwater.record.ttl.ms": "60000",
        }
    )
    assert settings == QueueSettings(
        record_lock_duration_ms=15_000,
        delivery_count_limit=3,
        max_record_locks=500,
        heartbeat_interval_ms=1_000,
        session_timeout_ms=9_000,
        isolation=IsolationLevel.READ_COMMITTED,
        offset_reset=OffsetReset(ResetTo.EARLIEST),
        order=ShareOrder.KEY,
        is_fair=False,
        backoff=RedeliveryBackoff(100, 5_000, (1, 2, 3)),
        dead_letter_topic="dead",
        copies_dead_letters=False,
        filter="key prefix 'a'",
        record_ttl_ms=60_000,
    )
    assert settings.has_dead_letters
    assert settings.reads_every_record


def test_a_group_keeps_the_defaults_of_its_broker() -> None:
    broker = QueueSettings(record_lock_duration_ms=5_000, backoff=RedeliveryBackoff(7, 70))
    settings = parse_queue_settings({"share.delivery.count.limit": "9"}, broker)
    assert (settings.record_lock_duration_ms, settings.delivery_count_limit) == (5_000, 9)
    assert settings.backoff == RedeliveryBackoff(7, 70)


def test_a_backoff_without_a_limit_is_always_the_same() -> None:
    assert parse_queue_settings({"headwater.retry.backoff.ms": "250"}).backoff == RedeliveryBackoff(250, 250)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("PT1H", 3_600_000), ("P1DT1M", 86_460_000), ("PT0.25S", 250), ("PT1.5S", 1_500), ("P7D", 604_800_000)],
)
def test_a_group_may_begin_a_while_ago(text: str, ms: int) -> None:
    reset = parse_queue_settings({"share.auto.offset.reset": f"by_duration:{text}"}).offset_reset
    assert reset == OffsetReset(ResetTo.DURATION, ms)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration"),
        ("share.auto.offset.reset", "by_duration:"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:P1DT"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "by_duration:PT" + "9" * 400 + "S"),
        ("share.record.lock.duration.ms", "999"),
        ("share.record.lock.duration.ms", "1_000"),
        ("share.record.lock.duration.ms", "9" * 5_000),
        ("share.delivery.count.limit", "0"),
        ("share.delivery.count.limit", "-1"),
        ("share.delivery.count.limit", ""),
        ("share.partition.max.record.locks", "99999"),
        ("share.isolation.level", "serializable"),
        ("share.session.timeout.ms", "abc"),
        ("share.session.timeout.ms", "5000"),
        ("errors.deadletterqueue.topic.name", "no spaces"),
        ("errors.deadletterqueue.topic.name", "__consumer_offsets"),
        ("errors.deadletterqueue.topic.name", ".."),
        ("errors.deadletterqueue.copy.record.enable", "yes"),
        ("headwater.share.order", "offset"),
        ("headwater.share.fair", "1"),
        ("headwater.retry.backoff.ms", "-5"),
        ("headwater.retry.backoff.list", "1,,2"),
        ("headwater.retry.backoff.list", ",".join(["1"] * 101)),
        ("headwater.filter", "key = "),
        ("headwater.record.ttl.ms", "0"),
        ("retention.ms", "1"),
    ],
)
def test_an_illegal_value_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(RequestError) as raised:
        parse_queue_settings({key: value})
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert key in (raised.value.message or "") or key == "share.session.timeout.ms"
    assert len(raised.value.message or "") < 400


def test_the_limit_of_a_backoff_is_no_less_than_its_first_step() -> None:
    with pytest.raises(RequestError, match="no less"):
        parse_queue_settings({"headwater.retry.backoff.ms": "10", "headwater.retry.backoff.max.ms": "5"})
