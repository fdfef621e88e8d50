"""`headwater audit`: who did what, from the topic that the nodes write."""

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.broker.audit.audit_event import DENIALS, AuditKind, AuditRecord, time_text
from headwater.cli.acl_grant import principal_of
from headwater.cli.brokers import Bootstrap, ClientFile, brokers_of
from headwater.cli.client import cluster
from headwater.cli.duration import HELP, duration_option_ms
from headwater.cli.output import print_table, say, shown

if TYPE_CHECKING:
    from headwater.cli.audit_reading import AuditReader

app = typer.Typer(help="Look up who did what.", no_args_is_help=True, add_completion=False)

COLUMNS: Final = ("time", "verdict", "who", "from", "what", "on", "why", "times")
SEPARATOR: Final = "  "

Since = Annotated[str, typer.Option("--since", metavar="1h", help=f"How far back: {HELP}.")]
Of = Annotated[str | None, typer.Option("--of", metavar="USER", help="Only what this user did, or tried.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    is_denied: bool = False
    principal: str | None = None
    resource: tuple[str, str] | None = None
    """Type and name."""

    def takes(self, record: AuditRecord) -> bool:
        event = record.event
        if self.is_denied and event.verdict not in DENIALS:
            return False
        if self.principal is not None and event.principal != self.principal:
            return False
        return self.resource is None or (event.resource_type, event.name) == self.resource


@app.callback()
def audit() -> None:
    """With one command so far, which keeps its name."""


@app.command()
def tail(
    denied: Annotated[bool, typer.Option("--denied", help="Only what was refused, would be, or failed.")] = False,
    of: Of = None,
    on: Annotated[
        tuple[str, str] | None, typer.Option("--on", metavar="TYPE NAME", help="Only about this resource.")
    ] = None,
    since: Since = "1h",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more; Ctrl-C ends.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, as it is in the topic.")] = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Show events of the audit, the oldest first."""
    from headwater.cli.audit_reading import AuditReader

    since_ms = time.time_ns() // 1_000_000 - duration_option_ms(since, "--since")
    kept = AuditFilter(
        is_denied=denied,
        principal=str(principal_of(of)) if of is not None else None,
        resource=(on[0].lower().replace("_", "-"), on[1]) if on is not None else None,
    )
    with cluster(brokers_of(bootstrap, client_file)) as client:
        reader = AuditReader(client, since_ms)
        if follow:
            _follow(reader, kept, json)
        else:
            _show(reader, kept, json)


def _show(reader: "AuditReader", kept: AuditFilter, json: bool) -> None:
    records = [each for each in reader.to_end() if kept.takes(each)]
    if json:
        _print_json(records)
    else:
        print_table(COLUMNS, [_row(each) for each in records], empty="No events.")
    sys.stdout.flush()


def _follow(reader: "AuditReader", kept: AuditFilter, json: bool) -> None:
    from headwater.cli.consume import stop_signals

    with stop_signals() as is_stopping:
        _show(reader, kept, json)
        while not is_stopping():
            records = [each for each in reader.more() if kept.takes(each)]
            if json:
                _print_json(records)
            else:
                for each in records:
                    say(SEPARATOR.join(shown(cell) for cell in _row(each)))
            sys.stdout.flush()


def _print_json(records: list[AuditRecord]) -> None:
    for record in records:
        say(record.to_json().decode())


def _row(record: AuditRecord) -> tuple[object, ...]:
    event = record.event
    what = event.operation or event.mechanism or None
    if event.is_others:
        what = "(others)"
    elif event.kind is AuditKind.NODE:
        what = f"{event.operation} node {record.node}"
    resource = f"{event.resource_type} {event.name}".strip()
    return (
        time_text(record.time_ms),
        event.verdict.value,
        event.principal or None,
        event.address or None,
        f"{event.kind.value}: {what}" if what is not None else event.kind.value,
        resource or None,
        event.rule or ", ".join(event.changes) or None,
        record.count,
    )
