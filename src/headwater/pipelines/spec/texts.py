"""Schemas, queries and expressions of a pipeline file: what is wrong with them, and which columns each part gives.

Columns go from sources through steps to sinks as far as they are known without Spark; where they are not, no name of a
column is wrong.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from headwater.pipelines.spec import keys
from headwater.pipelines.spec.declarations import Declaration
from headwater.pipelines.spec.graph import Graph
from headwater.pipelines.spec.kinds import KINDS
from headwater.pipelines.spec.mistakes import Mistake, TextFault, suggestion
from headwater.pipelines.spec.pipeline import Draft, PipelinePart, SinkPart
from headwater.pipelines.spec.schema_text import LETTERS, DeclaredSchema, read_schema
from headwater.pipelines.spec.sinks import DeltaSink, JdbcSink, ParquetSink, TableSink, TopicSink
from headwater.pipelines.spec.sources import TOPIC_COLUMNS, FilesSource, PythonSource, TopicSource
from headwater.pipelines.spec.sql_text import Columns, Tables, judge_expression, judge_query
from headwater.pipelines.spec.steps import (
    DecoratedStep,
    DeduplicateStep,
    JoinStep,
    ParseStep,
    PythonStep,
    RateLimitStep,
    SqlStep,
    StatefulStep,
    WatermarkStep,
    WindowStep,
)

FUNCTIONS_FROM = ("spark.sql.extensions", "spark.sql.catalog", "spark.jars", "spark.plugins", "spark.driver.extraClass")
"""How settings of Spark begin with which functions may come that are not Spark's own."""
CHAR_AS_STRING = "spark.sql.legacy.charVarcharAsString"


def mistaken_texts(draft: Draft, graph: Graph) -> list[Mistake]:
    reader = _Reader(draft, graph)
    reader.run()
    return reader.mistakes


class _Reader:
    def __init__(self, draft: Draft, graph: Graph) -> None:
        self.mistakes: list[Mistake] = []
        self._draft = draft
        self._graph = graph
        pipeline = draft.pipeline
        runs_python = any(
            isinstance(part.does, PythonSource | PythonStep | DecoratedStep | StatefulStep)
            for part in (*pipeline.sources, *pipeline.steps)
        )
        is_extended = any(name.startswith(FUNCTIONS_FROM) for name in pipeline.settings.spark)
        self._may_have_functions = runs_python or is_extended or bool(draft.unread)
        self._columns: dict[str, Columns | None] = {}
        """Of sources and steps, by their names."""

    def run(self) -> None:
        for source in self._draft.pipeline.sources:
            self._columns[source.name] = self._of_source(source)
        ordered = {step.name for step in self._graph.steps_in_order}
        for step in self._graph.steps_in_order:
            self._columns[step.name] = self._of_step(step)
        for sink in self._draft.pipeline.sinks:
            self._sink(sink)
        in_circles = [step.declared for step in self._draft.pipeline.steps if step.name not in ordered]
        for declared in (*in_circles, *self._draft.unread):
            self._alone(declared)

    def _of_source(self, source: PipelinePart[Any]) -> Columns | None:
        match source.does:
            case TopicSource():
                return _named(TOPIC_COLUMNS)
            case FilesSource(schema=str() as text, path=path):
                schema = self._schema(source.declared, "schema", text, is_strict=True)
                # Of a directory there may be more: day=2026-01-31 in its paths is a column.
                is_file = PurePath(path).suffix and not set("*?[{=") & set(path)
                return _columns(schema) if is_file else None
            case _:
                return None

    def _of_step(self, step: PipelinePart[Any]) -> Columns | None:
        does, declared = step.does, step.declared
        read = [self._columns.get(name) for name in self._graph.reads[step.name]]
        given = read[0] if read else None
        match does:
            case SqlStep(sql=text):
                names = self._graph.reads[step.name]
                tables: Tables = {name.lower(): self._columns.get(name) for name in names}
                judged = judge_query(text, tables, may_have_functions=self._may_have_functions)
                self._tell(declared, "sql", judged.faults)
                return judged.columns
            case ParseStep():
                return self._parsed(declared, does, given)
            case WatermarkStep(time=time):
                self._need(declared, given, time=time)
                return given
            case WindowStep(time=time, by=by, aggregates=aggregates):
                self._need(declared, given, time=time, by=by)
                self._expressions(declared, "aggregates", aggregates, given)
                return _named(("window_start", "window_end", *by, *aggregates))
            case DeduplicateStep(by=by, time=time):
                self._need(declared, given, by=by, time=time)
                return given
            case RateLimitStep():
                return given
            case StatefulStep(by=by, output=text):
                self._need(declared, given, by=by)
                return _columns(self._schema(declared, "output", text))
            case JoinStep():
                return self._joined(declared, does, read)
            case _:
                return None

    def _parsed(self, declared: Declaration, parse: ParseStep, given: Columns | None) -> Columns | None:
        self._need(declared, given, column=parse.column, keep=parse.keep)
        if parse.format == "text":
            return _named((*parse.keep, parse.column))
        if parse.schema is None:
            return None
        schema = self._schema(declared, "schema", parse.schema)
        seen = {name.lower() for name in parse.keep}
        for column in schema.columns:
            if column.name.lower() in seen:
                where = "keep and schema both name" if column.name in parse.keep else "its schema has twice"
                self._tell(declared, "schema", [TextFault(0, f"{where} {column.name}")])
            seen.add(column.name.lower())
            if column.type in LETTERS and CHAR_AS_STRING not in self._draft.pipeline.settings.spark:
                problem = f"{column.name} is of type {column.type}, which is for tables of a catalog: take string"
                self._tell(declared, "schema", [TextFault(0, problem)])
        return _named((*parse.keep, *(column.name for column in schema.columns))) if not schema.faults else None

    def _joined(self, declared: Declaration, join: JoinStep, read: list[Columns | None]) -> Columns | None:
        left, right = read if len(read) == 2 else (None, None)
        for side in (left, right):
            self._need(declared, side, using=join.using)
        self._need(declared, left, left_time=join.left_time)
        self._need(declared, right, right_time=join.right_time)
        if join.on is not None:
            self._expression(declared, "on", join.on, {"left": left, "right": right})
        if join.how in ("left_semi", "left_anti"):
            return left
        return {**right, **left} if left is not None and right is not None else None

    def _sink(self, sink: SinkPart) -> None:
        does, declared = sink.does, sink.declared
        names = self._graph.reads[sink.name]
        given = self._columns.get(names[0]) if names else None
        match does:
            case TopicSink(format="raw"):
                if given is not None and "value" not in given:
                    self._tell(declared, "format", [TextFault(0, f"raw needs a column value; {names[0]} has none")])
            case TopicSink(key=key, headers=headers):
                if key is not None:
                    self._expression(declared, "key", key, {"": given})
                self._expressions(declared, "headers", headers, given)
            case ParquetSink(partition_by=columns) | DeltaSink(partition_by=columns):
                self._need(declared, given, partition_by=columns)
            case TableSink(key=key, order=order) | JdbcSink(key=key, order=order):
                self._need(declared, given, key=key, order=order)
                if isinstance(does, TableSink) and does.delete_when is not None:
                    self._expression(declared, "delete_when", does.delete_when, {"": given})

    def _alone(self, declared: Declaration) -> None:
        """Of a part about which nothing else is known: texts that no columns would make good."""
        kind = KINDS[declared.section].get(str(declared.values.get("kind")))
        for key in keys.keys_of(kind).values() if kind is not None else ():
            value = declared.values.get(key.name)
            if isinstance(value, str) and value.strip():
                if key.read is keys.schema:
                    self._schema(declared, key.name, value, is_strict=kind is FilesSource)
                elif key.read is keys.query:
                    self._tell(declared, key.name, judge_query(value, {}, may_have_functions=True).faults)
                elif key.read is keys.expression:
                    self._expression(declared, key.name, value, {"": None})
            elif isinstance(value, Mapping) and key.read is keys.expressions:
                self._expressions(declared, key.name, value, None)

    def _schema(self, declared: Declaration, key: str, text: str, *, is_strict: bool = False) -> DeclaredSchema:
        schema = read_schema(text, is_strict=is_strict)
        self._tell(declared, key, schema.faults, key)
        return schema

    def _expressions(self, declared: Declaration, key: str, texts: Mapping[str, Any], given: Columns | None) -> None:
        for name, text in texts.items():
            if isinstance(text, str):
                self._expression(declared, f"{key}.{name}", text, {"": given})

    def _expression(self, declared: Declaration, key: str, text: str, sides: Tables) -> None:
        judged = judge_expression(text, sides, may_have_functions=self._may_have_functions)
        self._tell(declared, key, judged.faults, key)

    def _need(self, declared: Declaration, given: Columns | None, **named: str | tuple[str, ...] | None) -> None:
        """The columns that keys name."""
        for key, value in named.items():
            for name in () if given is None or value is None else (value,) if isinstance(value, str) else value:
                if given is not None and name.lower() not in given:
                    problem = f"there is no column {name}.{suggestion(name, given.values())}"
                    self._tell(declared, key, [TextFault(0, problem)], key)

    def _tell(
        self, declared: Declaration, key: str, faults: "list[TextFault] | tuple[TextFault, ...]", about: str = ""
    ) -> None:
        for fault in faults:
            what = fault.what if fault.what.endswith((".", "?")) else f"{fault.what}."
            subject = f"{declared}, {about}" if about else str(declared)
            location = declared.value_location_of(key).down(fault.line)
            self.mistakes.append(Mistake(location, f"{subject}: {what}", fault.is_sure))


def _columns(schema: DeclaredSchema) -> Columns | None:
    return _named(column.name for column in schema.columns) if not schema.faults else None


def _named(names: "Iterator[str] | tuple[str, ...] | Mapping[str, str]") -> Columns:
    return {name.lower(): name for name in names}
