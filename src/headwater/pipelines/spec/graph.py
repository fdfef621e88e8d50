"""How the parts of a pipeline hang together: what reads what, in which order, and what is a stream."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.pipelines.spec.mistakes import BadPipeline, Mistake, Place, nearest
from headwater.pipelines.spec.pipeline import Part, Pipeline, SinkPart
from headwater.pipelines.spec.sources import FilesSource, JdbcSource, PythonSource, TopicSource
from headwater.pipelines.spec.sql_inputs import relations
from headwater.pipelines.spec.steps import Deduplicate, Join, Reads, Sql, Watermark, Window


@dataclass(frozen=True, slots=True)
class Graph:
    """A pipeline whose parts fit together."""

    pipeline: Pipeline
    steps_in_order: tuple[Part[Any], ...]
    """What a step reads stands before it."""
    reads: Mapping[str, tuple[str, ...]]
    """What each step and sink reads, under the names as they are declared."""
    is_stream: Mapping[str, bool | None]
    """Of each source and step; None if only the Python function knows."""
    watermarks: Mapping[str, str]
    """The step that gives the rows of a source or step their watermark, where one does."""

    def needed_by(self, sink: SinkPart) -> frozenset[str]:
        """The sources and steps that a sink rests on."""
        found: set[str] = set()
        waiting = list(self.reads[sink.name])
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.reads.get(name, ())
        return frozenset(found)

    @property
    def unused(self) -> tuple[str, ...]:
        needed = frozenset[str]().union(*map(self.needed_by, self.pipeline.sinks))
        return tuple(part.name for part in (*self.pipeline.sources, *self.pipeline.steps) if part.name not in needed)


def connect(pipeline: Pipeline) -> Graph:
    """Raises BadPipeline if something is read that does not exist, or in a circle."""
    reads, unknown = _links(pipeline)
    if unknown:
        raise BadPipeline(unknown)
    in_order = _in_order(pipeline, reads)
    return Graph(pipeline, in_order, reads, _streams(pipeline, in_order, reads), _watermarks(in_order, reads))


def _links(pipeline: Pipeline) -> tuple[dict[str, tuple[str, ...]], list[Mistake]]:
    readable = {part.name.lower(): part.name for part in (*pipeline.sources, *pipeline.steps)}
    named: list[tuple[Part[Any], Reads]] = [(step, step.does.reads) for step in pipeline.steps]
    named += [(sink, ((sink.delivery.input, "input"),)) for sink in pipeline.sinks]
    reads, mistakes = {}, []
    for part, names in named:
        for name, key in names:
            if name.lower() not in readable:
                place = _place_of_name(part, name, key)
                mistakes.append(
                    Mistake(
                        place, f"{part} reads {name}, which is no source or step.{nearest(name, readable.values())}"
                    )
                )
        if not names:
            mistakes.append(Mistake(part.place, f"{part} selects from no source or step."))
        reads[part.name] = tuple(readable[name.lower()] for name, _ in names if name.lower() in readable)
    return reads, mistakes


def _place_of_name(part: Part[Any], name: str, key: str) -> Place:
    if isinstance(part.does, Sql):
        line = next((each.line for each in relations(part.does.sql) if each.name == name), 0)
        return part.declared.value_place_of("sql").down(line)
    return part.declared.place_of(key)


def _in_order(pipeline: Pipeline, reads: Mapping[str, tuple[str, ...]]) -> tuple[Part[Any], ...]:
    steps = {step.name: step for step in pipeline.steps}
    done: dict[str, Part[Any]] = {}
    while len(done) < len(steps):
        ready = [
            name
            for name in steps
            if name not in done and all(read in done or read not in steps for read in reads[name])
        ]
        if not ready:
            cycle = _cycle({name: reads[name] for name in steps if name not in done})
            around = " → ".join((*cycle, cycle[0]))
            raise BadPipeline([Mistake(steps[cycle[0]].place, f"These steps read each other in a circle: {around}.")])
        done |= {name: steps[name] for name in ready}
    return tuple(done.values())


def _cycle(reads: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Each of these reads at least one other of them, so that going on for long enough comes back."""
    path = [next(iter(reads))]
    while True:
        following = next(name for name in reads[path[-1]] if name in reads)
        if following in path:
            return tuple(path[path.index(following) :])
        path.append(following)


def _streams(
    pipeline: Pipeline, in_order: tuple[Part[Any], ...], reads: Mapping[str, tuple[str, ...]]
) -> dict[str, bool | None]:
    found: dict[str, bool | None] = {}
    for source in pipeline.sources:
        match source.does:
            case TopicSource(stream=stream) | FilesSource(stream=stream):
                found[source.name] = stream
            case JdbcSource():
                found[source.name] = False
            case PythonSource():
                found[source.name] = None
    for step in in_order:
        sides = [found[name] for name in reads[step.name]]
        found[step.name] = True if True in sides else None if None in sides else False
    return found


def _watermarks(in_order: tuple[Part[Any], ...], reads: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for step in in_order:
        match step.does:
            case Watermark() | Window(watermark_ms=int()) | Deduplicate(watermark_ms=int()) | Join(watermark_ms=int()):
                found[step.name] = step.name
            case _:
                setters = [found[name] for name in reads[step.name] if name in found]
                found |= {step.name: setters[0]} if setters else {}
    return found
