"""Steps as DataFrames over DataFrames."""

import importlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.pipelines.run.parsing import fitting
from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.spec.durations import interval
from headwater.pipelines.spec.graph import Graph
from headwater.pipelines.spec.pipeline import Pipeline, PipelinePart
from headwater.pipelines.spec.steps import (
    DecoratedStep,
    DeduplicateStep,
    JoinStep,
    ParseStep,
    PythonStep,
    RateLimitStep,
    SqlStep,
    StatefulStep,
    StepKind,
    WatermarkStep,
    WindowStep,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PACE_S = 0.1
"""Rows of a limited stream go on in portions that last so long."""


def take_step(
    step: PipelinePart[StepKind], inputs: "tuple[DataFrame, ...]", graph: Graph, spark: "SparkSession"
) -> "DataFrame":
    """`inputs` are what the step reads, in its order. SQL finds its own: they are views of the session."""
    pipeline = graph.pipeline
    match step.does:
        case SqlStep(sql=sql):
            return spark.sql(sql)
        case ParseStep() as parse:
            return fitting(inputs[0], parse, str(step))
        case WatermarkStep(time=column, delay_ms=delay_ms):
            return inputs[0].withWatermark(column, interval(delay_ms))
        case WindowStep() as window:
            return _windowed(inputs[0], window)
        case JoinStep() as join:
            left, right = graph.reads[step.name]
            return _joined(inputs[0], inputs[1], join, (left in graph.watermarks, right in graph.watermarks))
        case DeduplicateStep() as deduplicate:
            return _deduplicated(inputs[0], deduplicate)
        case RateLimitStep(rows_per_second=limit):
            return _limited(inputs[0], limit)
        case StatefulStep() as stateful:
            return _stateful(inputs[0], stateful, pipeline)
        case PythonStep(function=reference):
            return _frame_of(referenced(reference, pipeline.directory)(*inputs), reference)
        case DecoratedStep(function=function):
            return _frame_of(function(*inputs), function.__name__)


def referenced(reference: str, directory: Path) -> Any:
    """What module:name means, with modules beside the pipeline's file before installed ones."""
    module, _, name = reference.partition(":")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    return getattr(importlib.import_module(module), name)


def _frame_of(result: object, name: str) -> "DataFrame":
    from pyspark.sql import DataFrame

    if not isinstance(result, DataFrame):
        raise TypeError(f"{name} returned a {type(result).__name__}, not a DataFrame")
    return result


def _windowed(frame: "DataFrame", window: WindowStep) -> "DataFrame":
    from pyspark.sql import functions as f

    if window.watermark_ms is not None:
        frame = frame.withWatermark(window.time, interval(window.watermark_ms))
    if window.gap_ms is not None:
        span = f.session_window(window.time, interval(window.gap_ms))
    else:
        assert window.size_ms is not None, "a window has a size or a gap: check said so"
        slide = interval(window.slide_ms) if window.slide_ms is not None else None
        span = f.window(window.time, interval(window.size_ms), slide)
    aggregates = [f.expr(expression).alias(name) for name, expression in window.aggregates.items()]
    grouped = frame.groupBy(span.alias("window"), *window.by).agg(*aggregates)
    times = (f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end"))
    return grouped.select(*times, *window.by, *window.aggregates)


def _joined(left: "DataFrame", right: "DataFrame", join: JoinStep, has_watermark: tuple[bool, bool]) -> "DataFrame":
    from pyspark.sql import functions as f

    if join.watermark_ms is not None and join.left_time is not None and join.right_time is not None:
        # A side that has a watermark keeps it: Spark refuses a second one.
        late = interval(join.watermark_ms)
        left = left if has_watermark[0] else left.withWatermark(join.left_time, late)
        right = right if has_watermark[1] else right.withWatermark(join.right_time, late)
    left, right = left.alias("left"), right.alias("right")
    if join.on is not None:
        condition = f.expr(join.on)
    else:
        condition = f.lit(True)
        for name in join.using:
            condition = condition & (f.col(f"left.{name}") == f.col(f"right.{name}"))
    if join.within_ms is not None:
        span = f.expr(f"interval {interval(join.within_ms)}")
        at, other = f.col(f"left.{join.left_time}"), f.col(f"right.{join.right_time}")
        condition = condition & (other >= at - span) & (other <= at + span)
    joined = left.join(right, condition, "outer" if join.how == "full" else join.how)
    if join.how in ("left_semi", "left_anti"):
        return joined
    # One column of each name: the left side's, but where only the right side has a row its own.
    doubles = [name for name in right.columns if name in left.columns]
    if not doubles:
        return joined
    columns = [
        (
            f.coalesce(f.col(f"left.{name}"), f.col(f"right.{name}")) if name in join.using else f.col(f"left.{name}")
        ).alias(name)
        for name in left.columns
    ]
    return joined.select(*columns, *(f.col(f"right.{name}") for name in right.columns if name not in doubles))


def _deduplicated(frame: "DataFrame", deduplicate: DeduplicateStep) -> "DataFrame":
    if not frame.isStreaming:
        return frame.dropDuplicates(list(deduplicate.by))
    if deduplicate.time is not None and deduplicate.watermark_ms is not None:
        frame = frame.withWatermark(deduplicate.time, interval(deduplicate.watermark_ms))
    return frame.dropDuplicatesWithinWatermark(list(deduplicate.by))


def _stateful(frame: "DataFrame", stateful: StatefulStep, pipeline: Pipeline) -> "DataFrame":
    _need_protobuf()
    processor = referenced(stateful.processor, pipeline.directory)
    timers = {"none": "None", "processing": "ProcessingTime", "event": "EventTime"}[stateful.timers]
    return frame.groupBy(*stateful.by).transformWithState(
        statefulProcessor=processor(),
        outputStructType=stateful.output,
        outputMode=stateful.mode.capitalize(),
        timeMode=timers,
    )


def _need_protobuf() -> None:
    """Spark's Python workers talk to the state in it, and say nothing of use when it is missing."""
    try:
        importlib.import_module("google.protobuf.runtime_version")
    except ImportError:
        raise PipelineFailed(
            "Stateful steps need the package protobuf.", "Install it with `pip install protobuf`."
        ) from None


def _limited(frame: "DataFrame", rows_per_second: int) -> "DataFrame":
    """In one task, because only one can keep a limit without asking others. It keeps the order of partitions."""
    return frame.coalesce(1).mapInArrow(paced(rows_per_second), frame.schema)


def paced(
    rows_per_second: int, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """Batches go on in slices, each when its rows are due. Time that was not used is not caught up with."""

    def run(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        portion = max(1, int(rows_per_second * PACE_S))
        due_s = now()
        for batch in batches:
            for start in itertools.count(0, portion):
                if start >= batch.num_rows:
                    break
                part = batch.slice(start, portion)
                due_s = max(due_s, now()) + part.num_rows / rows_per_second
                yield part
                sleep(max(0.0, due_s - now()))

    return run
