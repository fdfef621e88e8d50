"""Decoding in tests: batches in, rows out, in the shape of the pure Python reader."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from headwater.pipelines.source.decoding.decoder import Decoder
from headwater.pipelines.source.decoding.selection import select_batches
from headwater.records.record import Record

TOPIC, PARTITION = "orders", 3
EVERYTHING = 2**62
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


def tables(
    fetched: bytes,
    start: int = 0,
    end: int = EVERYTHING,
    aborted: Sequence[tuple[int, int]] | None = None,
    schema: pa.Schema = SCHEMA,
) -> list[pa.RecordBatch]:
    """What a reader of offsets from `start` up to `end` makes of fetched bytes."""
    selection = select_batches(fetched, start, end, aborted)
    decoder = Decoder(TOPIC, PARTITION, schema)
    return list(decoder.decode(fetched, selection.batches, start, end))


def as_records(found: Iterable[pa.RecordBatch]) -> list[Record]:
    """Times as milliseconds, because Python's end in the year 9999."""
    return [
        Record(key, value, tuple((header["key"], header["value"]) for header in headers or ()), micros // 1000, offset)
        for batch in found
        for key, value, headers, micros, offset in zip(
            batch["key"].to_pylist(),
            batch["value"].to_pylist(),
            batch["headers"].to_pylist(),
            batch["timestamp"].view(pa.int64()).to_pylist(),
            batch["offset"].to_pylist(),
            strict=True,
        )
    ]
