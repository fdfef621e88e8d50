"""What has to be there before a pipeline runs, each with its own message: a broker, topics, Java, Spark."""

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headwater.cli.client import DEFAULT_BOOTSTRAP, REQUEST_TIMEOUT_S, admin, client_config, parse_assignments
from headwater.cli.output import Problem, note, print_json

if TYPE_CHECKING:
    from headwater.pipelines.jvm.java import Java
    from headwater.pipelines.run.progress import Status
    from headwater.pipelines.run.runner import Runner
    from headwater.pipelines.run.status_topic import StatusTopic
    from headwater.pipelines.spec.graph import Graph
    from headwater.pipelines.spec.mistakes import BadPipeline
    from headwater.pipelines.spec.pipeline import Pipeline
    from headwater.pipelines.spec.starts import Start

MISTAKES_EXIT = 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says of a run."""

    bootstrap: str | None
    master: str
    conf: list[str]
    is_verbose: bool
    is_once: bool = False
    start: str | None = None


def load_graph(file: Path, *, as_json: bool = False, is_spark_next: bool = False) -> "Graph":
    """The pipeline of a file; all mistakes in it end the command. `is_spark_next`: except those that Spark itself
    judges right after."""
    from headwater.pipelines.spec.check import load
    from headwater.pipelines.spec.mistakes import BadPipeline

    try:
        return load(file, is_spark_next=is_spark_next)
    except BadPipeline as error:
        raise _told(error, as_json=as_json) from error


@contextmanager
def pipeline_problems(*, is_verbose: bool = False, as_json: bool = False) -> Iterator[None]:
    """What pipelines raise becomes a message; verbose shows the whole stack before it."""
    from headwater.pipelines.jvm.gateway import JvmFailed
    from headwater.pipelines.jvm.java import NoJava
    from headwater.pipelines.run.problems import PipelineFailed
    from headwater.pipelines.spec.mistakes import BadPipeline

    try:
        yield
    except (PipelineFailed, BadPipeline, NoJava, JvmFailed) as error:
        if is_verbose:
            import traceback

            traceback.print_exc()
        if isinstance(error, BadPipeline):
            raise _told(error, as_json=as_json) from error
        hint = "--verbose shows the whole error." if error.__cause__ is not None and not is_verbose else ""
        raise Problem(_sentence(str(error)), hint) from error


@contextmanager
def dry_runner(graph: "Graph", wanted: Wanted) -> "Iterator[Runner]":
    """A runner that can plan: it needs no broker, and holds nothing."""
    with ExitStack() as stack:
        yield _start_spark(graph, wanted, None, print, stack)[0]


@contextmanager
def ready_runner(
    graph: "Graph", wanted: Wanted, emit: Callable[[str], None]
) -> "Iterator[tuple[Runner, Callable[[Status], None]]]":
    """A runner that can run, and what to call with its statuses beside showing them.

    Everything that can be told before Spark starts is told before."""
    pipeline = graph.pipeline
    with ExitStack() as stack:
        topic = _reach_broker(pipeline, _bootstrap(pipeline, wanted), stack)
        from headwater.pipelines.run.lock import only_run

        stack.enter_context(only_run(pipeline.name, pipeline.checkpoint))
        classes = stack.enter_context(class_cache_afterwards())
        runner, classes.java = _start_spark(graph, wanted, topic, emit, stack)
        yield runner, classes.see


def _start_spark(
    graph: "Graph",
    wanted: Wanted,
    topic: "StatusTopic | None",
    emit: Callable[[str], None],
    stack: ExitStack,
) -> "tuple[Runner, Java]":
    from headwater.pipelines.run.runner import Runner, RunOptions
    from headwater.pipelines.run.session import is_local, is_local_path, spark_session, spark_settings
    from headwater.pipelines.run.shipping import ship

    pipeline = graph.pipeline
    options = RunOptions(_bootstrap(pipeline, wanted), wanted.is_once, parse_start(wanted.start))
    settings = spark_settings(pipeline, wanted.master, parse_assignments(wanted.conf, "--conf"))
    if not is_local(wanted.master) and is_local_path(pipeline.checkpoint):
        note(f"The checkpoint {pipeline.checkpoint} is a local path: executors elsewhere need it on shared storage.")
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-pipeline-")))
    note("Starting Spark …")
    spark, java = stack.enter_context(spark_session(settings, pipeline.directory, is_verbose=wanted.is_verbose))
    ship(pipeline, spark, scratch, is_local=is_local(wanted.master))
    return Runner(graph, spark, options, topic, emit, note), java


def _reach_broker(pipeline: "Pipeline", bootstrap: str, stack: ExitStack) -> "StatusTopic | None":
    """The status topic, once we know that the broker answers, the topics exist, and no other run is alive. A pipeline
    without topics runs without a broker, and tells nobody."""
    from headwater.pipelines.run.status_topic import StatusTopic
    from headwater.pipelines.spec.topics import uses_topics

    if not uses_topics(pipeline):
        try:
            client_config(bootstrap)
        except Problem:
            note(f"No broker answers at {bootstrap}: `headwater pipeline list` will not show this run.")
            return None
    _check_topics(pipeline, bootstrap)
    topic = stack.enter_context(StatusTopic(bootstrap))
    topic.create()
    other = topic.statuses().get(pipeline.name)
    if other is not None and _is_alive(other):
        raise Problem(
            f"The pipeline {pipeline.name} is running already, on {other.host} (process {other.pid}).",
            f"`headwater pipeline stop {pipeline.name}` stops it.",
        )
    return topic


def _is_alive(other: "Status") -> bool:
    """A run of this machine whose process is gone was killed; of others we only know when they told last."""
    if other.state_at(now_ms()) != "running":
        return False
    if other.host != socket.gethostname():
        return True
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _check_topics(pipeline: "Pipeline", bootstrap: str) -> None:
    from headwater.pipelines.spec.topics import topics_read_at

    with admin(bootstrap) as client:
        existing = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    for topic, place in topics_read_at(pipeline):
        if topic not in existing:
            raise Problem(
                f"{place}: Topic {topic} does not exist.",
                "`headwater topic list` shows those that do; `headwater topic create` makes one.",
            )


@dataclass(slots=True)
class ClassCache:
    """Which Java ran, and whether rows flowed: what never worked is not worth an archive."""

    java: "Java | None" = None
    is_worth_it: bool = False

    def see(self, status: "Status") -> None:
        self.is_worth_it = self.is_worth_it or any(query.batch is not None for query in status.queries)


@contextmanager
def class_cache_afterwards() -> Iterator[ClassCache]:
    """When the run is over and Spark has stopped, start making the archive that speeds the next start up: before that
    it would take the processor from the run."""
    from headwater.pipelines.jvm.class_cache import build_in_background

    seen = ClassCache()
    try:
        yield seen
    finally:
        if seen.java is not None and seen.is_worth_it:
            build_in_background(seen.java)


def parse_start(text: str | None) -> "Start | None":
    from headwater.pipelines.spec.keys import NotAccepted
    from headwater.pipelines.spec.starts import read_start

    if text is None:
        return None
    try:
        return read_start(text)
    except NotAccepted as error:
        raise Problem(f"--from {text!r} is no place to begin.", f"Use {error}.", exit_code=2) from None


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _bootstrap(pipeline: "Pipeline", wanted: Wanted) -> str:
    return wanted.bootstrap or pipeline.settings.bootstrap or DEFAULT_BOOTSTRAP


def _told(error: "BadPipeline", *, as_json: bool) -> typer.Exit:
    """All mistakes, one a line, in the form that compilers use and editors understand."""
    if as_json:
        mistakes: list[dict[str, Any]] = [
            {"file": each.place.file, "line": each.place.line, "what": each.what} for each in error.mistakes
        ]
        print_json({"mistakes": mistakes})
    else:
        for mistake in error.mistakes:
            note(str(mistake))
    return typer.Exit(MISTAKES_EXIT)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "`", ")")) else f"{text}."
