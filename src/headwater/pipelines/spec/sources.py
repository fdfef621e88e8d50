"""Where rows come from. Each kind of source is a dataclass whose fields are the keys of its table in the file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.pipelines.spec.keys import (
    choice,
    count,
    mapping,
    option_table,
    optional,
    required,
    schema,
    switch,
    text,
    text_with_variables,
    topic_name,
    topic_options,
)
from headwater.pipelines.spec.starts import LATEST, Start, read_start

DEFAULT_MAX_RECORDS = 1_000_000
"""Of a topic in one batch: a pipeline that starts far behind catches up in batches that fit into memory."""
DEFAULT_MAX_FILES = 1_000
TOPIC_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}


@dataclass(frozen=True, slots=True)
class TopicSource:
    """Records of a topic. Columns: key, value, topic, partition, offset, timestamp, timestampType, headers."""

    topic: str = required(topic_name, "The topic to read.")
    start: Start = optional(read_start, "Where to begin without a checkpoint.", LATEST, file_name="from")  # noqa: RUF009
    stream: bool = optional(switch, "false reads what is there once, as a table.", True)
    max_records: int = optional(count, "Of one batch.", DEFAULT_MAX_RECORDS)
    isolation: str = optional(
        choice("read_committed", "read_uncommitted"), "Whether to wait for transactions.", "read_committed"
    )
    fail_on_data_loss: bool = optional(switch, "Whether records that retention took stop the query.", True)
    bootstrap: str | None = optional(text_with_variables, "Another cluster than the pipeline's.")
    options: Mapping[str, str] = mapping(topic_options, "More options of the headwater source.")


@dataclass(frozen=True, slots=True)
class FilesSource:
    """Files of a directory, as a stream of new ones or as a table."""

    path: str = required(text_with_variables, "A directory or a pattern of files.")
    format: str = required(choice("json", "csv", "parquet"), "json, csv or parquet.")
    schema: str | None = optional(schema, 'The columns, as in "id string, amount double"; a stream needs it.')
    stream: bool = optional(switch, "false reads the files as a table; true waits for new ones.", True)
    max_files: int = optional(count, "Of one batch.", DEFAULT_MAX_FILES)
    options: Mapping[str, str] = mapping(option_table, "More options of Spark's reader.")


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """A table, read again for each batch that joins it."""

    url: str = required(text_with_variables, "jdbc:…")
    table: str | None = optional(text, "The table to read.")
    query: str | None = optional(text, "Or a query.")
    driver: str | None = optional(text, "The class of the driver; its jar goes to spark.jars.")
    user: str | None = optional(text_with_variables, "The user.")
    password: str | None = optional(text_with_variables, 'The password: "${NAME}" takes it from the environment.')
    options: Mapping[str, str] = mapping(option_table, "More options of Spark's JDBC reader.")


@dataclass(frozen=True, slots=True)
class PythonSource:
    """A function of a Python pipeline: it takes the Spark session and returns a DataFrame."""

    function: Callable[..., Any]


SourceKind = TopicSource | FilesSource | JdbcSource | PythonSource
SOURCE_KINDS: dict[str, type] = {"topic": TopicSource, "files": FilesSource, "jdbc": JdbcSource}
