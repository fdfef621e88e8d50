"""Rows as record batches: what the pure Python reader finds in them, where Kafka's clients would have put them."""

from collections import defaultdict
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.errors import UnknownTopic
from headwater.pipelines.sink import batches as batches_module
from headwater.pipelines.sink.batches import PackedBatch, Packing, pack, pieces, stamp_producer
from headwater.pipelines.sink.columns import Columns
from headwater.pipelines.sink.destinations import RUN_ROWS, Destinations
from headwater.pipelines.sink.errors import InvalidRow
from headwater.pipelines.sink.murmur import FEW_KEYS, key_hashes
from headwater.records.batch import BatchHeader, Codec, parse_header, validate
from headwater.records.record import Record, records
from tests.pipelines.arrow_rows import HEADERS

NOW_MS = 1_700_000_000_123
COUNTS = {"orders": 4, "bills": 1}
ALL = Columns(value=1, key=0, topic=2, partition=3, headers=4, timestamp=5)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)


def count_partitions(topic: str) -> int:
    if topic not in COUNTS:
        raise UnknownTopic(topic)
    return COUNTS[topic]


def packed(
    rows: list[dict[str, object]],
    default_topic: str | None = None,
    batch_bytes: int = 1_000_000,
    codec: Codec = Codec.NONE,
    first_run: int = 0,
) -> list[PackedBatch]:
    table = pa.RecordBatch.from_pylist(rows, SCHEMA)
    destinations = Destinations(count_partitions, default_topic, first_run)
    return [batch for group in pack([table], Packing(ALL, batch_bytes, codec), destinations, NOW_MS) for batch in group]


def read(batches: list[PackedBatch]) -> dict[TopicPartition, list[Record]]:
    """By partition, with offsets counted on from batch to batch, as a broker does."""
    found: dict[TopicPartition, list[Record]] = defaultdict(list)
    for to, data in batches:
        header = validate(data)
        assert [record.offset for record in records(data, header)] == list(range(header.record_count))
        found[to] += [record._replace(offset=-1) for record in records(data, header)]
    return found


def header_of(batch: PackedBatch) -> BatchHeader:
    return parse_header(batch.data)


some_bytes = st.none() | st.binary(max_size=200)
a_row = st.fixed_dictionaries(
    {
        "key": some_bytes,
        "value": st.none() | st.text(max_size=200),
        "topic": st.just("orders"),
        "partition": st.integers(0, 3),
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": st.text(max_size=80), "value": some_bytes}), max_size=3),
        "timestamp": st.none() | st.integers(0, 1 << 44).map(lambda ms: ms * 1000),
    }
)


@given(rows=st.lists(a_row, min_size=1, max_size=40), batch_bytes=st.integers(1, 2_000), codec=st.sampled_from(Codec))
@example(rows=[dict.fromkeys(SCHEMA.names) | {"topic": "orders", "partition": 0}], batch_bytes=1, codec=Codec.NONE)
@settings(max_examples=80, deadline=None)
def test_every_row_is_a_record_with_all_that_it_had(
    rows: list[dict[str, object]], batch_bytes: int, codec: Codec
) -> None:
    expected: dict[TopicPartition, list[Record]] = defaultdict(list)
    for row in rows:
        time_us, value = row["timestamp"], row["value"]
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())  # type: ignore[attr-defined]
        expected[TopicPartition("orders", row["partition"])].append(  # type: ignore[arg-type]
            Record(
                row["key"],  # type: ignore[arg-type]
                value.encode() if isinstance(value, str) else None,
                headers,
                NOW_MS if time_us is None else int(str(time_us)) // 1000,
            )
        )
    assert read(packed(rows, batch_bytes=batch_bytes, codec=codec)) == expected


def row(**fields: object) -> dict[str, object]:
    return dict.fromkeys(SCHEMA.names) | {"topic": "orders"} | fields


def test_a_batch_is_as_large_as_allowed_and_one_large_record_has_its_own() -> None:
    values = ["x" * 100] * 50 + ["y" * 5_000] + ["x" * 100] * 50
    batches = packed([row(value=value, partition=0) for value in values], batch_bytes=2_000)
    sizes = [header_of(batch).record_count for batch in batches]
    assert sum(sizes) == 101
    assert all(len(batch.data) <= 2_000 for batch in batches if header_of(batch).record_count > 1)
    assert [size for size, batch in zip(sizes, batches, strict=True) if len(batch.data) > 2_000] == [1]
    assert max(sizes) > 10


def test_the_header_says_when_the_first_and_the_latest_record_were() -> None:
    times = [datetime(2024, 1, day, tzinfo=UTC) for day in (3, 1, 7, 2)]
    (batch,) = packed([row(value="v", partition=1, timestamp=time) for time in times])
    header = header_of(batch)
    assert (header.base_timestamp, header.max_timestamp) == (times[0].timestamp() * 1000, times[2].timestamp() * 1000)


def test_a_key_goes_where_kafkas_clients_put_it() -> None:
    """Known answers of the Java client's own tests."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    hashes = key_hashes(pa.array(list(known), pa.binary())).tolist()
    assert hashes == [hashed & 0x7FFFFFFF for hashed in known.values()]


def test_keys_hash_alike_alone_and_among_many() -> None:
    keys = [bytes([length % 251]) * length for length in (*range(300), 5_001, 70_000)]
    together = key_hashes(pa.array(keys * 2, pa.binary())).tolist()
    assert len(keys) > FEW_KEYS
    assert together == [int(key_hashes(pa.array([key], pa.binary()))[0]) for key in keys] * 2
    assert key_hashes(pa.array(keys, pa.binary()).slice(7, 5)).tolist() == together[7:12]


def test_a_partition_that_is_named_wins_over_the_key() -> None:
    by_key = read(packed([row(key=b"21", value="v")]))
    (usual,) = by_key
    named = (usual.partition + 1) % 4
    assert list(read(packed([row(key=b"21", value="v", partition=named)]))) == [TopicPartition("orders", named)]


def test_rows_without_a_key_fill_one_partition_after_the_other() -> None:
    found = read(packed([row(value=str(number)) for number in range(3 * RUN_ROWS)], first_run=2))
    assert {to.partition: len(taken) for to, taken in found.items()} == {2: RUN_ROWS, 3: RUN_ROWS, 0: RUN_ROWS}
    assert [record.value for record in found[TopicPartition("orders", 2)]] == [b"%d" % n for n in range(RUN_ROWS)]


def test_rows_with_and_without_keys_keep_their_order_in_each_partition() -> None:
    rows = [row(key=b"k%d" % (n % 5) if n % 3 else None, value=str(n)) for n in range(500)]
    for taken in read(packed(rows)).values():
        numbers = [int(record.value or b"") for record in taken]
        assert numbers == sorted(numbers)


def test_each_row_goes_to_the_topic_that_it_names() -> None:
    found = read(packed([row(value="a", partition=2), row(value="b", topic="bills"), row(value="c", partition=2)]))
    assert {to: [record.value for record in taken] for to, taken in found.items()} == {
        TopicPartition("orders", 2): [b"a", b"c"],
        TopicPartition("bills", 0): [b"b"],
    }


def test_the_option_topic_wins_over_the_column() -> None:
    assert list(read(packed([row(value="a")], default_topic="bills"))) == [TopicPartition("bills", 0)]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"topic": None}, "topic is null in 1 of 2 rows"),
        ({"partition": 4}, "partition has 4"),
        ({"partition": -1}, "partition has -1"),
        ({"timestamp": -1_000_000}, "before 1970"),
        ({"headers": [{"key": None, "value": b""}]}, "header without a key"),
    ],
)
def test_a_row_that_cannot_be_a_record_is_refused_with_the_reason(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRow, match=words):
        packed([row(value="fine"), row(value="v") | wrong])


def test_a_topic_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownTopic):
        packed([row(value="v", topic="ordres")])


def test_small_arrow_batches_are_packed_together_and_large_ones_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "CHUNK_ROWS", 100)
    monkeypatch.setattr(batches_module, "CHUNK_BYTES", 2_000)
    small = [pa.record_batch({"v": pa.array([n], pa.int64())}) for n in range(250)]
    assert [piece.num_rows for piece in pieces(iter(small))] == [100, 100, 50]
    large = pa.record_batch({"v": pa.array(range(5_000), pa.int64())})
    cut = list(pieces([large, large.slice(0, 0)]))
    assert max(piece.nbytes for piece in cut) <= 4_000
    assert [n for piece in cut for n in piece.column(0).to_pylist()] == list(range(5_000))


def test_a_stamped_batch_is_a_sound_batch_of_its_producer() -> None:
    (batch,) = packed([row(value="v", partition=0)] * 3, codec=Codec.ZSTD)
    assert stamp_producer(batch.data, 77, 3, 2**31 - 1, is_transactional=True) == 3
    header = validate(batch.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 2**31 - 1)
    assert header.is_transactional
    assert [record.value for record in records(batch.data, header)] == [b"v"] * 3
