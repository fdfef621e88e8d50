"""Rows into databases: statements as they are sent, Derby through JDBC, and what is said when a package is missing."""

import calendar
import json
import sqlite3
import time
import uuid
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, LongType, StructType, TimestampNTZType, TimestampType

from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.run.sinks.jdbc import execute, merge_statement, to_jdbc
from headwater.pipelines.run.sinks.lakes import to_delta, to_iceberg
from headwater.pipelines.run.sinks.table import (
    DELETES,
    ROWS_AT_ONCE,
    WriteRows,
    delete_statement,
    plain_value,
    to_table,
    upsert_statement,
)
from headwater.pipelines.run.sinks.webhook import bodies, shown_url
from headwater.pipelines.spec.sinks import DeltaSink, IcebergSink, JdbcSink, TableSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time


def test_a_key_turns_an_insert_into_an_upsert() -> None:
    insert = 'INSERT INTO "shop"."orders" ("id", "a""b") VALUES (?, ?)'
    assert upsert_statement("shop.orders", ["id", 'a"b'], [], "?") == insert
    assert upsert_statement("shop.orders", ["id", 'a"b'], ["id"], "?") == (
        insert + ' ON CONFLICT ("id") DO UPDATE SET "a""b" = excluded."a""b"'
    )
    assert upsert_statement("t", ["id"], ["id"], "%s").endswith('ON CONFLICT ("id") DO NOTHING')
    assert delete_statement("t", ["a", "b"], "%s") == 'DELETE FROM "t" WHERE "a" = %s AND "b" = %s'


def test_values_become_what_every_driver_takes() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert [plain_value(value) for value in (None, 1, "a", Decimal("1.50"), bytearray(b"x"), at)] == [
        *(None, 1, "a", "1.50", b"x", "2026-01-01T00:00:00+00:00")
    ]
    assert plain_value({"a": [Decimal("1.5"), {"at": at, "raw": b"\x00\xff"}]}) == (
        '{"a": ["1.5", {"at": "2026-01-01T00:00:00+00:00", "raw": "00ff"}]}'
    )


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_moments_are_written_in_utc_whatever_the_zone_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """The rows are made by PySpark's own types, as they are in the process of a task."""
    at_ = TimestampType()
    nested_kind = StructType().add("at", at_).add("more", ArrayType(at_)).add("none", at_)
    kind = StructType().add("id", LongType()).add("at", at_).add("wall", TimestampNTZType()).add("nested", nested_kind)
    # In New York the clock is put back at six, and shows half past one twice.
    moments = [datetime(2026, 11, 1, hour, 30, tzinfo=UTC) for hour in range(4, 9)]
    internal = [calendar.timegm(moment.timetuple()) * 1_000_000 for moment in moments]
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        rows = [kind.fromInternal((id, at, at, (at, [at], None))) for id, at in enumerate(internal)]
        database = sqlite3.connect(tmp_path / "t.db")
        with closing(database):
            database.execute("create table t (id integer primary key, at text, wall text, nested text)")
            columns = {field.name: field.dataType for field in kind.fields}
            WriteRows(f"sqlite:{tmp_path / 't.db'}", "t", columns, ("id",), has_deletes=False)(rows)
            found = database.execute("select at, wall, nested from t order by id").fetchall()
    finally:
        monkeypatch.undo()
        time.tzset()
    for moment, (at, wall, nested) in zip(moments, found, strict=True):
        assert (at, wall) == (moment.isoformat(), moment.replace(tzinfo=None).isoformat())
        assert json.loads(nested) == {"at": moment.isoformat(), "more": [moment.isoformat()], "none": None}


def test_a_partition_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    with sqlite3.connect(file) as database:
        database.execute("create table t (id integer primary key check (id < 5000))")
    database.close()
    write = WriteRows(f"sqlite:{file}", "t", {"id": LongType()}, ("id",), has_deletes=True)
    rows: list[dict[str, Any]] = [{"id": id, DELETES: False} for id in range(2 * ROWS_AT_ONCE)]
    with pytest.raises(PipelineFailed, match="The database refuses a row: CHECK constraint failed"):
        write([*rows, {"id": 9_999, DELETES: False}])
    assert count(file) == 0
    write(rows)
    write([*rows, *({"id": id, DELETES: True} for id in range(10))])
    assert count(file) == 2 * ROWS_AT_ONCE - 10


def count(file: Path) -> int:
    database = sqlite3.connect(file)
    try:
        return int(database.execute("select count(*) from t").fetchone()[0])
    finally:
        database.close()


def test_jdbc_merges_by_key_and_adds_without(spark: "SparkSession") -> None:
    url = f"jdbc:derby:memory:{uuid.uuid4().hex};create=true"
    execute(spark, {"url": url}, "people", "create table people (id int primary key, name varchar(40))")
    merging = to_jdbc(
        JdbcSink(url=url, table="people", key=("id",), options={"createTableColumnTypes": "name varchar(40)"})
    )
    for names in ("zero one", "nil one"):
        batch = spark.createDataFrame(list(enumerate(names.split())), "id int, name string")
        merging(batch, 0)
    to_jdbc(JdbcSink(url=url, table="people"))(spark.createDataFrame([(5, "five")], "id int, name string"), 1)
    people = spark.read.format("jdbc").options(url=url, dbtable="people").load().collect()
    assert sorted(map(tuple, people)) == [(0, "nil"), (1, "one"), (5, "five")]


def test_a_merge_names_staged_columns_as_spark_made_them() -> None:
    assert merge_statement("t", "t_batch", {"id": '"id"', "n": '"n"'}, ["id"]) == (
        'MERGE INTO t t USING t_batch s ON t.id = s."id" WHEN MATCHED THEN UPDATE SET n = s."n" '
        'WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s."id", s."n")'
    )


def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in ("deltalake", "pyiceberg", "pyiceberg.catalog", "psycopg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PipelineFailed, match="pip install deltalake"):
        to_delta(DeltaSink(path="x"), "x", str)
    with pytest.raises(PipelineFailed, match="pip install pyiceberg"):
        to_iceberg(IcebergSink(table="a.b"), str)
    with pytest.raises(PipelineFailed, match=r"pip install \"psycopg\[binary\]\""):
        to_table(TableSink(url="postgresql://x", table="t"), "postgresql://x")


def test_requests_to_a_webhook_hold_so_many_rows_and_not_too_many_bytes() -> None:
    assert list(bodies(iter(["1", "2", "3"]), 2)) == [b"[1,2]", b"[3]"]
    assert list(bodies(iter([]), 2)) == []
    large = "9" * (5 * 1024 * 1024)
    assert [len(body) for body in bodies(iter([large, large, "1"]), 10)] == [len(large) + 2, len(large) + 4]


def test_an_address_is_shown_without_its_secrets() -> None:
    assert shown_url("https://user:pw@host:8443/hook/a?token=x#y") == "https://host:8443/hook/a"
