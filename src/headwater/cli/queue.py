"""`headwater queue`: topics that many workers read record by record, and their dead letters."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from headwater.cli.brokers import Bootstrap, ClientFile, brokers_of
from headwater.cli.client import Json, client_config, client_problems, clients, kafka_problems, topic_metadata
from headwater.cli.consume import stop_signals
from headwater.cli.group_lag import lag_fields, table_rows
from headwater.cli.output import CommandFailed, note, print_json, print_table, say
from headwater.cli.subscription import Name, show_subscription
from headwater.cli.subscription_status import QUEUE, readers, subscription
from headwater.gateway.redrive.failures import BadFilter, BadTarget, OriginUnknown, RedriveFailed
from headwater.gateway.redrive.tally import RedriveOptions, Tally

app = typer.Typer(help="Look at queues, and send dead letters back.", no_args_is_help=True, add_completion=False)

DEAD_LETTERS = "errors.deadletterqueue.topic.name"


@app.command("list")
def list_queues(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only queues on this topic.")] = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """List the queues."""
    brokers = brokers_of(bootstrap, client_file)
    with clients(brokers) as both:
        if topic is not None:
            topic_metadata(both.admin, topic, brokers)
        rows = [
            {
                "queue": status.name,
                "topic": each or None,
                "state": status.shown_state,
                **lag_fields(status.lag(each or None)),
                "dead_letters": status.config.values.get(DEAD_LETTERS, ""),
            }
            for status, each in readers(both, topic)
            if status.kind == QUEUE
        ]
    if json:
        print_json(rows)
        return
    print_table(
        ("queue", "topic", "state", "lag", "dead letters"),
        table_rows(rows),
        empty="No queues yet. `headwater subscription create TOPIC NAME --queue` makes one.",
    )


@app.command()
def describe(name: Name, json: Json = False, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """Show a queue's positions, what is left in it, its workers and its settings."""
    brokers = brokers_of(bootstrap, client_file)
    with clients(brokers) as both:
        status = subscription(both, name)
        if status is not None and status.kind != QUEUE:
            raise CommandFailed(
                f"{name} is a stream, not a queue.", f"`headwater subscription describe {name}` shows it."
            )
        if status is None:
            raise CommandFailed(f"Queue {name} does not exist.", "`headwater queue list` shows the existing queues.")
        show_subscription(both, status, brokers, json=json)


@app.command()
def redrive(
    topic: Annotated[str, typer.Argument(metavar="DLQ_TOPIC", help="The topic with the dead letters.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Send them there, not to where they came from.")
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option("--filter", metavar="EXPR", help="Only letters whose key and headers match; the others stay."),
    ] = None,
    rate: Annotated[str | None, typer.Option("--rate", metavar="N/s", help="At most so many a second.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen, and do nothing.")] = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Send dead letters back to the topics they came from.

    Each is sent once, however often the command is repeated; Ctrl-C ends it in order. The letters themselves stay in
    their topic until its retention deletes them. All readers of the original topic see the records again."""
    from headwater.gateway.redrive.redrive import Redrive

    brokers = brokers_of(bootstrap, client_file)
    options = RedriveOptions(topic, to, filter, _rate_per_s(rate), limit, dry_run)
    settings = client_config(brokers)
    with (
        _redrive_problems(),
        kafka_problems(brokers),
        client_problems(brokers),
        _progress() as on_progress,
        stop_signals() as is_stopping,
    ):
        tally = Redrive(options, settings, on_progress, is_stopping).run()
    if tally.may_repeat:
        note("Not all records that were sent before could be read: some may have been sent twice.")
    if json:
        print_json(
            {
                "topic": topic,
                "redriven": tally.redriven,
                "targets": dict(tally.targets),
                "filtered": tally.filtered,
                "sent_before": tally.sent_before,
                "gone": tally.gone,
                "dry_run": dry_run,
            }
        )
        return
    _report(tally, dry_run)


def _report(tally: Tally, is_dry_run: bool) -> None:
    count = tally.redriven
    did = "Would redrive" if is_dry_run else "Redrove"
    targets = ", ".join(f"{number} to {target}" for target, number in sorted(tally.targets.items()))
    say(f"{did} {count} record{'s' * (count != 1)}{': ' if targets else ''}{targets}.")
    if tally.filtered:
        note(f"{tally.filtered} did not match the filter, and stay.")
    if tally.sent_before:
        note(f"{tally.sent_before} had been sent back before.")
    if tally.gone:
        note(f"{tally.gone} only name the record they came from, and that record is deleted.")


@contextmanager
def _redrive_problems() -> Iterator[None]:
    """Raise failures of a redrive as CommandFailed."""
    try:
        yield
    except BadFilter as failure:
        raise CommandFailed(f"--filter {failure}", exit_code=2) from failure
    except BadTarget as failure:
        raise CommandFailed(
            str(failure), "`headwater topic list` shows the existing topics; name another with --to."
        ) from failure
    except OriginUnknown as failure:
        raise CommandFailed(str(failure), "Name a topic with --to.") from failure
    except RedriveFailed as failure:
        raise CommandFailed(str(failure), "Repeat it: records that were sent are not sent again.") from failure


def _rate_per_s(text: str | None) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9})(/s)?", text, re.ASCII)
    if match is None or not int(match[1]):
        raise CommandFailed(
            f"--rate {text!r} is not a rate.", "Use a number of records a second, such as 100/s.", exit_code=2
        )
    return int(match[1])


@contextmanager
def _progress() -> Iterator[Callable[[Tally], None]]:
    """Counts the dead letters on a terminal."""
    if not sys.stderr.isatty():
        yield _no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (TextColumn("letters"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("redrive", total=None)
        yield lambda tally: bar.update(task, completed=tally.looked_at, total=tally.total)


def _no_progress(tally: Tally) -> None:
    pass
