"""What a pipeline needs before it runs, each with its own message: a broker, topics, Java, Spark."""

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

from headwater.cli.bootstrap import NoBroker
from headwater.cli.brokers import REQUEST_TIMEOUT_S, Brokers, brokers_of
from headwater.cli.client import admin, client_config, parse_assignments
from headwater.cli.output import CommandFailed, note, print_json

if TYPE_CHECKING:
    from headwater.pipelines.jvm.java import Java
    from headwater.pipelines.run.progress import RunStatus
    from headwater.pipelines.run.runner import Runner
    from headwater.pipelines.run.status_topic import StatusTopic
    from headwater.pipelines.spec.graph import Graph
    from headwater.pipelines.spec.mistakes import BadPipeline
    from headwater.pipelines.spec.pipeline import Pipeline
    from headwater.pipelines.spec.starts import Start

MISTAKES_EXIT = 1


@dataclass(frozen=True, slots=True)
class RunArguments:
    """The command line of a run."""

    bootstrap: str | None
    client_file: str | None
    master: str
    conf: list[str]
    is_verbose: bool
    is_once: bool = False
    start: str | None = None


def load_graph(file: Path, *, as_json: bool = False, is_spark_next: bool = False) -> "Graph":
    """The pipeline of a file. Mistakes in it end the command; with `is_spark_next` only mistakes that Spark would not
    report itself."""
    from headwater.pipelines.spec.check import load
    from headwater.pipelines.spec.mistakes import BadPipeline

    try:
        return load(file, is_spark_next=is_spark_next)
    except BadPipeline as error:
        raise _report_mistakes(error, as_json=as_json) from error


@contextmanager
def pipeline_problems(*, is_verbose: bool = False, as_json: bool = False) -> Iterator[None]:
    """Raise failures of pipelines as CommandFailed; with `is_verbose` the stack is printed before."""
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
            raise _report_mistakes(error, as_json=as_json) from error
        hint = "--verbose shows the whole error." if error.__cause__ is not None and not is_verbose else ""
        raise CommandFailed(_sentence(str(error)), hint) from error


@contextmanager
def dry_runner(graph: "Graph", arguments: RunArguments) -> "Iterator[Runner]":
    """A runner that can plan. It needs no broker, and takes no lock."""
    with ExitStack() as stack:
        yield _start_spark(graph, arguments, None, print, stack)[0]


@contextmanager
def ready_runner(
    graph: "Graph", arguments: RunArguments, emit: Callable[[str], None]
) -> "Iterator[tuple[Runner, Callable[[RunStatus], None]]]":
    """A runner that can run, and a callback for its statuses. Everything that can fail before Spark starts is checked
    before."""
    pipeline = graph.pipeline
    with ExitStack() as stack:
        topic = _reach_broker(pipeline, _brokers(pipeline, arguments), stack)
        from headwater.pipelines.run.lock import only_run

        stack.enter_context(only_run(pipeline.name, pipeline.checkpoint))
        classes = stack.enter_context(class_cache_afterwards())
        runner, classes.java = _start_spark(graph, arguments, topic, emit, stack)
        yield runner, classes.see


def _start_spark(
    graph: "Graph",
    arguments: RunArguments,
    topic: "StatusTopic | None",
    emit: Callable[[str], None],
    stack: ExitStack,
) -> "tuple[Runner, Java]":
    from headwater.pipelines.run.runner import Runner, RunOptions
    from headwater.pipelines.run.session import is_local, is_local_path, spark_session, spark_settings
    from headwater.pipelines.run.shipping import ship

    pipeline = graph.pipeline
    brokers = _brokers(pipeline, arguments)
    options = RunOptions(brokers.bootstrap, arguments.is_once, parse_start(arguments.start), brokers.security_options())
    settings = spark_settings(pipeline, arguments.master, parse_assignments(arguments.conf, "--conf"))
    if not is_local(arguments.master) and is_local_path(pipeline.checkpoint):
        note(f"The checkpoint {pipeline.checkpoint} is a local path: executors elsewhere need it on shared storage.")
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-pipeline-")))
    note("Starting Spark …")
    spark, java = stack.enter_context(spark_session(settings, pipeline.directory, is_verbose=arguments.is_verbose))
    ship(pipeline, spark, scratch, is_local=is_local(arguments.master))
    return Runner(graph, spark, options, topic, emit, note), java


def _reach_broker(pipeline: "Pipeline", brokers: Brokers, stack: ExitStack) -> "StatusTopic | None":
    """The status topic, after checks that the broker answers, the topics exist, and no other run is alive. None if a
    pipeline without topics runs without a broker."""
    from headwater.pipelines.run.status_topic import StatusTopic
    from headwater.pipelines.spec.topics import uses_topics

    if not uses_topics(pipeline):
        try:
            client_config(brokers)
        except NoBroker:
            note(f"No broker answers at {brokers}: `headwater pipeline list` will not show this run.")
            return None
    _check_topics(pipeline, brokers)
    topic = stack.enter_context(StatusTopic(brokers.bootstrap, brokers.security_options()))
    topic.create()
    other = topic.statuses().get(pipeline.name)
    if other is not None and _is_alive(other):
        raise CommandFailed(
            f"The pipeline {pipeline.name} is running already, on {other.host} (process {other.pid}).",
            f"`headwater pipeline stop {pipeline.name}` stops it.",
        )
    return topic


def _is_alive(other: "RunStatus") -> bool:
    """On this machine, by its process; on another, by the time of its last status."""
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


def _check_topics(pipeline: "Pipeline", brokers: Brokers) -> None:
    from headwater.pipelines.spec.topics import topics_read_at

    with admin(brokers) as client:
        existing = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    for topic, location in topics_read_at(pipeline):
        if topic not in existing:
            raise CommandFailed(
                f"{location}: Topic {topic} does not exist.",
                "`headwater topic list` shows the existing topics; `headwater topic create` makes one.",
            )


@dataclass(slots=True)
class ClassCache:
    """Which Java ran, and whether a batch was processed: a run that never worked is not worth an archive."""

    java: "Java | None" = None
    is_worth_it: bool = False

    def see(self, status: "RunStatus") -> None:
        self.is_worth_it = self.is_worth_it or any(query.batch is not None for query in status.queries)


@contextmanager
def class_cache_afterwards() -> Iterator[ClassCache]:
    """Builds the archive of classes that makes the next start faster, after Spark has stopped: earlier it would take
    the processor from the run."""
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
        raise CommandFailed(f"--from {text!r} is not a position.", f"Use {error}.", exit_code=2) from None


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _brokers(pipeline: "Pipeline", arguments: RunArguments) -> Brokers:
    return brokers_of(arguments.bootstrap, arguments.client_file, pipeline.settings.bootstrap)


def _report_mistakes(error: "BadPipeline", *, as_json: bool) -> typer.Exit:
    """Print all mistakes, one a line, in the form of compilers, which editors understand."""
    if as_json:
        mistakes: list[dict[str, Any]] = [
            {"file": each.location.file, "line": each.location.line, "what": each.what} for each in error.mistakes
        ]
        print_json({"mistakes": mistakes})
    else:
        for mistake in error.mistakes:
            note(str(mistake))
    return typer.Exit(MISTAKES_EXIT)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "`", ")")) else f"{text}."
