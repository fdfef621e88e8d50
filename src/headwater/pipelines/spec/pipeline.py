"""A pipeline as its file describes it: frozen values, apart from how they are carried out.

Nothing here needs Spark. `read_pipeline` turns declarations into a pipeline and all the mistakes in them; what only
shows when the parts are seen together is the business of `graph.py`.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from headwater.pipelines.spec.declarations import Declaration, FileSection
from headwater.pipelines.spec.keys import (
    NotAccepted,
    keys_of,
    mapping,
    option_table,
    optional,
    read_keys,
    text_with_variables,
)
from headwater.pipelines.spec.mistakes import BadPipeline, Location, Mistake, name_hint
from headwater.pipelines.spec.sinks import SINK_KINDS, DecoratedSink, SinkDelivery, SinkKind
from headwater.pipelines.spec.sources import SOURCE_KINDS, PythonSource, SourceKind
from headwater.pipelines.spec.steps import STEP_KINDS, DecoratedStep, StepKind
from headwater.pipelines.spec.triggers import DEFAULT_TRIGGER, Trigger, read_trigger

Does = TypeVar("Does", covariant=True)
MAX_PARTS = 500
"""Sources, steps and sinks of one file."""
KIND = frozenset({"kind"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


def pipeline_name(value: object) -> str:
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise NotAccepted("a name of up to 100 letters, digits, dots, dashes and underscores")
    return value


@dataclass(frozen=True, slots=True)
class Settings:
    """The keys at the top of the file."""

    name: str | None = optional(pipeline_name, "What the pipeline is called; the file's name, unless given.")
    bootstrap: str | None = optional(text_with_variables, "HOST:PORT of a broker; an option of the command wins.")
    checkpoint: str | None = optional(text_with_variables, "Where the pipeline remembers how far it is.")
    trigger: Trigger = optional(read_trigger, "How often to look for more rows.", DEFAULT_TRIGGER)  # noqa: RUF009 (a field)
    spark: Mapping[str, str] = mapping(option_table, "Settings of Spark.")


@dataclass(frozen=True, slots=True)
class PipelinePart(Generic[Does]):
    """A source, step or sink: its name, what it does, and where it is declared."""

    name: str
    does: Does
    declared: Declaration = field(compare=False, repr=False)

    @property
    def location(self) -> Location:
        return self.declared.location

    def __str__(self) -> str:
        return str(self.declared)


@dataclass(frozen=True, slots=True)
class SinkPart(PipelinePart[SinkKind]):
    delivery: SinkDelivery


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    file: Path
    settings: Settings
    sources: tuple[PipelinePart[SourceKind], ...]
    steps: tuple[PipelinePart[StepKind], ...]
    sinks: tuple[SinkPart, ...]

    @property
    def directory(self) -> Path:
        """What relative paths in the file start from."""
        return self.file.resolve().parent

    def checkpoint_of(self, sink: str) -> str:
        """Each query has its own."""
        return f"{self.checkpoint}/{sink}"

    @property
    def checkpoint(self) -> str:
        return self.located(self.settings.checkpoint or f"{self.file.stem}.checkpoint")

    def located(self, path: str) -> str:
        """A path as Spark takes it: a URL stays, a relative path starts where the file is."""
        return path if "://" in path or path.startswith("file:") else str(self.directory / Path(path).expanduser())

    def trigger_of(self, sink: SinkPart) -> Trigger:
        return sink.delivery.trigger or self.settings.trigger


@dataclass(frozen=True, slots=True)
class Draft:
    """A pipeline as far as its file can be read."""

    pipeline: Pipeline
    mistakes: tuple[Mistake, ...] = ()
    """What is wrong in single declarations."""
    unread: tuple[Declaration, ...] = ()
    """The parts that are missing in the pipeline because of that. Their names are taken."""


def read_pipeline(
    file: Path, declarations: Sequence[Declaration], broken: Sequence[tuple[Declaration, Mistake]] = ()
) -> Draft:
    """With everything that is wrong in single declarations; `broken` are declarations that could not be read, and why.
    Raises BadPipeline if there are too many to go on."""
    mistakes = [mistake for _, mistake in broken]
    if len(declarations) > MAX_PARTS:
        raise BadPipeline([Mistake(Location(str(file)), f"This has more than {MAX_PARTS} sources, steps and sinks.")])
    settings = Settings()
    sources: list[PipelinePart[SourceKind]] = []
    steps: list[PipelinePart[StepKind]] = []
    sinks: list[SinkPart] = []
    unread = [declaration for declaration, _ in broken]
    for declaration in declarations:
        try:
            match declaration.section:
                case FileSection.PIPELINE:
                    settings = _checked(read_keys(Settings, declaration))
                case FileSection.SOURCE:
                    sources.append(PipelinePart(declaration.name, _source(declaration), declaration))
                case FileSection.STEP:
                    steps.append(PipelinePart(declaration.name, _step(declaration), declaration))
                case FileSection.SINK:
                    sinks.append(_sink(declaration))
        except BadPipeline as error:
            mistakes += error.mistakes
            unread += [declaration] if declaration.section is not FileSection.PIPELINE else []
    name = settings.name or file.stem
    try:
        pipeline_name(name)
    except NotAccepted as error:
        mistakes.append(Mistake(Location(str(file)), f"The file's name is no name of a pipeline: give it {error}."))
    pipeline = Pipeline(name, file, settings, tuple(sources), tuple(steps), tuple(sinks))
    return Draft(pipeline, tuple(mistakes), tuple(unread))


def _source(declaration: Declaration) -> SourceKind:
    if declaration.function is not None:
        return PythonSource(declaration.function)
    kind = _kind(declaration, SOURCE_KINDS)
    source: SourceKind = _checked(read_keys(kind, declaration, but=KIND))
    return source


def _step(declaration: Declaration) -> StepKind:
    if declaration.function is not None:
        return DecoratedStep(declaration.function, tuple(inspect.signature(declaration.function).parameters))
    kind = _kind(declaration, STEP_KINDS)
    step: StepKind = _checked(read_keys(kind, declaration, but=KIND))
    return step


def _sink(declaration: Declaration) -> SinkPart:
    if declaration.function is not None:
        delivery: SinkDelivery = _checked(read_keys(SinkDelivery, declaration))
        return SinkPart(declaration.name, DecoratedSink(declaration.function), declaration, delivery)
    kind = _kind(declaration, SINK_KINDS)
    of_kind, of_delivery = _file_names(kind), _file_names(SinkDelivery)
    does = read_keys(kind, declaration, but=KIND | of_delivery)
    delivery = read_keys(SinkDelivery, declaration, but=KIND | of_kind)
    if mistakes := [mistake for each in (does, delivery) if isinstance(each, list) for mistake in each]:
        raise BadPipeline(mistakes)
    return SinkPart(declaration.name, does, declaration, delivery)


def _kind(declaration: Declaration, kinds: Mapping[str, type]) -> type:
    given = declaration.values.get("kind")
    if given is None:
        what = f"{declaration} lacks kind: one of {', '.join(sorted(kinds))}."
    elif not isinstance(given, str) or given not in kinds:
        what = f"There is no kind {given!r} of {declaration.section}.{name_hint(str(given), kinds)}"
    else:
        return kinds[given]
    raise BadPipeline([Mistake(declaration.location_of("kind"), what)])


def _file_names(kind: type) -> frozenset[str]:
    return frozenset(key.name for key in keys_of(kind).values())


def _checked(read: Any) -> Any:
    if isinstance(read, list):
        raise BadPipeline(read)
    return read


def parts_of(pipeline: Pipeline) -> Iterator[PipelinePart[Any]]:
    """All of them, in the order of sources, steps and sinks."""
    yield from pipeline.sources
    yield from pipeline.steps
    yield from pipeline.sinks
