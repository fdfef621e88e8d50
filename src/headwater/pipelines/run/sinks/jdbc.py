"""Rows into a table of any database that has a JDBC driver.

Without a key they are added, at least once. With one, a batch goes to a table beside the target and is merged from
there in one statement (SQL:2003 MERGE, which PostgreSQL 15, Oracle, SQL Server, DB2, H2 and Derby know), so that a
batch which is repeated changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.pipelines.run.sinks.table import newest_of_each_key
from headwater.pipelines.spec.sinks import JdbcSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING_SUFFIX = "_headwater_batch"


def to_jdbc(sink: JdbcSink) -> "Callable[[DataFrame, int], None]":
    options = writer_options(sink)

    def write(batch: "DataFrame", batch_id: int) -> None:
        if not sink.key:
            batch.write.format("jdbc").mode("append").options(**options, dbtable=sink.table).save()
            return
        staging = sink.table + STAGING_SUFFIX
        rows = newest_of_each_key(batch, sink.key, sink.order)
        rows.write.format("jdbc").mode("overwrite").options(**options, dbtable=staging).save()
        staged = staged_names(batch.sparkSession, sink.url, batch.columns)
        execute(batch.sparkSession, options, staging, merge_statement(sink.table, staging, staged, sink.key))

    return write


def writer_options(sink: JdbcSink) -> dict[str, str]:
    given = {"url": sink.url, "driver": sink.driver, "user": sink.user, "password": sink.password}
    return {**{name: value for name, value in given.items() if value is not None}, **sink.options}


def staged_names(spark: "SparkSession", url: str, columns: Sequence[str]) -> dict[str, str]:
    """The columns as Spark has called them when it made the table beside the target: quoted, as this database does."""
    jvm: Any = spark._jvm
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(url)
    return {name: str(dialect.quoteIdentifier(name)) for name in columns}


def merge_statement(table: str, staging: str, staged: Mapping[str, str], key: Sequence[str]) -> str:
    """Names of the target are not quoted: every database folds them its own way, as it did when the table was made."""
    same = " AND ".join(f"t.{name} = s.{staged[name]}" for name in key)
    rest = [f"{name} = s.{quoted}" for name, quoted in staged.items() if name not in key]
    update = f"WHEN MATCHED THEN UPDATE SET {', '.join(rest)} " if rest else ""
    values = ", ".join(f"s.{quoted}" for quoted in staged.values())
    insert = f"WHEN NOT MATCHED THEN INSERT ({', '.join(staged)}) VALUES ({values})"
    return f"MERGE INTO {table} t USING {staging} s ON {same} {update}{insert}"


def execute(spark: "SparkSession", options: dict[str, str], table: str, statement: str) -> None:
    """By Spark's own way to a connection: it finds drivers in spark.jars, which Java's does not."""
    jvm: Any = spark._jvm
    scala_options = jvm.PythonUtils.toScalaMap({**options, "dbtable": table})
    jdbc_options = jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcOptionsInWrite(scala_options)
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
    connection = dialect.createConnectionFactory(jdbc_options).apply(-1)
    try:
        run = connection.createStatement()
        run.executeUpdate(statement)
        run.close()
        if not connection.getAutoCommit():
            connection.commit()
    finally:
        connection.close()
