"""A pipeline's parts as DataFrames of one Spark session, under their names as views.

A part that Spark refuses is a mistake in the file, told with its line: that is what a dry run finds. That a Python
process of Spark did not start in time is none: the machine has too much to do, and the part is tried again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.pipelines.run.parsing import dead_letters
from headwater.pipelines.run.problems import PipelineFailed, explain, sql_line
from headwater.pipelines.run.sources import ReadOptions, read_source
from headwater.pipelines.run.steps import take_step
from headwater.pipelines.spec.graph import Graph
from headwater.pipelines.spec.mistakes import Mistake
from headwater.pipelines.spec.pipeline import PipelinePart
from headwater.pipelines.spec.sources import TOPIC_COLUMNS, TopicSource
from headwater.pipelines.spec.steps import ParseStep, SqlStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_CROWDED_TRIES: Final = 10
"""Of one part. Each takes 10 s, which Spark gives a Python process to start."""


@dataclass(frozen=True, slots=True)
class Frames:
    by_name: "dict[str, DataFrame]"
    """Of sources and steps."""
    letters: "dict[str, DataFrame]"
    """Dead letters of steps that parse, by the step's name."""
    refused: dict[Mistake, Exception]
    """Parts that Spark does not take, and what it raised. What rests on them has no frame either."""


def build_frames(graph: Graph, spark: "SparkSession", reading: ReadOptions) -> Frames:
    """Raises PipelineFailed if the machine has too much to do."""
    frames = Frames({}, {}, {})
    pipeline = graph.pipeline
    for source in pipeline.sources:
        columns = columns_needed(graph, source.name)
        try:
            frame = _tried(source, partial(read_source, source, pipeline, spark, reading, columns))
            frame.createOrReplaceTempView(source.name)
        except Exception as error:
            frames.refused[_refused(source, error)] = error
            continue
        frames.by_name[source.name] = frame
    for step in graph.steps_in_order:
        if not all(name in frames.by_name for name in graph.reads[step.name]):
            continue
        inputs = tuple(frames.by_name[name] for name in graph.reads[step.name])
        try:
            frame = _tried(step, partial(take_step, step, inputs, graph, spark))
            frame.createOrReplaceTempView(step.name)
            if isinstance(step.does, ParseStep) and step.does.dead_letters is not None:
                whole = _tried(step, partial(_whole_input, graph, step.name, inputs[0], spark, reading))
                frames.letters[step.name] = dead_letters(whole, step.does, pipeline.name, step.name)
        except Exception as error:
            frames.refused[_refused(step, error)] = error
            continue
        frames.by_name[step.name] = frame
    return frames


def columns_needed(graph: Graph, source: str) -> tuple[str, ...] | None:
    """The columns of a topic that are read, if everybody who reads it says so; otherwise None."""
    needed: set[str] = set()
    for step in graph.steps_in_order:
        if source in graph.reads[step.name]:
            if not isinstance(step.does, ParseStep):
                return None
            needed |= {step.does.column, *step.does.keep}
    if any(source in graph.reads[sink.name] for sink in graph.pipeline.sinks) or not needed <= set(TOPIC_COLUMNS):
        return None
    return tuple(needed)


def _whole_input(
    graph: Graph, step: str, frame: "DataFrame", spark: "SparkSession", reading: ReadOptions
) -> "DataFrame":
    """A dead letter is a record with everything it had: from a topic all columns are read for it."""
    (name,) = graph.reads[step]
    source = next((each for each in graph.pipeline.sources if each.name == name), None)
    if source is None or not isinstance(source.does, TopicSource):
        return frame
    return read_source(source, graph.pipeline, spark, reading)


def _tried(part: PipelinePart[Any], build: "Callable[[], DataFrame]") -> "DataFrame":
    for _ in range(MAX_CROWDED_TRIES):
        try:
            return build()
        except Exception as error:
            failure = explain(error, str(part))
            if not failure.is_crowded:
                raise
            cause = error
    raise failure from cause


def _refused(part: PipelinePart[Any], error: Exception) -> Mistake:
    if isinstance(error, PipelineFailed) and error.is_crowded:
        raise error
    location = part.location
    if isinstance(part.does, SqlStep):
        location = part.declared.value_location_of("sql").down(sql_line(error) or 0)
    return Mistake(location, str(explain(error, str(part))))
