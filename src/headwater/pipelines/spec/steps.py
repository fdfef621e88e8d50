"""What happens to rows on their way. Each kind of step is a dataclass whose fields are the keys of its table.

`reads` gives the names that a step takes its rows from, each with the key that names it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.pipelines.spec.keys import (
    choice,
    count,
    duration,
    expression,
    expressions,
    identifier,
    identifiers,
    optional,
    query,
    required,
    schema,
    text,
    text_with_variables,
    topic_name,
)
from headwater.pipelines.spec.sql_inputs import relations


@dataclass(frozen=True, slots=True)
class InputName:
    """A source or step that a step or sink reads, as the file names it."""

    name: str
    key: str
    line: int = 0
    """Within the text of the key, from 0."""
    is_certain: bool = True
    """False: only Spark knows whether the query reads it."""


Reads = tuple[InputName, ...]


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A query; what it selects from are sources and other steps."""

    sql: str = required(query, "The query.")

    @property
    def reads(self) -> Reads:
        first = {relation.name: relation for relation in reversed(relations(self.sql))}
        return tuple(InputName(name, "sql", each.line, each.is_certain) for name, each in reversed(first.items()))


@dataclass(frozen=True, slots=True)
class ParseStep:
    """Bytes become columns. What does not fit goes to a topic of dead letters with the reason, or fails the query."""

    input: str = required(identifier, "The source or step to read.")
    format: str = required(
        choice("json", "csv", "text", "avro", "protobuf"), "What the bytes are: json, csv, text, avro or protobuf."
    )
    schema: str | None = optional(
        schema, 'The columns, as in "id string not null, amount double"; text, avro and protobuf have none.'
    )
    registry: str | None = optional(
        text_with_variables, "The schema registry's URL: of avro, protobuf, and json in its wire format."
    )
    registry_token: str | None = optional(text_with_variables, "A token that the registry asks for.")
    subject: str | None = optional(text, 'avro, protobuf: whose latest schema gives the columns, as in "orders-value".')
    message: str | None = optional(text, "protobuf: the message, if it is not the first of its file.")
    column: str = optional(identifier, "The column with the bytes.", "value")
    keep: tuple[str, ...] = optional(identifiers, "Columns of the input to keep.", ())
    dead_letters: str | None = optional(topic_name, "The topic for records that do not fit.")
    bad_records: str = optional(choice("fail", "drop"), "What to do with them when no topic is given.", "fail")

    @property
    def reads(self) -> Reads:
        return (InputName(self.input, "input"),)


@dataclass(frozen=True, slots=True)
class WatermarkStep:
    """Rows older than the newest seen by more than the delay are late: state may forget what only they could change."""

    input: str = required(identifier, "The source or step to read.")
    time: str = required(identifier, "The column with the time of the event.")
    delay_ms: int = required(duration, "How late a row may be.", file_name="delay")

    @property
    def reads(self) -> Reads:
        return (InputName(self.input, "input"),)


@dataclass(frozen=True, slots=True)
class WindowStep:
    """Aggregates over windows of time. Columns: window_start, window_end, those of `by`, and the aggregates."""

    input: str = required(identifier, "The source or step to read.")
    time: str = required(identifier, "The column with the time of the event.")
    aggregates: Mapping[str, str] = required(expressions, 'Columns to compute, as in { n = "count(*)" }.')
    size_ms: int | None = optional(duration, "How long a window is.", file_name="size")
    slide_ms: int | None = optional(duration, "How far the next one is, if not where this ends.", file_name="slide")
    gap_ms: int | None = optional(duration, "Instead of a size: how long a session may pause.", file_name="gap")
    by: tuple[str, ...] = optional(identifiers, "Columns to group by.", ())
    watermark_ms: int | None = optional(duration, "How late a row may be.", file_name="watermark")

    @property
    def reads(self) -> Reads:
        return (InputName(self.input, "input"),)


@dataclass(frozen=True, slots=True)
class JoinStep:
    """Two streams, or a stream and a table. In `on`, the sides are called left and right."""

    left: str = required(identifier, "The one side.")
    right: str = required(identifier, "The other side.")
    on: str | None = optional(expression, 'The condition, as in "left.id = right.order_id".')
    using: tuple[str, ...] = optional(identifiers, "Or columns that both sides have.", ())
    how: str = optional(choice("inner", "left", "right", "full", "left_semi", "left_anti"), "The join.", "inner")
    left_time: str | None = optional(identifier, "Two streams: the left side's time of the event.")
    right_time: str | None = optional(identifier, "Two streams: the right side's.")
    within_ms: int | None = optional(duration, "Two streams: how far they lie apart at most.", file_name="within")
    watermark_ms: int | None = optional(duration, "Two streams: how late rows may be.", file_name="watermark")

    @property
    def reads(self) -> Reads:
        return (InputName(self.left, "left"), InputName(self.right, "right"))


@dataclass(frozen=True, slots=True)
class DeduplicateStep:
    """The first row of each key; a key is forgotten when the watermark has passed it."""

    input: str = required(identifier, "The source or step to read.")
    by: tuple[str, ...] = required(identifiers, "Columns that make rows the same.")
    time: str | None = optional(identifier, "The column with the time of the event.")
    watermark_ms: int | None = optional(duration, "How far the same rows lie apart at most.", file_name="watermark")

    @property
    def reads(self) -> Reads:
        return (InputName(self.input, "input"),)


@dataclass(frozen=True, slots=True)
class PythonStep:
    """A function from DataFrames to a DataFrame, in a module beside the file or an installed one."""

    function: str = required(text, 'Where it is, as in "enrich:add_country".')
    inputs: tuple[str, ...] = required(identifiers, "The sources and steps that it takes, in order.")

    @property
    def reads(self) -> Reads:
        return tuple(InputName(name, "inputs") for name in self.inputs)


@dataclass(frozen=True, slots=True)
class StatefulStep:
    """A StatefulProcessor of Spark (transformWithState), called for each key with its rows and its state."""

    input: str = required(identifier, "The source or step to read.")
    processor: str = required(text, 'The class, as in "fraud:CardWatch".')
    by: tuple[str, ...] = required(identifiers, "Columns of the key.")
    output: str = required(schema, 'The columns that it gives, as in "card string, score double".')
    mode: str = optional(choice("append", "update"), "Whether a later row replaces an earlier one.", "append")
    timers: str = optional(choice("none", "processing", "event"), "The time that its timers follow.", "none")

    @property
    def reads(self) -> Reads:
        return (InputName(self.input, "input"),)


@dataclass(frozen=True, slots=True)
class RateLimitStep:
    """At most so many rows a second, in one task: for what comes after it, such as a webhook."""

    input: str = required(identifier, "The source or step to read.")
    rows_per_second: int = required(count, "At most so many.")

    @property
    def reads(self) -> Reads:
        return (InputName(self.input, "input"),)


@dataclass(frozen=True, slots=True)
class DecoratedStep:
    """A function of a Python pipeline; its parameters are named after what it reads."""

    function: Callable[..., Any]
    inputs: tuple[str, ...]

    @property
    def reads(self) -> Reads:
        return tuple(InputName(name, "function") for name in self.inputs)


StepKind = (
    SqlStep
    | ParseStep
    | WatermarkStep
    | WindowStep
    | JoinStep
    | DeduplicateStep
    | PythonStep
    | StatefulStep
    | RateLimitStep
    | DecoratedStep
)
STEP_KINDS: dict[str, type] = {
    "sql": SqlStep,
    "parse": ParseStep,
    "watermark": WatermarkStep,
    "window": WindowStep,
    "join": JoinStep,
    "deduplicate": DeduplicateStep,
    "python": PythonStep,
    "stateful": StatefulStep,
    "rate_limit": RateLimitStep,
}
