"""Rows into a table of PostgreSQL or SQLite, through their Python drivers: no jar is needed.

With a key a row replaces the one with the same key, so that a batch which is repeated changes nothing. Each partition
of a batch is one transaction. Moments are written in UTC, and say so.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.spec.sinks import TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

SQLITE = "sqlite:"
DELETES = "_headwater_deletes"
ROWS_AT_ONCE = 1_000
LOCK_TIMEOUT_S = 30.0


def to_table(sink: TableSink, url: str) -> "Callable[[DataFrame, int], None]":
    """Raises PipelineFailed if the driver is missing. `url` is the sink's, with the path of a file made absolute."""
    if not url.startswith(SQLITE):
        _psycopg()

    def write(batch: "DataFrame", batch_id: int) -> None:
        from pyspark.sql import functions as f

        columns = {field.name: field.dataType for field in batch.schema.fields}
        rows = newest_of_each_key(batch, sink.key, sink.order) if sink.key else batch
        if sink.delete_when is not None:
            rows = rows.withColumn(DELETES, f.coalesce(f.expr(sink.delete_when).cast("boolean"), f.lit(False)))
        if url.startswith(SQLITE):
            rows = rows.coalesce(1)  # it has one writer at a time
        elif sink.key:
            rows = rows.repartition(*sink.key)  # two tasks with rows of one key could wait for each other
        rows.foreachPartition(WriteRows(url, sink.table, columns, sink.key, sink.delete_when is not None))

    return write


def newest_of_each_key(batch: "DataFrame", key: Sequence[str], order: str | None) -> "DataFrame":
    """One row of each key: the one with the largest value of `order`, any without one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if order is None:
        return batch.dropDuplicates(list(key))
    numbered = f.row_number().over(Window.partitionBy(*key).orderBy(f.col(order).desc_nulls_last()))
    return batch.withColumn("_headwater_number", numbered).where("_headwater_number = 1").drop("_headwater_number")


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Writes the rows of one partition; shipped to the executors."""

    url: str
    table: str
    columns: "Mapping[str, DataType]"
    key: tuple[str, ...]
    has_deletes: bool

    def __call__(self, rows: Iterable[Any]) -> None:
        upsert = upsert_statement(
            self.table, tuple(self.columns), self.key, "?" if self.url.startswith(SQLITE) else "%s"
        )
        delete = delete_statement(self.table, self.key, "?" if self.url.startswith(SQLITE) else "%s")
        written: list[tuple[Any, ...]] = []
        deleted: list[tuple[Any, ...]] = []
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            for row in rows:
                if self.has_deletes and row[DELETES]:
                    deleted.append(self._values(row, self.key))
                else:
                    written.append(self._values(row, self.columns))
                if len(written) + len(deleted) >= ROWS_AT_ONCE:
                    _run(cursor, ((upsert, written), (delete, deleted)))
                    written, deleted = [], []
            _run(cursor, ((upsert, written), (delete, deleted)))
            connection.commit()

    def _values(self, row: Any, names: Iterable[str]) -> tuple[Any, ...]:
        return tuple(plain_value(in_utc(row[name], self.columns[name])) for name in names)

    def _connect(self) -> Any:
        try:
            if self.url.startswith(SQLITE):
                return sqlite3.connect(self.url.removeprefix(SQLITE), timeout=LOCK_TIMEOUT_S)
            return _psycopg().connect(self.url)
        except Exception as error:
            raise PipelineFailed(f"The database does not answer: {error}".strip()) from error


def upsert_statement(table: str, columns: Sequence[str], key: Sequence[str], mark: str) -> str:
    names = ", ".join(map(quoted, columns))
    insert = f"INSERT INTO {quoted_table(table)} ({names}) VALUES ({', '.join([mark] * len(columns))})"
    if not key:
        return insert
    rest = [f"{quoted(name)} = excluded.{quoted(name)}" for name in columns if name not in key]
    then = f"UPDATE SET {', '.join(rest)}" if rest else "NOTHING"
    return f"{insert} ON CONFLICT ({', '.join(map(quoted, key))}) DO {then}"


def delete_statement(table: str, key: Sequence[str], mark: str) -> str:
    return f"DELETE FROM {quoted_table(table)} WHERE " + " AND ".join(f"{quoted(name)} = {mark}" for name in key)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quoted_table(name: str) -> str:
    return ".".join(map(quoted, name.split(".")))


def in_utc(value: Any, kind: "DataType") -> Any:
    """The value with its moments in UTC. Spark hands a timestamp to Python as the clock on this machine's wall shows
    it, without a zone; a timestamp_ntz has none, and stays as it is."""
    kind_: Any = kind
    match kind.typeName():
        case _ if value is None:
            return None
        case "timestamp":
            return value.astimezone(UTC)
        case "array":
            return [in_utc(each, kind_.elementType) for each in value]
        case "map":
            return {name: in_utc(each, kind_.valueType) for name, each in value.items()}
        case "struct":
            return {field.name: in_utc(value[field.name], field.dataType) for field in kind_.fields}
        case _:
            return value


def plain_value(value: object) -> Any:
    """As both drivers take it: nested values as JSON, exact numbers and times as texts."""
    match value:
        case None | bool() | int() | float() | str() | bytes():
            return value
        case bytearray():
            return bytes(value)
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case _:
            return json.dumps(_nested(value), ensure_ascii=False)


def _nested(value: object) -> Any:
    if isinstance(value, dict):
        return {str(name): _nested(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_nested(each) for each in value]
    return plain_value(value) if not isinstance(value, bytes | bytearray) else bytes(value).hex()


def _run(cursor: Any, statements: Iterable[tuple[str, list[tuple[Any, ...]]]]) -> None:
    for statement, rows in statements:
        if rows:
            try:
                cursor.executemany(statement, rows)
            except Exception as error:
                raise PipelineFailed(f"The database refuses a row: {str(error).strip()}") from error


def _psycopg() -> Any:
    import importlib

    try:
        return importlib.import_module("psycopg")
    except ImportError:
        raise PipelineFailed(
            "Writing to PostgreSQL needs its Python driver.", 'Install it with `pip install "psycopg[binary]"`.'
        ) from None
