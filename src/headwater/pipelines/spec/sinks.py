"""Where rows go. Each kind of sink is a dataclass; its fields and those of `SinkDelivery` are the keys of its table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.pipelines.spec.keys import (
    byte_size,
    choice,
    count,
    duration,
    expression,
    expressions,
    identifier,
    identifiers,
    mapping,
    option_table,
    optional,
    required,
    switch,
    text,
    text_with_variables,
    topic_name,
    topic_options,
)
from headwater.pipelines.spec.triggers import Trigger, read_trigger

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SinkDelivery:
    """Settings that every sink has."""

    input: str = required(identifier, "The source or step to write.")
    mode: str = optional(choice("append", "update", "complete"), "Which rows of a result Spark hands over.", "append")
    trigger: Trigger | None = optional(read_trigger, "Another than the pipeline's.")  # noqa: RUF009 (a field)


@dataclass(frozen=True, slots=True)
class TopicSink:
    """Records of a topic, which is made if it is missing; readers of committed records see whole batches, once."""

    topic: str = required(topic_name, "The topic to write.")
    format: str = optional(
        choice("json", "raw"), "json makes each row the value; raw takes the columns key, value, headers.", "json"
    )
    key: str | None = optional(expression, "With json: an SQL expression for the record's key.")
    headers: Mapping[str, str] = mapping(expressions, "With json: SQL expressions for headers.")
    partitions: int | None = optional(count, "Of the topic, if it has to be made; the broker's default, unless given.")
    exactly_once: bool = optional(switch, "One transaction for each batch; false is faster, at least once.", True)
    bootstrap: str | None = optional(text_with_variables, "Another cluster than the pipeline's.")
    options: Mapping[str, str] = mapping(topic_options, "More options of the headwater sink.")


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """Files that each belong to one batch; a batch that is repeated replaces its files."""

    path: str = required(text_with_variables, "The directory.")
    partition_by: tuple[str, ...] = optional(identifiers, "Columns that become directories.", ())
    compact_every_ms: int | None = optional(
        duration, "How often small files are joined; never, unless given.", file_name="compact_every"
    )
    compact_below_bytes: int = optional(
        byte_size, "Files smaller than this are joined.", 32 * MIB, file_name="compact_below"
    )
    compact_to_bytes: int = optional(byte_size, "What joined files have at most.", 256 * MIB, file_name="compact_to")


@dataclass(frozen=True, slots=True)
class DeltaSink:
    """A table of Delta Lake, each batch once; needs the package deltalake."""

    path: str = required(text_with_variables, "The table's directory or URL.")
    partition_by: tuple[str, ...] = optional(identifiers, "Columns to partition a new table by.", ())
    options: Mapping[str, str] = mapping(option_table, "Storage options of the deltalake package.")


@dataclass(frozen=True, slots=True)
class IcebergSink:
    """A table of Iceberg, each batch once; needs the package pyiceberg."""

    table: str = required(text, 'The table, as in "shop.orders".')
    catalog: Mapping[str, str] = mapping(option_table, "Properties of pyiceberg's catalog.")


@dataclass(frozen=True, slots=True)
class TableSink:
    """A table of PostgreSQL or SQLite, through their Python drivers."""

    url: str = required(text_with_variables, '"postgresql://user:${PASSWORD}@host/db" or "sqlite:path".')
    table: str = required(text, "The table, which exists.")
    key: tuple[str, ...] = optional(identifiers, "A row replaces the one with the same key; without, it is added.", ())
    order: str | None = optional(identifier, "With a key: of rows of one batch the one with the largest counts.")
    delete_when: str | None = optional(expression, "With a key: an SQL condition for rows that delete theirs.")


@dataclass(frozen=True, slots=True)
class JdbcSink:
    """A table of any database whose JDBC driver is in spark.jars."""

    url: str = required(text_with_variables, "jdbc:…")
    table: str = required(text, "The table, which exists.")
    key: tuple[str, ...] = optional(identifiers, "Rows are merged by it (SQL MERGE); without, they are added.", ())
    order: str | None = optional(identifier, "With a key: of rows of one batch the one with the largest counts.")
    driver: str | None = optional(text, "The class of the driver.")
    user: str | None = optional(text_with_variables, "The user.")
    password: str | None = optional(text_with_variables, 'The password: "${NAME}" takes it from the environment.')
    options: Mapping[str, str] = mapping(option_table, "More options of Spark's JDBC writer.")


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """JSON lines on stdout."""

    rows: int = optional(count, "Of each batch; of further rows only the number is shown.", 100)


@dataclass(frozen=True, slots=True)
class WebhookSink:
    """Rows as JSON arrays, posted to an address, at least once."""

    url: str = required(text_with_variables, "http:// or https://")
    headers: Mapping[str, str] = mapping(option_table, "Headers of each request.")
    rows_per_request: int = optional(count, "At most so many in one array.", 100)
    timeout_ms: int = optional(duration, "For one request.", 10_000, file_name="timeout")
    max_attempts: int = optional(count, "For one request; then the query stops.", 5)


@dataclass(frozen=True, slots=True)
class PythonSink:
    """A function that is called with each batch, a DataFrame, and the batch's number."""

    function: str = required(text, 'Where it is, as in "alerts:send".')


@dataclass(frozen=True, slots=True)
class DecoratedSink:
    """A function of a Python pipeline, called like that of PythonSink."""

    function: Callable[..., Any]


SinkKind = (
    TopicSink
    | ParquetSink
    | DeltaSink
    | IcebergSink
    | TableSink
    | JdbcSink
    | ConsoleSink
    | WebhookSink
    | PythonSink
    | DecoratedSink
)
SINK_KINDS: dict[str, type] = {
    "topic": TopicSink,
    "parquet": ParquetSink,
    "delta": DeltaSink,
    "iceberg": IcebergSink,
    "table": TableSink,
    "jdbc": JdbcSink,
    "console": ConsoleSink,
    "webhook": WebhookSink,
    "python": PythonSink,
}
