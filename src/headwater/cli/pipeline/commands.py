"""`headwater pipeline`: check pipeline files, run them on Spark, and see and stop what runs.

`check` needs neither Spark nor a broker. `list`, `status` and `stop` use the topic headwater.pipelines, to which every
run writes its status, so they work from any machine that reaches the broker.
"""

import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.brokers import Bootstrap, Brokers, ClientFile, brokers_of
from headwater.cli.client import Json, client_config
from headwater.cli.output import CommandFailed, note, print_json, print_table, say
from headwater.cli.pipeline.run import RunArguments, dry_runner, load_graph, now_ms, pipeline_problems, ready_runner
from headwater.cli.pipeline.templates import ready
from headwater.model.durations import UNIT_MS

if TYPE_CHECKING:
    from headwater.pipelines.run.progress import RunStatus
    from headwater.pipelines.run.status_topic import StatusTopic
    from headwater.pipelines.spec.graph import Graph

app = typer.Typer(help="Check, run and watch pipelines on Spark.", no_args_is_help=True, add_completion=False)
app.command()(ready)

STOP_TIMEOUT_S = 60.0
STOP_POLL_S = 0.5

File = Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline: a .toml file or a .py module.")]
Name = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A pipeline's name, or its file.")]
MaybeBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="A broker to ask; wins over the file.  [env var: HEADWATER_BOOTSTRAP]",
        show_default="the file's, or 127.0.0.1:9092",
    ),
]
Master = Annotated[str, typer.Option("--master", help="Where Spark runs: local[2], spark://…, k8s://…, yarn.")]
Conf = Annotated[list[str], typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. May be repeated.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark logs, and whole stacks.")]


@app.command()
def check(
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Also let Spark analyse the queries.")] = False,
    json: Json = False,
    master: Master = "local[2]",
    conf: Conf = [],  # noqa: B006 (typer copies it)
    verbose: Verbose = False,
    bootstrap: MaybeBootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Look for mistakes in a pipeline file, without running it."""
    from headwater.pipelines.spec.sql_text import can_judge

    graph = load_graph(file, as_json=json, is_spark_next=dry_run)
    pipeline = graph.pipeline
    columns: dict[str, list[str]] = {}
    if dry_run:
        arguments = RunArguments(bootstrap, client_file, master, conf, verbose)
        with pipeline_problems(is_verbose=verbose, as_json=json), dry_runner(graph, arguments) as runner:
            columns = {query.name: query.frame.columns for query in runner.plan()}
    rows = _sinks(graph, columns)
    if json:
        print_json({"pipeline": pipeline.name, "mistakes": [], "sinks": rows, "unused": graph.unused})
        return
    say(f"{file} is fine: pipeline {pipeline.name}, checkpoint {pipeline.checkpoint}.")
    print_table(
        ("sink", "kind", "reads", "through", *(("columns",) if columns else ())),
        [tuple(", ".join(value) if isinstance(value, list) else value for value in row.values()) for row in rows],
    )
    if graph.unused:
        note(f"No sink reads: {', '.join(graph.unused)}.")
    if not dry_run and not can_judge():
        note('SQL was not checked: that needs `pip install "headwater[spark]"`.')


@app.command()
def kinds(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="For example parse, or sink.topic.")] = None,
    json: Json = False,
) -> None:
    """Show the kinds of sources, steps and sinks of a pipeline file, or the keys of one kind."""
    from headwater.pipelines.spec import kinds as catalog

    if kind is None:
        rows = [(f"{section}.{name}", doc) for section, name, doc in catalog.kinds()]
        if json:
            print_json(dict(rows))
        else:
            print_table(("kind", "meaning"), rows)
        return
    section, _, name = kind.rpartition(".")
    chosen = [(each, known) for each, known, _ in catalog.kinds() if known == name and section in ("", each)]
    if not chosen:
        raise CommandFailed(f"There is no kind {kind}.", "`headwater pipeline kinds` shows all.")
    keys = {f"{each}.{known}": catalog.keys_of_kind(each, known) for each, known in chosen}
    if json:
        print_json({of: [asdict(key) for key in keys_of_kind] for of, keys_of_kind in keys.items()})
        return
    for of, keys_of_kind in keys.items():
        say(f'[{of.replace(f".{name}", ".NAME")}] with kind = "{name}"')
        print_table(("key", "default", "meaning"), [(key.name, key.default, key.doc) for key in keys_of_kind])


@app.command()
def run(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="Process what is there now, and end.")] = False,
    start: Annotated[
        str | None,
        typer.Option("--from", help="Where topics begin at the first run: earliest, latest, a time or an age (15m)."),
    ] = None,
    master: Master = "local[*]",
    conf: Conf = [],  # noqa: B006 (typer copies it)
    verbose: Verbose = False,
    bootstrap: MaybeBootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Run a pipeline. Ctrl-C stops it; the next run goes on where this one ended."""
    from headwater.cli.consume import stop_signals
    from headwater.cli.pipeline.view import progress_view

    graph = load_graph(file, is_spark_next=True)
    arguments = RunArguments(bootstrap, client_file, master, conf, verbose, once, start)
    with (
        pipeline_problems(is_verbose=verbose),
        progress_view() as view,
        ready_runner(graph, arguments, view.emit) as (runner, also),
        stop_signals() as is_stopping,
    ):

        def on_status(status: "RunStatus") -> None:
            view.show(status)
            also(status)

        status = runner.run(is_stopping, on_status)
    rows = ", ".join(f"{source.source} {source.rows}" for source in status.read)
    note(f"{graph.pipeline.name} {status.state}; {f'rows read: {rows}' if rows else 'nothing was read'}.")


@app.command("list")
def list_pipelines(json: Json = False, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """List the pipelines that run or ran, on all machines."""
    brokers = brokers_of(bootstrap, client_file)
    now = now_ms()
    with pipeline_problems(), _topic(brokers) as topic:
        statuses = sorted(topic.statuses().values(), key=lambda status: status.pipeline)
    if json:
        print_json([_as_json(status, now) for status in statuses])
        return
    print_table(
        ("pipeline", "state", "rows", "in/s", "lag", "host", "pid", "reported"),
        [
            (
                status.pipeline,
                status.state_at(now),
                _total(source.rows for source in status.read),
                _total(source.rows_per_s for source in status.read),
                _total(source.lag for source in status.read),
                status.host,
                status.pid,
                _age(now - status.updated_ms),
            )
            for status in statuses
        ],
        empty="No pipeline has run yet. `headwater pipeline run FILE` runs one.",
    )


@app.command()
def status(name: Name, json: Json = False, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """Show how a pipeline is doing, sink by sink."""
    from headwater.cli.pipeline.view import COLUMNS, query_cells

    brokers = brokers_of(bootstrap, client_file)
    with pipeline_problems(), _topic(brokers) as topic:
        found = _status_of(topic, _name(name))
    now = now_ms()
    if json:
        print_json(_as_json(found, now))
        return
    say(
        f"Pipeline {found.pipeline}: {found.state_at(now)}, reported {_age(now - found.updated_ms)}, "
        f"started {_age(now - found.started_ms)} on {found.host} (process {found.pid}), {found.file}"
    )
    if found.error:
        say(found.error)
    print_table(COLUMNS, [query_cells(query) for query in found.queries])


@app.command()
def stop(
    name: Name,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until it has stopped.")] = True,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Stop a running pipeline, wherever it runs. The next `run` goes on where this one ended."""
    brokers = brokers_of(bootstrap, client_file)
    with pipeline_problems(), _topic(brokers) as topic:
        found = _status_of(topic, _name(name))
        state = found.state_at(now_ms())
        if state != "running":
            raise CommandFailed(
                f"Pipeline {found.pipeline} is not running: {state}.", "`headwater pipeline list` shows what runs."
            )
        topic.ask_to_stop(found)
        until_s = time.monotonic() + STOP_TIMEOUT_S
        while wait and time.monotonic() < until_s:
            now = topic.statuses().get(found.pipeline)
            if now is None or now.run != found.run or now.state != "running":
                say(f"Pipeline {found.pipeline} has stopped.")
                return
            time.sleep(STOP_POLL_S)
    if wait:
        raise CommandFailed(
            f"Pipeline {found.pipeline} was asked to stop {STOP_TIMEOUT_S:.0f} s ago, and still runs.",
            f"Look at its process {found.pid} on {found.host}.",
        )
    say(f"Asked pipeline {found.pipeline} to stop.")


def _topic(brokers: Brokers) -> "StatusTopic":
    from headwater.pipelines.run.status_topic import StatusTopic

    client_config(brokers)  # raises CommandFailed if no broker listens there
    return StatusTopic(brokers.bootstrap, brokers.security_options())


def _sinks(graph: "Graph", columns: dict[str, list[str]]) -> list[dict[str, object]]:
    """Each sink with what it reads, and with its columns where they are known."""
    pipeline = graph.pipeline
    kinds = {part.name: _kind(part) for part in (*pipeline.sources, *pipeline.sinks)}
    sources = {source.name for source in pipeline.sources}
    return [
        {
            "sink": sink.name,
            "kind": kinds[sink.name],
            "reads": sorted(f"{name} ({kinds[name]})" for name in graph.needed_by(sink) & sources),
            "steps": [step.name for step in graph.steps_in_order if step.name in graph.needed_by(sink)],
            **({"columns": columns[sink.name]} if sink.name in columns else {}),
        }
        for sink in pipeline.sinks
    ]


def _status_of(topic: "StatusTopic", name: str) -> "RunStatus":
    found = topic.statuses().get(name)
    if found is None:
        raise CommandFailed(f"Pipeline {name} has not run.", "`headwater pipeline list` shows the pipelines that did.")
    return found


def _name(name_or_file: str) -> str:
    file = Path(name_or_file)
    return (
        load_graph(file, is_spark_next=True).pipeline.name
        if file.suffix in (".toml", ".py") and file.is_file()
        else name_or_file
    )


def _kind(part: Any) -> str:
    return str(part.declared.values.get("kind", "python"))


def _as_json(status: "RunStatus", now: int) -> dict[str, Any]:
    """With the sources of the whole pipeline: a record counts once, however many queries read it."""
    read = [asdict(source) for source in status.read]
    return {**asdict(status), "state": str(status.state_at(now)), "sources": read}


def _total(values: Iterable[float | None]) -> float | None:
    """The sum of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return round(sum(known), 1) if known else None


def _age(age_ms: int) -> str:
    for unit in ("d", "h", "m"):
        if age_ms >= 2 * UNIT_MS[unit]:
            return f"{age_ms // UNIT_MS[unit]}{unit} ago"
    return f"{max(0, age_ms) // UNIT_MS['s']}s ago"
