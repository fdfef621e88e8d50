"""A batch query as Spark plans it, without Spark: from where to where, by which filters, and what is refused."""

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import StringType, StructType

from headwater.pipelines.data_source import HeadwaterDataSource
from headwater.pipelines.errors import BrokerUnreachable, DataLost, InvalidColumns, InvalidOption, UnknownTopic
from headwater.pipelines.source.batch_reader import FilteringBatchReader
from headwater.pipelines.source.columns import whole_schema
from headwater.pipelines.source.options import source_options
from tests.pipelines.topics import Topics, judged_topics, numbered, values_of


@pytest.fixture
def topics(request: pytest.FixtureRequest) -> Topics:
    return judged_topics(request)


def batch_query(options: dict[str, str]) -> DataSourceReader:
    return HeadwaterDataSource(options).reader(whole_schema(include_headers=False))


def test_a_batch_query_reads_from_its_start_to_its_end(topics: Topics) -> None:
    topic = topics.create(2)
    topics.produce(topic, numbered(10), timestamp=1_000)
    topics.produce(topic, numbered(10, first=10), timestamp=2_000)

    def found(**more: str) -> list[bytes]:
        reader = batch_query(topics.options(topic, **more))
        return values_of(reader, reader.partitions())

    assert found() == numbered(20)
    ends = json.dumps({topic: {"0": 7, "1": -1}})
    starts = json.dumps({topic: {"0": 5, "1": -2}})
    assert found(startingOffsets=starts, endingOffsets=ends) == numbered(2, first=5)
    assert found(startingTimestamp="1001", startingOffsetsByTimestampStrategy="latest") == numbered(10, first=10)
    assert found(endingTimestamp="1001") == numbered(10)
    assert found(
        startingTimestamp="0", startingOffsetsByTimestampStrategy="latest", endingTimestamp="9999"
    ) == numbered(20)


def test_a_batch_query_does_not_wait_for_an_end_that_is_not_there(topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(5))
    ends = {"endingOffsets": json.dumps({topic: {"0": 50}})}
    with pytest.raises(DataLost, match=r"Offsets 5 to 49 .* ends at 5"):
        batch_query(topics.options(topic, **ends)).partitions()
    careless = batch_query(topics.options(topic, failOnDataLoss="false", **ends))
    assert values_of(careless, careless.partitions()) == numbered(5)
    starts = {"startingOffsets": json.dumps({topic: {"0": 9}})}
    with pytest.raises(InvalidOption, match=r"has 9 for .* after the end, 5"):
        batch_query(topics.options(topic, **starts)).partitions()


def test_a_task_without_a_range_reads_nothing(topics: Topics) -> None:
    reader = batch_query(topics.options(topics.create()))
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


# Mistakes


def test_a_topic_that_does_not_exist_is_named(topics: Topics) -> None:
    with pytest.raises(UnknownTopic, match=rf"no topic nope at {topics.bootstrap}\. Create it first"):
        batch_query(topics.options("nope")).partitions()


def test_a_broker_that_is_not_there_is_named() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.default.api.timeout.ms": "0"}
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1\) cannot be reached"):
        batch_query(options).partitions()


@pytest.mark.parametrize(
    ("ddl", "words"), [("value binary, body string", "no column body"), ("value string", "is binary, not string")]
)
def test_columns_that_a_topic_does_not_have_are_refused(ddl: str, words: str) -> None:
    schema = StructType()
    for part in ddl.split(", "):
        name, kind = part.split()
        known = {field.name: field.dataType for field in whole_schema(include_headers=False)}
        schema = schema.add(name, StringType() if kind == "string" else known[name])
    with pytest.raises(InvalidColumns, match=words):
        HeadwaterDataSource({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}).reader(schema)


# Transactions


def test_a_reader_of_committed_data_reads_no_aborted_records(topics: Topics) -> None:
    topic = topics.create()
    topics.produce_transaction(topic, numbered(3), is_committed=True)
    topics.produce_transaction(topic, numbered(3, first=100), is_committed=False)
    topics.produce(topic, numbered(2, first=200))

    def found(level: str) -> list[bytes]:
        reader = batch_query({**topics.options(topic), "kafka.isolation.level": level})
        return values_of(reader, reader.partitions())

    assert found("read_committed") == numbered(3) + numbered(2, first=200)
    assert found("read_uncommitted") == numbered(3) + numbered(3, first=100) + numbered(2, first=200)


# Filters


def filtered(options: dict[str, str], *filters: Filter) -> tuple[list[bytes], list[Filter]]:
    """What is read with these filters, and those that Spark would have to apply after us."""
    reader = FilteringBatchReader(whole_schema(include_headers=False), source_options(options, is_streaming=False))
    left = list(reader.pushFilters(list(filters)))
    return values_of(reader, reader.partitions()), left


def moment(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def test_filters_on_offsets_partitions_and_topics_are_exact(topics: Topics) -> None:
    topic, other = topics.create(2), topics.create()
    topics.produce(topic, numbered(10))
    topics.produce(topic, numbered(10, first=100), partition=1)
    topics.produce(other, numbered(5, first=1000))
    options = topics.options(f"{topic},{other}")
    for filters, expected in (
        ([EqualTo(("topic",), other)], numbered(5, first=1000)),
        ([In(("topic",), ("x", topic)), EqualTo(("partition",), 1)], numbered(10, first=100)),
        ([In(("partition",), (1, 2)), GreaterThan(("offset",), 7)], numbered(2, first=108)),
        ([EqualTo(("topic",), topic), LessThanOrEqual(("offset",), 0)], [b"value 0", b"value 100"]),
        ([EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 3), LessThan(("offset",), 5)], numbered(2, 103)),
        ([EqualTo(("partition",), 1), EqualTo(("offset",), 4), IsNotNull(("offset",))], numbered(1, 104)),
        ([EqualTo(("partition",), 0), EqualTo(("partition",), 1)], []),
        ([EqualTo(("offset",), -1)], []),
    ):
        assert filtered(options, *filters) == (expected, [])


def test_a_filter_on_time_says_where_to_start_and_spark_looks_again(topics: Topics) -> None:
    topic = topics.create()
    for first, timestamp_ms in ((0, 1_000), (10, 3_000), (20, 2_000)):
        topics.produce(topic, numbered(10, first), timestamp=timestamp_ms)
    options = topics.options(topic)
    from_then = GreaterThan(("timestamp",), moment(2_500))
    assert filtered(options, from_then) == (numbered(20, first=10), [from_then])
    within = [GreaterThanOrEqual(("timestamp",), moment(2_500)), GreaterThan(("timestamp",), moment(2_500))]
    assert filtered(options, *within) == (numbered(20, first=10), within), "both, though they name the same millisecond"
    never = GreaterThanOrEqual(("timestamp",), moment(4_000))
    assert filtered(options, never) == ([], [never])


def test_what_says_nothing_of_offsets_is_left_to_spark(topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(3))
    left = [
        EqualTo(("key",), b"k"),
        IsNotNull(("key",)),
        LessThan(("timestamp",), moment(1)),
        GreaterThan(("timestamp",), datetime(2020, 1, 1)),
        Not(EqualTo(("partition",), 0)),
        IsNull(("offset",)),
    ]
    assert filtered(topics.options(topic), *left) == (numbered(3), left)


def test_filters_are_not_taken_unless_the_query_and_spark_want_it(topics: Topics) -> None:
    reader = batch_query(topics.options("t", pushFilters="true"))
    assert not isinstance(reader, FilteringBatchReader), "this process does not plan with filters"
