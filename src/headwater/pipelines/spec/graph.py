"""How the parts of a pipeline hang together: what reads what, in which order, and what is a stream."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.pipelines.spec.declarations import Declaration, FileSection
from headwater.pipelines.spec.mistakes import Location, Mistake, name_hint
from headwater.pipelines.spec.pipeline import Draft, Pipeline, PipelinePart, SinkPart
from headwater.pipelines.spec.sources import FilesSource, JdbcSource, PythonSource, TopicSource
from headwater.pipelines.spec.steps import DeduplicateStep, InputName, JoinStep, Reads, WatermarkStep, WindowStep


@dataclass(frozen=True, slots=True)
class Graph:
    """A pipeline whose parts fit together."""

    pipeline: Pipeline
    steps_in_order: tuple[PipelinePart[Any], ...]
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


def connect(draft: Draft) -> tuple[Graph, list[Mistake]]:
    """The graph, and what is read though it does not exist, or in a circle. With such mistakes the graph is of use to
    find others: a step of a circle is not in its order, and a part that cannot be read counts as unknown."""
    pipeline = draft.pipeline
    reads, mistakes = _links(draft)
    in_order, circle = _in_order(pipeline, reads)
    streams = _streams(draft, in_order, reads)
    return Graph(pipeline, in_order, reads, streams, _watermarks(in_order, reads)), mistakes + circle


def _links(draft: Draft) -> tuple[dict[str, tuple[str, ...]], list[Mistake]]:
    pipeline = draft.pipeline
    names_of_parts = [part.name for part in (*pipeline.sources, *pipeline.steps)]
    names_of_parts += [each.name for each in draft.unread if each.section is not FileSection.SINK]
    readable = {name.lower(): name for name in names_of_parts}
    named: list[tuple[Declaration, Reads]] = [(step.declared, step.does.reads) for step in pipeline.steps]
    named += [(sink.declared, (InputName(sink.delivery.input, "input"),)) for sink in pipeline.sinks]
    reads: dict[str, tuple[str, ...]] = {}
    mistakes: list[Mistake] = []
    for declared, names in (*named, *((each, _named_by(each)) for each in draft.unread)):
        for each in names:
            if each.is_certain and each.name.lower() not in readable:
                hint = name_hint(each.name, readable.values())
                what = f"{declared} reads {each.name}, which is no source or step.{hint}"
                mistakes.append(Mistake(_location_of_name(declared, each), what))
        reads[declared.name] = tuple(
            readable[each.name.lower()]
            for each in names
            if each.name.lower() in readable and (each.is_certain or each.name.lower() != declared.name.lower())
        )
    for declared, names in named:
        if not names:
            mistakes.append(Mistake(declared.location, f"{declared} selects from no source or step."))
    return reads, mistakes


def _named_by(declared: Declaration) -> Reads:
    """What a part reads that cannot be read itself, as far as that is known."""
    keys = ("input", "left", "right") if declared.section is not FileSection.SOURCE else ()
    return tuple(InputName(name, key) for key in keys if isinstance(name := declared.values.get(key), str))


def _location_of_name(declared: Declaration, read: InputName) -> Location:
    if read.key == "sql":
        return declared.value_location_of("sql").down(read.line)
    return declared.location_of(read.key)


def _in_order(
    pipeline: Pipeline, reads: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[PipelinePart[Any], ...], list[Mistake]]:
    steps = {step.name: step for step in pipeline.steps}
    done: dict[str, PipelinePart[Any]] = {}
    while len(done) < len(steps):
        next_steps = [
            name
            for name in steps
            if name not in done and all(read in done or read not in steps for read in reads[name])
        ]
        if not next_steps:
            cycle = _cycle({name: reads[name] for name in steps if name not in done})
            around = " → ".join((*cycle, cycle[0]))
            mistake = Mistake(steps[cycle[0]].location, f"These steps read each other in a circle: {around}.")
            return tuple(done.values()), [mistake]
        done |= {name: steps[name] for name in next_steps}
    return tuple(done.values()), []


def _cycle(reads: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Each of these reads at least one other of them, so that going on for long enough comes back."""
    path = [next(iter(reads))]
    while True:
        following = next(name for name in reads[path[-1]] if name in reads)
        if following in path:
            return tuple(path[path.index(following) :])
        path.append(following)


def _streams(
    draft: Draft, in_order: tuple[PipelinePart[Any], ...], reads: Mapping[str, tuple[str, ...]]
) -> dict[str, bool | None]:
    pipeline = draft.pipeline
    found: dict[str, bool | None] = {each.name: None for each in draft.unread}
    found |= {step.name: None for step in pipeline.steps}
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
        found[step.name] = True if True in sides else None if None in sides or not sides else False
    return found


def _watermarks(in_order: tuple[PipelinePart[Any], ...], reads: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for step in in_order:
        match step.does:
            case (
                WatermarkStep()
                | WindowStep(watermark_ms=int())
                | DeduplicateStep(watermark_ms=int())
                | JoinStep(watermark_ms=int())
            ):
                found[step.name] = step.name
            case _:
                setters = [found[name] for name in reads[step.name] if name in found]
                found |= {step.name: setters[0]} if setters else {}
    return found
