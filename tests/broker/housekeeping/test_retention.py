from headwater.broker.housekeeping.retention import ConsumedPosition, retention_start
from headwater.broker.settings.topic_config import BrokerDefaults, TopicConfig
from headwater.metadata.keys import SealedSegment
from headwater.model.ids import SegmentId, StoreId, segment_id

OPEN = segment_id(1_000, 0)


def config(**overrides: str) -> TopicConfig:
    return TopicConfig.parse({name.replace("_", "."): value for name, value in overrides.items()}, BrokerDefaults())


def sealed(number: int, size: int, max_timestamp: int, created_ms: int = 0) -> SealedSegment:
    id_ = SegmentId(segment_id(created_ms, number))
    return SealedSegment(
        id=id_,
        base=number * 10,
        end=number * 10 + 10,
        epoch=0,
        epoch_start=0,
        replicas=(StoreId("s"),),
        size_bytes=size,
        max_timestamp=max_timestamp,
        crc32c=None,
    )


def test_segments_whose_newest_record_is_too_old_go() -> None:
    segments = [sealed(0, 100, 100), sealed(1, 100, 200), sealed(2, 100, 950)]
    assert retention_start(segments, OPEN, 0, config(retention_ms="500"), 1_000) == 20


def test_an_old_segment_behind_a_young_one_stays() -> None:
    segments = [sealed(0, 100, 900), sealed(1, 100, 100)]
    assert retention_start(segments, OPEN, 0, config(retention_ms="500"), 1_000) is None


def test_the_oldest_segments_go_while_the_rest_is_still_large_enough() -> None:
    segments = [sealed(0, 100, 900), sealed(1, 100, 900), sealed(2, 100, 900)]
    assert retention_start(segments, OPEN, 50, config(retention_bytes="200"), 1_000) == 10
    assert retention_start(segments, OPEN, 50, config(retention_bytes="250"), 1_000) == 10
    assert retention_start(segments, OPEN, 50, config(retention_bytes="251"), 1_000) is None


def test_minus_one_keeps_everything() -> None:
    segments = [sealed(0, 100, 0)]
    assert retention_start(segments, OPEN, 0, config(retention_ms="-1"), 10**15) is None


def test_a_topic_that_is_only_compacted_loses_nothing_by_age() -> None:
    segments = [sealed(0, 100, 0)]
    assert retention_start(segments, OPEN, 0, config(retention_ms="1", cleanup_policy="compact"), 10**15) is None


def test_a_topic_without_a_cleanup_policy_loses_nothing_by_age_or_size() -> None:
    kept = config(retention_ms="1", retention_bytes="1", cleanup_policy="")
    assert retention_start([sealed(0, 100, 0), sealed(1, 100, 0)], OPEN, 0, kept, 10**15) is None


def test_records_without_a_timestamp_are_as_old_as_the_end_of_their_segment() -> None:
    segments = [sealed(0, 100, -1, created_ms=0), sealed(1, 100, -1, created_ms=400)]
    assert retention_start(segments, OPEN, 0, config(retention_ms="500"), 950) == 10


def test_a_log_of_one_open_segment_stays() -> None:
    assert retention_start([], OPEN, 100, config(retention_ms="500", retention_bytes="10"), 10**15) is None


def test_a_subscription_keeps_what_it_has_not_consumed_for_as_long_as_it_asks() -> None:
    segments = [sealed(0, 100, 100), sealed(1, 100, 200), sealed(2, 100, 300)]
    settings = config(retention_ms="10")
    assert retention_start(segments, OPEN, 0, settings, 1_000, [ConsumedPosition(15, 850)]) == 10
    assert retention_start(segments, OPEN, 0, settings, 1_000, [ConsumedPosition(15, 700)]) == 20
    assert retention_start(segments, OPEN, 0, settings, 1_000, [ConsumedPosition(15, 600)]) == 30
    assert retention_start(segments, OPEN, 0, settings, 1_000, [ConsumedPosition(5, -1)]) is None
    assert retention_start(segments, OPEN, 0, settings, 1_000, [ConsumedPosition(30, -1)]) == 30


def test_the_topic_limits_what_subscriptions_may_keep() -> None:
    segments = [sealed(0, 100, 100), sealed(1, 100, 700)]
    settings = config(retention_ms="10", headwater_subscription_retention_limit_ms="500")
    assert retention_start(segments, OPEN, 0, settings, 1_000, [ConsumedPosition(0, -1)]) == 10


def test_a_subscription_also_outlasts_retention_by_size() -> None:
    segments = [sealed(0, 100, 900), sealed(1, 100, 900)]
    settings = config(retention_bytes="10")
    assert retention_start(segments, OPEN, 50, settings, 1_000, [ConsumedPosition(10, 500)]) == 10


def test_consumed_segments_go_when_the_last_subscription_is_through() -> None:
    segments = [sealed(0, 100, 990), sealed(1, 100, 990), sealed(2, 100, 990)]
    settings = config(headwater_retention="consumed")
    assert retention_start(segments, OPEN, 0, settings, 1_000, [ConsumedPosition(30), ConsumedPosition(15)]) == 10
    assert retention_start(segments, OPEN, 0, settings, 1_000, [ConsumedPosition(30)]) == 30
    assert retention_start(segments, OPEN, 0, settings, 1_000, []) is None


def test_nothing_goes_that_reaches_past_what_is_stable() -> None:
    segments = [sealed(0, 100, 100), sealed(1, 100, 100), sealed(2, 100, 100)]
    settings = config(retention_ms="10", retention_bytes="0", headwater_retention="consumed")
    consumed = [ConsumedPosition(100)]
    for stable_end, start in [(0, None), (9, None), (10, 10), (29, 20), (30, 30), (99, 30)]:
        assert retention_start(segments, OPEN, 0, settings, 1_000, consumed, stable_end) == start
