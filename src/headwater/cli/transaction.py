"""`headwater transaction`: list and describe transactions, find stuck ones, and abort one by hand."""

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.brokers import Bootstrap, ClientFile, brokers_of
from headwater.cli.client import Json, cluster
from headwater.cli.duration import duration_option_ms
from headwater.cli.output import CommandFailed, confirm, note, print_json, print_table, say
from headwater.cli.transaction_requests import (
    ANY_DURATION,
    abort_transaction,
    describe_transaction,
    hanging_transactions,
    list_transactions,
    open_transactions,
)

if TYPE_CHECKING:
    from headwater.client.admin.transactions import OpenTransaction

app = typer.Typer(help="Look at transactions, and end one that is stuck.", no_args_is_help=True, add_completion=False)

OPEN_COLUMNS = ("topic", "partition", "producer", "epoch", "start offset", "last write")


@app.command("list")
def list_all(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only these states, such as Ongoing. May be repeated.")
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="TIME", help="Only transactions that run for so long: 30s, 5m."),
    ] = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """List the transactional ids and the state of their last transaction."""
    brokers = brokers_of(bootstrap, client_file)
    longer_than_ms = duration_option_ms(longer_than, "--longer-than") if longer_than is not None else ANY_DURATION
    with cluster(brokers) as client:
        found = list_transactions(client, state or (), longer_than_ms)
    if json:
        print_json([asdict(each) for each in found])
        return
    print_table(
        ("transactional id", "producer", "state"),
        [(each.transactional_id, each.producer_id, each.state) for each in found],
        empty="No transactions.",
    )


@app.command()
def describe(
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")],
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Show one transaction, and the partitions that it touches."""
    brokers = brokers_of(bootstrap, client_file)
    with cluster(brokers) as client:
        found = describe_transaction(client, transactional_id)
    if json:
        print_json(asdict(found))
        return
    running = ""
    if found.started_ms is not None and found.partitions:
        running = f", running for {max(time.time() - found.started_ms / 1000, 0):.0f} s"
    say(
        f"Transactional id {transactional_id}: {found.state}{running}, producer {found.producer_id}, "
        f"epoch {found.producer_epoch}, time-out {found.timeout_ms} ms"
    )
    print_table(("topic", "partition"), list(found.partitions), empty="It touches no partition now.")


@app.command("open")
def list_open(
    topic: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="All topics if none is named.")
    ] = None,
    hanging: Annotated[
        bool, typer.Option("--hanging", help="Only transactions that no coordinator knows: nothing will end them.")
    ] = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """List transactions that are open in partitions: readers of committed records wait behind them."""
    brokers = brokers_of(bootstrap, client_file)
    with cluster(brokers) as client:
        topics = topic or sorted(client.topics())
        found = hanging_transactions(client, topics) if hanging else open_transactions(client, topics)
    if json:
        print_json([asdict(each) for each in found])
        return
    print_table(OPEN_COLUMNS, [_row(each) for each in found], empty="No open transactions.")


@app.command()
def abort(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION")],
    start_offset: Annotated[int, typer.Argument(metavar="START_OFFSET", help="As `transaction open` shows it.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Abort a transaction in one partition, if its producer and its coordinator will not. Its records are not seen by
    readers of committed ones."""
    brokers = brokers_of(bootstrap, client_file)
    with cluster(brokers) as client:
        found = [
            each
            for each in open_transactions(client, [topic])
            if (each.partition, each.start_offset) == (partition, start_offset)
        ]
        if not found:
            raise CommandFailed(
                f"No transaction that began at offset {start_offset} is open in partition {partition} of {topic}.",
                "`headwater transaction open` shows the open ones.",
            )
        confirm(f"Abort the transaction of producer {found[0].producer_id} in partition {partition} of {topic}?", yes)
        abort_transaction(client, found[0])
    note(f"Aborted the transaction of producer {found[0].producer_id} that began at offset {start_offset}.")


def _row(each: "OpenTransaction") -> tuple[object, ...]:
    written = datetime.fromtimestamp(each.last_written_ms / 1000, UTC).isoformat(timespec="seconds")
    return each.topic, each.partition, each.producer_id, each.producer_epoch, each.start_offset, written
