"""Options and columns of queries that write: what they mean, and what is said when they are wrong."""

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.pipelines.errors import InvalidColumns, InvalidOption
from headwater.pipelines.sink.columns import Columns, sink_columns
from headwater.pipelines.sink.options import SinkOptions, sink_options
from headwater.pipelines.sink.writers import refuse_overwriting
from headwater.records.batch import Codec

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}


def options(is_streaming: bool = True, **given: str) -> SinkOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return sink_options({**BROKER, **named}, is_streaming)


def test_exactly_once_is_the_default_of_streams_and_of_jobs() -> None:
    for is_streaming in (True, False):
        assert options(is_streaming).is_exactly_once
        assert not options(is_streaming, exactlyOnce="false").is_exactly_once


def test_options_of_kafkas_producer_have_their_meaning_here() -> None:
    given = options(kafka__compression__type="zstd", kafka__batch__size="65536", kafka__transaction__timeout__ms="9000")
    assert (given.codec, given.batch_bytes, given.transaction_timeout_ms) == (Codec.ZSTD, 65536, 9000)
    assert options(kafka__acks="all", kafka__linger__ms="5", kafka__enable__idempotence="true") == options()


def test_options_for_spark_itself_are_left_to_it() -> None:
    assert options(checkpointLocation="/x", queryName="q", path="p") == options()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topik": "t"}, "topik is unknown. Did you mean topic"),
        ({"subscribe": "t"}, "subscribe is unknown. Known are"),
        ({"kafka__lingering": "1"}, "kafka.lingering is unknown"),
        ({"exactlyOnce": "maybe"}, "exactlyOnce is 'maybe'"),
        ({"topic": ""}, "topic is empty"),
        ({"compression": "brotli"}, "compression is 'brotli'"),
        ({"kafka__acks": "1"}, "all replicas"),
        ({"kafka__transactional__id": "x"}, "option transactionalId"),
        ({"compression": "lz4", "kafka__compression__type": "zstd"}, "say the same"),
        ({"transactionalId": "x", "exactlyOnce": "false"}, "exactlyOnce is false"),
        ({"transactionalId": ""}, "1 to 200 characters"),
        ({"batchId": "3", "transactionalId": "x"}, "Spark numbers the batches"),
        ({"batchBytes": "0"}, "whole number from 1"),
        ({"maxStagedBytes": "99999999999"}, "whole number from 1"),
    ],
)
def test_an_option_that_is_wrong_is_refused_with_the_reason(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        options(**given)


def test_a_numbered_job_says_whose_number_it_is() -> None:
    with pytest.raises(InvalidOption, match="needs the option transactionalId"):
        options(is_streaming=False, batchId="3")
    assert options(is_streaming=False, batchId="3", transactionalId="daily").batch_id == 3
    with pytest.raises(InvalidOption, match="queryId says whose batch it is"):
        options(is_streaming=False, queryId="q", transactionalId="daily")


def test_the_broker_must_be_named() -> None:
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers is missing"):
        sink_options({}, is_streaming=True)


def header_list(value: DataType) -> ArrayType:
    return ArrayType(StructType([StructField("key", StringType()), StructField("value", value)]))


TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "long": LongType(),
    "timestamp": TimestampType(),
    "headers": header_list(BinaryType()),
    "headers-of-strings": header_list(StringType()),
    "map": MapType(StringType(), BinaryType()),
}


def columns(schema: str, has_default_topic: bool = True) -> Columns:
    pairs = [column.split() for column in schema.split(", ")]
    return sink_columns(StructType([StructField(name, TYPES[type_]) for name, type_ in pairs]), has_default_topic)


def test_columns_are_found_by_name_in_any_order_and_case() -> None:
    schema = "Timestamp timestamp, VALUE binary, key string, topic string, offset long, partition int"
    assert columns(schema) == Columns(value=1, key=2, topic=3, partition=5, timestamp=0)


def test_a_frame_that_was_read_from_a_topic_can_be_written() -> None:
    read = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
        "headers headers"
    )
    assert columns(read, has_default_topic=False).headers == 7


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("key string", "column value is missing; there are: key"),
        ("value int", "value is int; it must be binary or string"),
        ("value string, key long", "key is bigint"),
        ("value string, partition long", "partition is bigint; it must be int"),
        ("value string, timestamp string", "it must be timestamp"),
        ("value string, headers map", "array<struct<key: string, value: binary>>"),
        ("value string, headers headers-of-strings", "array<struct<key: string, value: binary>>"),
        ("value string, valeu string", "valeu has no place in a record"),
        ("value string, Value string", "two columns Value"),
    ],
)
def test_a_column_that_is_wrong_is_refused_with_the_reason(schema: str, words: str) -> None:
    with pytest.raises(InvalidColumns, match=words):
        columns(schema)


def test_it_must_be_said_where_rows_go() -> None:
    with pytest.raises(InvalidColumns, match="option topic, or add a column topic"):
        columns("value string", has_default_topic=False)


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(InvalidOption, match="append"):
        refuse_overwriting(True)
    refuse_overwriting(False)
