"""What Spark reports, boiled down; and how it is told in a topic that anybody may write to."""

import json
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.run.progress import (
    STALE_MS,
    QueryProgress,
    RunStatus,
    SourceProgress,
    State,
    after_batch,
    lags_of,
    rows_by_source,
)
from headwater.pipelines.run.row_rate import RowRate
from headwater.pipelines.run.status_topic import TOPIC, StatusTopic
from headwater.testing import Broker
from tests.support.eventually import eventually

REPORT: dict[str, Any] = {
    "name": "out",
    "batchId": 7,
    "numInputRows": 10,
    "inputRowsPerSecond": 12.345,
    "processedRowsPerSecond": float("inf"),
    "durationMs": {"addBatch": 80, "triggerExecution": 120},
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 100}, {"numRowsTotal": 4, "memoryUsedBytes": 50}],
    "sources": [
        {
            "numInputRows": 6,
            "startOffset": {"orders": {"0": 1, "1": 5}},
            "endOffset": {"orders": {"0": 5, "1": 7}},
            "latestOffset": {"orders": {"0": 8, "1": 7, "2": 1}},
        },
        {"numInputRows": 1, "endOffset": '{"clicks": {"0": 1}}', "latestOffset": '{"clicks": {"0": 11}}'},
        {"numInputRows": 3, "endOffset": {"logOffset": 3}, "latestOffset": None, "description": "files"},
    ],
}
STATUS = RunStatus(
    pipeline="shop",
    run="run-1",
    state=State.RUNNING,
    host="host",
    pid=42,
    file="/shop.toml",
    started_ms=1_000,
    updated_ms=2_000,
    queries=(QueryProgress("out"),),
)


def test_a_report_of_spark_becomes_progress() -> None:
    before = QueryProgress("out", rows=5, restarts=1, sources=(SourceProgress("orders", 5),))
    progress = after_batch(before, REPORT, {})
    assert progress == QueryProgress(
        query="out",
        batch=7,
        rows=15,
        processed_per_s=83.3,
        batch_ms=120,
        lag=13,
        state_rows=7,
        state_bytes=150,
        watermark="2026-01-01T00:00:00.000Z",
        restarts=1,
        sources=(SourceProgress("orders", 11, lag=3), SourceProgress("clicks", 1, lag=10), SourceProgress("files", 3)),
    )


def test_a_report_may_lack_almost_everything() -> None:
    assert after_batch(QueryProgress("out"), {"batchId": 0}, {}) == QueryProgress("out", batch=0)
    assert lags_of([{"endOffset": "earliest", "latestOffset": {"a": {"0": "x"}}}]) == {}


def test_a_row_counts_once_however_often_spark_read_it() -> None:
    """A query with a topic in two places reads it twice, and Spark counts both."""
    source = {"numInputRows": 20, "startOffset": {"t": {"0": 5}}, "endOffset": {"t": {"0": 15}}}
    assert rows_by_source({"sources": [source]}, {}) == {"t": 10}
    assert rows_by_source({"sources": [{**source, "numInputRows": 9}]}, {}) == {"t": 9}, "one was a transaction's end"
    first = {"sources": [{**source, "startOffset": None}]}
    assert rows_by_source(first, {TopicPartition("t", 0): 7}) == {"t": 8}
    assert rows_by_source(first, {}) == {"t": 15}
    assert rows_by_source({"sources": [source, source]}, {}) == {"t": 10}


def test_a_pipeline_has_read_what_its_queries_read_each_record_once() -> None:
    """Every query reads its topics itself, as that of a step and that of its dead letters do."""
    out = QueryProgress("out", 3, sources=(SourceProgress("t", 100, 7.5, 3), SourceProgress("u", 5, None, None)))
    letters = QueryProgress("letters", 2, sources=(SourceProgress("t", 90, 6.0, 13),))
    status = replace(STATUS, queries=(out, letters, QueryProgress("not yet")))
    assert status.read == (SourceProgress("t", 100, 7.5, 13), SourceProgress("u", 5, None, None))


def test_a_status_of_before_is_read() -> None:
    told = {**json.loads(STATUS.to_json()), "queries": [{"query": "out", "batch": -1, "rows": 0, "rows_per_s": 0.0}]}
    status = RunStatus.from_json(json.dumps(told).encode())
    assert status is not None and status.queries[0].batch is None


def test_a_rate_is_over_the_last_minute_or_all_there_was() -> None:
    pace = RowRate()
    assert pace.per_s(0.0) is None, "nothing is known yet"
    pace.add(300, ended_s=30.0, took_s=30.0)
    assert pace.per_s(30.0) == 10.0, "also of the first batch, which nothing came before"
    assert pace.per_s(60.0) == 5.0, "and less while nothing comes"
    pace.add(6_000, ended_s=700.0, took_s=600.0)
    assert pace.per_s(700.0) == 10.0, "of a batch that took ten minutes only the last minute counts"
    assert pace.per_s(1_000.0) == 0.0
    pace.add(5, ended_s=1_000.0, took_s=0.0)
    assert pace.per_s(1_000.0) == 0.1


def test_a_status_survives_its_way_through_json() -> None:
    told = replace(STATUS, queries=(after_batch(QueryProgress("out"), REPORT, {}),), error="No.", state=State.FAILED)
    assert RunStatus.from_json(told.to_json()) == told
    of_a_later_version = {**json.loads(told.to_json()), "mood": "good"}
    assert RunStatus.from_json(json.dumps(of_a_later_version).encode()) == told


NONSENSE = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["state", "queries", "pipeline", "run"]), inner),
    max_leaves=6,
)


@given(st.binary(max_size=40) | NONSENSE.map(lambda value: json.dumps(value).encode()))
def test_what_is_no_status_is_none(content: bytes) -> None:
    assert RunStatus.from_json(content) is None


@pytest.mark.parametrize("nonsense", [{"pid": "42"}, {"host": None}, {"queries": [{"query": "out", "rows": "many"}]}])
def test_a_status_with_a_field_of_another_kind_is_none(nonsense: dict[str, Any]) -> None:
    assert RunStatus.from_json(json.dumps({**json.loads(STATUS.to_json()), **nonsense}).encode()) is None


def test_a_run_that_tells_nothing_any_more_is_lost() -> None:
    assert STATUS.state_at(STATUS.updated_ms + STALE_MS) is State.RUNNING
    assert STATUS.state_at(STATUS.updated_ms + STALE_MS + 1) is State.LOST
    assert replace(STATUS, state=State.FINISHED).state_at(10**15) is State.FINISHED


@pytest.fixture
def topic(headwater_session: Broker) -> Any:
    with StatusTopic(headwater_session.bootstrap) as topic:
        topic.create()
        topic.create()
        yield topic


def test_the_last_status_of_each_pipeline_is_found(topic: StatusTopic, headwater_session: Broker) -> None:
    with StatusTopic(headwater_session.bootstrap) as runner:
        runner.publish(replace(STATUS, pipeline="a"))
        runner.publish(replace(STATUS, pipeline="b"))
        runner.publish(replace(STATUS, pipeline="a", state=State.STOPPED))
    nonsense = Producer({"bootstrap.servers": headwater_session.bootstrap})
    for key in (b"b", b"\xff", None):
        nonsense.produce(TOPIC, key=key, value=b"{}")
    nonsense.produce(TOPIC, key=b"c", value=replace(STATUS, pipeline="somebody-else").to_json())
    assert nonsense.flush(60) == 0
    found = topic.statuses()
    assert (found["a"].state, found["b"].state) == (State.STOPPED, State.RUNNING)
    assert "c" not in found and "somebody-else" not in found


def test_a_request_to_stop_reaches_the_run_that_it_names(topic: StatusTopic, headwater_session: Broker) -> None:
    with StatusTopic(headwater_session.bootstrap) as runner:
        assert not runner.is_asked_to_stop("s", "run-1"), "it looks from now on"
        topic.ask_to_stop(replace(STATUS, pipeline="s", run="run-0"))
        topic.ask_to_stop(replace(STATUS, pipeline="t", run="run-1"))
        topic.ask_to_stop(replace(STATUS, pipeline="s", run="run-1"))
        eventually(lambda: runner.is_asked_to_stop("s", "run-1"), "the request arrives")


def test_while_no_broker_answers_nobody_asks_to_stop() -> None:
    with StatusTopic("127.0.0.1:1") as topic:
        assert not topic.is_asked_to_stop("s", "run-1")


def test_without_the_topic_there_are_no_pipelines() -> None:
    with Broker(auto_create_topics=False) as broker, StatusTopic(broker.bootstrap) as topic:
        assert topic.statuses() == {}
