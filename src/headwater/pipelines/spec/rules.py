"""What is wrong with parts whose keys are all readable: keys that depend on each other, streams that never forget."""

from collections.abc import Iterator
from typing import Any

from headwater.pipelines.errors import InvalidOption
from headwater.pipelines.spec.declarations import Declaration
from headwater.pipelines.spec.graph import Graph
from headwater.pipelines.spec.keys import NotAccepted, identifier
from headwater.pipelines.spec.mistakes import Mistake
from headwater.pipelines.spec.pipeline import Draft, Pipeline, PipelinePart, parts_of
from headwater.pipelines.spec.references import mistaken_reference
from headwater.pipelines.spec.sinks import JdbcSink, PythonSink, TableSink, TopicSink, WebhookSink
from headwater.pipelines.spec.sources import FilesSource, JdbcSource, TopicSource
from headwater.pipelines.spec.steps import (
    DecoratedStep,
    DeduplicateStep,
    JoinStep,
    ParseStep,
    PythonStep,
    StatefulStep,
    WatermarkStep,
    WindowStep,
)

STREAM_WITH_TABLE = {"left": ("inner", "left", "left_semi", "left_anti"), "right": ("inner", "right")}
"""Which joins Spark has for a stream and a table, by the side of the stream."""
TABLE_URLS = ("postgresql://", "postgres://", "sqlite:")


def mistaken_names(draft: Draft) -> Iterator[Mistake]:
    """Sources and steps are views of one Spark session, which does not tell upper case from lower."""
    seen: dict[str, Declaration] = {}
    for part in (*(part.declared for part in parts_of(draft.pipeline)), *draft.unread):
        try:
            identifier(part.name)
        except NotAccepted as error:
            yield Mistake(part.location, f"{part} needs {error}.")
        if (first := seen.setdefault(part.name.lower(), part)) is not part:
            yield Mistake(part.location, f"{part} has the name of {first} in line {first.location.line}.")


def mistaken_keys(part: PipelinePart[Any], pipeline: Pipeline) -> Iterator[Mistake]:
    does, declared = part.does, part.declared

    def wrong(key: str, what: str) -> Mistake:
        return Mistake(declared.location_of(key), f"{part}: {what}")

    match does:
        case TopicSource() | TopicSink() if problem := _mistaken_options(does):
            yield wrong("options", problem)
        case FilesSource(schema=None, stream=True):
            yield wrong("format", 'a stream of files needs a schema, such as schema = "id string, amount double".')
        case JdbcSource(table=table, query=query) if (table is None) == (query is None):
            yield wrong("table", "give either table or query.")
        case ParseStep(format="text", schema=str()):
            yield wrong("schema", "text has no schema: it becomes one column.")
        case ParseStep(format="avro" | "protobuf" as format, schema=str()):
            yield wrong("schema", f"{format} has its columns from the registry: give registry and subject instead.")
        case ParseStep(format="avro" | "protobuf" as format, registry=registry, subject=subject):
            if registry is None or subject is None:
                yield wrong("format", f'{format} needs a registry ("http://…") and a subject ("orders-value").')
        case ParseStep(format="csv" | "text" as format, registry=str()):
            yield wrong("registry", f"{format} has no registry.")
        case ParseStep(format=format, schema=None) if format != "text":
            yield wrong("format", f'{format} needs a schema, such as schema = "id string not null, amount double".')
        case WindowStep(size_ms=size, gap_ms=gap) if (size is None) == (gap is None):
            yield wrong("size", "give either size (windows of one length) or gap (sessions).")
        case WindowStep(gap_ms=int(), slide_ms=int()):
            yield wrong("slide", "sessions do not slide.")
        case WindowStep(size_ms=int() as size, slide_ms=int() as slide) if slide > size:
            yield wrong("slide", "a slide longer than the size would leave rows out.")
        case JoinStep(on=on, using=using) if (on is None) == (not using):
            yield wrong("on", "give either on (a condition) or using (columns that both sides have).")
        case JoinStep(left_time=left, right_time=right, within_ms=within) if (
            len({left is None, right is None, within is None}) > 1
        ):
            yield wrong("within", "left_time, right_time and within belong together.")
        case DeduplicateStep(time=time, watermark_ms=watermark) if (time is None) != (watermark is None):
            yield wrong("watermark", "time and watermark belong together.")
        case TopicSink(format="raw", key=key, headers=headers) if key is not None or headers:
            yield wrong("key", "raw takes key and headers from the columns of these names.")
        case TableSink(url=url) if not url.startswith(TABLE_URLS):
            yield wrong("url", 'needs "postgresql://…" or "sqlite:…"; kind = "jdbc" takes any database with a driver.')
        case TableSink(key=(), order=order, delete_when=delete) if order is not None or delete is not None:
            yield wrong("key", "order and delete_when need a key.")
        case JdbcSink(key=(), order=str()):
            yield wrong("order", "order needs a key.")
        case JdbcSink(url=url) | JdbcSource(url=url) if not url.startswith("jdbc:"):
            yield wrong("url", 'needs "jdbc:…".')
        case WebhookSink(url=url) if not url.startswith(("http://", "https://")):
            yield wrong("url", 'needs "http://…" or "https://…".')
        case PythonStep(function=reference) | PythonSink(function=reference):
            if problem := mistaken_reference(reference, pipeline.directory):
                yield wrong("function", problem)
        case StatefulStep(processor=reference):
            if problem := mistaken_reference(reference, pipeline.directory):
                yield wrong("processor", problem)


def _mistaken_options(does: TopicSource | TopicSink) -> str | None:
    """What the source or the sink itself would say, when Spark has started."""
    if not does.options:
        return None
    from headwater.pipelines.sink.options import sink_options  # and with it the libraries that read records
    from headwater.pipelines.source.options import source_options

    given = {"kafka.bootstrap.servers": "127.0.0.1:9092", **does.options}
    try:
        if isinstance(does, TopicSource):
            source_options({"subscribe": does.topic, **given}, does.stream)
        else:
            sink_options({"topic": does.topic, "exactlyOnce": str(does.exactly_once).lower(), **given}, True)
    except InvalidOption as error:
        return str(error)
    return None


def mistaken_streams(graph: Graph) -> Iterator[Mistake]:
    may_have_watermark = _may_have_watermark(graph)
    for step in graph.steps_in_order:
        yield from _mistaken_stream(step, graph, may_have_watermark)
    for sink in graph.pipeline.sinks:
        for read in graph.reads[sink.name]:
            if graph.is_stream[read] is False:
                yield Mistake(
                    sink.declared.location_of("input"),
                    f"{sink} reads {read}, which rests on tables alone: nothing would ever change. "
                    "One of its sources has to be a stream.",
                )


def _mistaken_stream(step: PipelinePart[Any], graph: Graph, may_have_watermark: frozenset[str]) -> Iterator[Mistake]:
    does, declared, reads = step.does, step.declared, graph.reads[step.name]
    streams = [graph.is_stream[name] for name in reads]
    if not any(streams):
        return
    match does:
        case WindowStep(watermark_ms=None) if reads[0] not in may_have_watermark:
            yield Mistake(
                declared.location,
                f'{step} needs a watermark, such as watermark = "10m": without, a window would never be complete, '
                "and its state would grow for ever.",
            )
        case DeduplicateStep(watermark_ms=None) if reads[0] not in may_have_watermark:
            yield Mistake(
                declared.location,
                f'{step} needs time and watermark, such as time = "at" and watermark = "1h": without, every key would '
                "be remembered for ever.",
            )
        case WindowStep(watermark_ms=int()) | DeduplicateStep(watermark_ms=int()) | WatermarkStep():
            if (setter := graph.watermarks.get(reads[0])) is not None:
                yield Mistake(
                    declared.location_of("delay" if isinstance(does, WatermarkStep) else "watermark"),
                    f"{step}: its rows have the watermark of step {setter} already, and Spark allows only one.",
                )
        case JoinStep(within_ms=None) if streams == [True, True]:
            yield Mistake(
                declared.location,
                f"{step} joins two streams: left_time, right_time and within say how far matching rows lie apart, so "
                "that the others can be forgotten.",
            )
        case JoinStep(how=how) if sorted(streams, key=bool) == [False, True]:
            side, other = ("left", "right") if streams[0] else ("right", "left")
            if how not in STREAM_WITH_TABLE[side]:
                yield Mistake(
                    declared.location_of("how"),
                    f"{step}: the {side} side is a stream and the {other} side a table; of such a pair there is no "
                    f"{how} join, but: {', '.join(STREAM_WITH_TABLE[side])}.",
                )


def _may_have_watermark(graph: Graph) -> frozenset[str]:
    """Sources and steps whose rows come with one, or through a Python function that may have set one."""
    found = {name for name, is_stream in graph.is_stream.items() if is_stream is None} | set(graph.watermarks)
    for step in graph.steps_in_order:
        if isinstance(step.does, PythonStep | DecoratedStep) or found & set(graph.reads[step.name]):
            found.add(step.name)
    return frozenset(found)
