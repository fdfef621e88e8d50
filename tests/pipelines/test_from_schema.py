"""Values in the schema registry's wire format, decoded in Spark: as a column, and as a step with dead letters."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import httpx
import pytest

pytest.importorskip("pyspark")

from headwater.pipelines import from_schema
from headwater.pipelines.errors import InvalidOption
from headwater.pipelines.run.parsing import dead_letters, fitting
from headwater.pipelines.spec.steps import ParseStep
from headwater.testing import Broker
from tests.gateway.gateways import client_of, serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

ORDER = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}  # fmt: skip
ROW = {
    "id": 7, "note": None, "total": Decimal("12.50"), "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "day": date(2026, 1, 2), "tags": ["x", "y"], "counts": {"k": 1}, "ref": "12345678-1234-5678-1234-567812345678",
    "kind": "B",
}  # fmt: skip


class Registry:
    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.url = str(http.base_url)

    def register(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer = self._http.post(f"/subjects/{subject}/versions", json={"schema": text, "schemaType": kind})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["id"])


@pytest.fixture(scope="module")
def registry(headwater_session: Broker) -> Iterator[Registry]:
    with serving(headwater_session.bootstrap) as gateway, client_of(gateway) as http:
        yield Registry(http)


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(schema_id: int, schema: Any, row: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return framed(schema_id, data.getvalue())


def frame_of(spark: "SparkSession", *values: bytes | None) -> "DataFrame":
    rows = [(b"k", value, "t", 0, index) for index, value in enumerate(values)]
    return spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset long")


def test_avro_of_two_versions_becomes_rows_of_the_latest(spark: "SparkSession", registry: Registry) -> None:
    old = {**ORDER, "fields": [field for field in ORDER["fields"] if field["name"] != "note"]}  # type: ignore[index]
    first, second = registry.register("spark-avro-value", old), registry.register("spark-avro-value", ORDER)
    values = [
        avro(first, old, ROW),
        avro(second, ORDER, {**ROW, "note": "n"}),
        b"no schema",
        None,
        framed(second, b"\1"),
    ]
    options = {"registry": registry.url, "subject": "spark-avro-value"}
    column = from_schema("value", "avro", options=options).alias("order")
    found = [row.order for row in frame_of(spark, *values).orderBy("offset").select(column).collect()]
    first_row = found[0].asDict(recursive=True)
    assert first_row.pop("at") is not None
    assert first_row == {key: value for key, value in ROW.items() if key != "at"}
    assert found[1].note == "n" and found[2:] == [None, None, None]


def test_protobuf_becomes_rows(spark: "SparkSession", registry: Registry) -> None:
    schema = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
        message Order { int64 id = 1; repeated string tags = 2; map<string, int32> counts = 3;
            optional string note = 4; google.protobuf.Timestamp at = 5; Kind kind = 6; Inner inner = 7;
            uint64 big = 8; }
        enum Kind { NONE = 0; B = 1; } message Inner { bool is_on = 1; }"""
    schema_id = registry.register("spark-proto-value", schema, "PROTOBUF")
    payload = bytes.fromhex("08071201781a050a016b10012a02080530013a02080140ffffffffffffffffff01")
    values = [framed(schema_id, b"\0" + payload), framed(schema_id, b"\2\2" + payload), framed(schema_id, b"\0\xff")]
    options = {"registry": registry.url, "subject": "spark-proto-value"}
    column = from_schema("value", "protobuf", options=options).alias("order")
    found = [row.order for row in frame_of(spark, *values).orderBy("offset").select(column).collect()]
    row = found[0].asDict(recursive=True)
    assert row.pop("at") is not None
    assert row == {
        "id": 7, "tags": ["x"], "counts": {"k": 1}, "note": None, "kind": "B", "inner": {"is_on": True},
        "big": Decimal(2**64 - 1),
    }  # fmt: skip
    assert found[1:] == [None, None], "another message, and bytes that are none"


def test_json_of_the_registry_is_read_without_its_prefix(spark: "SparkSession", registry: Registry) -> None:
    column = from_schema("value", "json", "id long", {"registry": registry.url}).alias("order")
    rows = frame_of(spark, framed(1, b'{"id": 5}'), b'{"id": 6}').orderBy("offset").select(column).collect()
    assert [row.order.id if row.order is not None else None for row in rows] == [5, None]


def test_a_step_gives_rows_and_sends_the_others_to_the_dead_letters(spark: "SparkSession", registry: Registry) -> None:
    schema = {"type": "record", "name": "Step", "fields": [{"name": "id", "type": "long"}]}
    schema_id = registry.register("spark-step-value", schema)
    frame = frame_of(
        spark, avro(schema_id, schema, {"id": 1}), b"no schema", framed(2_000_000_000, b"\2"), framed(schema_id, b"")
    )
    parse = ParseStep(
        input="in",
        format="avro",
        registry=registry.url,
        subject="spark-step-value",
        keep=("offset",),
        dead_letters="bad",
    )
    assert [tuple(row) for row in fitting(frame, parse, "step s").collect()] == [(0, 1)]
    letters = dead_letters(frame, parse, "pipeline", "s").collect()
    reasons = [
        {header.key: bytes(header.value).decode() for header in letter.headers}["headwater.dlq.reason"]
        for letter in letters
    ]
    assert [bytes(letter.value)[:2] for letter in letters] == [b"no", b"\0w", b"\0\0"]
    assert reasons[0].startswith("It has no schema: its first byte is 110")
    assert reasons[1] == "Schema 2000000000 is unknown."
    assert f"It does not hold to schema {schema_id}" in reasons[2]


def test_what_cannot_be_asked_for_is_said_before_anything_runs(registry: Registry) -> None:
    for format, options, reason in (
        ("avro", {}, "needs the registry"),
        ("avro", {"registry": "ftp://x"}, "URL"),
        ("avro", {"registry": registry.url}, "subject"),
        ("avro", {"registry": registry.url, "subject": "no-such-subject"}, "no schema for no-such-subject"),
        ("thrift", {}, "no format"),
    ):
        with pytest.raises(InvalidOption, match=reason):
            from_schema("value", format, options=options)
    tree = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"], "default": None}]}
    registry.register("spark-tree-value", tree)
    with pytest.raises(InvalidOption, match="holds itself"):
        from_schema("value", "avro", options={"registry": registry.url, "subject": "spark-tree-value"})
