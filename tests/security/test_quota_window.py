"""Windows and buckets, against those of Kafka and against models that remember everything."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.quota_window import LONGEST_WAIT_MS, SampledRate, TokenBucket, whole_wait_ms

RUNS = json.loads((Path(__file__).parent / "kafka_windows.json").read_text())["runs"]
steps = st.lists(
    st.tuples(st.sampled_from([0, 1, 300, 999, 1_000, 1_001, 4_000, 10_999, 11_000, 20_000]), st.integers(0, 500)),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
def test_a_rate_and_its_wait_are_kafkas(run: dict[str, list[list[float]]]) -> None:
    rate, limit = SampledRate(), float(str(run["limit"]))
    for now_ms, value, expected, window_ms, wait_ms, _, _ in run["steps"]:
        rate.record(value, int(now_ms))
        assert rate.per_second(int(now_ms)) == pytest.approx(expected)
        assert whole_wait_ms(rate.wait_ms(limit, int(now_ms))) == wait_ms
        room = limit * window_ms / 1_000 - expected * window_ms / 1_000
        assert rate.room(limit, int(now_ms)) == pytest.approx(room, abs=1e-6)


@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
def test_a_bucket_and_its_wait_are_kafkas(run: dict[str, list[list[float]]]) -> None:
    bucket, limit = TokenBucket(11), float(str(run["limit"]))
    for now_ms, value, _, _, _, tokens, wait_ms in run["steps"]:
        bucket.take(value, limit, int(now_ms))
        assert bucket.tokens(limit, int(now_ms)) == pytest.approx(tokens)
        assert whole_wait_ms(bucket.wait_ms(limit, int(now_ms))) == wait_ms


@given(steps)
def test_a_rate_is_what_a_model_finds_that_remembers_all(gaps: list[tuple[int, int]]) -> None:
    """Samples begin with the first record a second after the last began, and count for eleven seconds after their last
    record."""
    rate, now_ms = SampledRate(), 50_000
    samples: list[list[int]] = []
    for gap_ms, value in gaps:
        now_ms += gap_ms
        rate.record(value, now_ms)
        if not samples or now_ms - samples[-1][0] >= 1_000:
            samples.append([now_ms, now_ms, 0])
        samples[-1][1], samples[-1][2] = now_ms, samples[-1][2] + value
        alive = [sample for sample in samples if now_ms - sample[1] < 11_000]
        elapsed_ms = now_ms - alive[0][0]
        window_ms = elapsed_ms + max(10 - elapsed_ms // 1_000, 0) * 1_000
        assert rate.per_second(now_ms) == pytest.approx(sum(sample[2] for sample in alive) * 1_000 / window_ms)


@given(steps)
def test_what_is_taken_back_was_never_there(gaps: list[tuple[int, int]]) -> None:
    one, other, now_ms = SampledRate(), SampledRate(), 0
    for gap_ms, value in gaps:
        now_ms += gap_ms
        one.record(value, now_ms)
        other.record(value, now_ms)
        other.record(700, now_ms)
        other.record(-700, now_ms)
        assert other.per_second(now_ms) == pytest.approx(one.per_second(now_ms))


@given(steps, st.integers(1, 200))
def test_after_the_wait_the_rate_would_be_the_limit(gaps: list[tuple[int, int]], limit: int) -> None:
    rate, now_ms = SampledRate(), 0
    for gap_ms, value in gaps:
        now_ms += gap_ms
        rate.record(value, now_ms)
        wait_ms = rate.wait_ms(limit, now_ms)
        if wait_ms:
            used = limit * 10.0 - rate.room(limit, now_ms)  # of a window of ten seconds
            assert used / (10 + wait_ms / 1_000) == pytest.approx(limit)
        else:
            assert rate.per_second(now_ms) <= limit


def test_worked_waits() -> None:
    rate = SampledRate()
    rate.record(10_000, 0)
    assert rate.wait_ms(1_000, 0) == 0  # ten seconds' worth at once
    rate.record(5_000, 0)
    assert rate.wait_ms(1_000, 0) == 5_000  # 1,500 a second over 10 s
    assert rate.wait_ms(1_000, 500) == pytest.approx(4_500)
    assert rate.wait_ms(1_000, 3_000) == 5_000  # whole seconds fill up those that were given
    assert rate.wait_ms(1_000, 10_999) == pytest.approx(4_001)
    assert rate.wait_ms(1_000, 11_000) == 0  # forgotten


def test_looking_at_a_rate_changes_nothing_but_what_is_too_old() -> None:
    rate = SampledRate()
    assert rate.per_second(0) == 0
    rate.record(100, 0)
    assert [rate.per_second(now_ms) for now_ms in (0, 5_000, 10_000, 10_999)] == [
        10,
        10,
        10,
        pytest.approx(9.0917, abs=1e-4),
    ]
    assert rate.per_second(11_000) == 0


def test_a_limit_holds_from_when_it_is_changed() -> None:
    bucket = TokenBucket(10)
    assert bucket.tokens(5, 0) == 50
    assert bucket.tokens(2, 0) == 20
    bucket.take(30, 2, 0)
    assert bucket.wait_ms(2, 0) == 5_000
    assert bucket.wait_ms(10, 0) == 1_000
    assert bucket.tokens(10, 2_000) == 10


def test_a_bucket_never_has_more_than_its_burst() -> None:
    bucket = TokenBucket(11)
    bucket.take(-5, 1, 0)
    assert bucket.tokens(1, 1_000_000) == 11


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-9])
def test_a_wait_has_an_end_however_small_the_limit(limit: float) -> None:
    rate, bucket = SampledRate(), TokenBucket(10)
    rate.record(2**31, 0)
    bucket.take(2**31, limit, 0)
    assert whole_wait_ms(rate.wait_ms(limit, 0)) == LONGEST_WAIT_MS
    assert whole_wait_ms(bucket.wait_ms(limit, 0)) == LONGEST_WAIT_MS


def test_a_rate_remembers_no_more_than_its_samples() -> None:
    rate = SampledRate()
    for now_ms in range(0, 200_000, 50):
        rate.record(1, now_ms)
    assert len(rate._before) <= 12
