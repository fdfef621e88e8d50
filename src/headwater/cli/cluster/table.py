"""The view of a local cluster while it runs: a live table on a terminal, otherwise a line for each change."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.cli.cluster.secured import SecuredCluster
from headwater.cli.cluster.up import LocalClusterSnapshot, LocalClusterView
from headwater.cli.output import note, say, size

if TYPE_CHECKING:
    from headwater.model.cluster import Node

REFRESHES_PER_S = 4
COLUMNS = ("process", "state", "address", "roles", "rack", "leads", "replicas", "free", "")


@contextmanager
def cluster_view(*, with_logs: bool) -> Iterator[LocalClusterView]:
    """On stderr; the addresses of a cluster that is up are the result, on stdout."""
    if sys.stderr.isatty():
        with _live_table(with_logs) as view:
            yield view
    else:
        yield LocalClusterView(_prefixed if with_logs else _silent, note, _Lines().show, _welcome)


def rows(snapshot: LocalClusterSnapshot) -> list[tuple[str, ...]]:
    """One row for each process."""
    watch = snapshot.watch
    nodes: dict[str, Node] = {}
    leads, replicas = Counter[int](), Counter[int]()
    controller = None
    if watch is not None:
        nodes = {f"node-{node.node_id}": node for node in watch.nodes.values()}
        owners = {store: record.node_id for store, record in watch.stores.items()}
        controller = watch.controller.node if watch.controller is not None else None
        for item in watch.heads.items.values():
            leads[item.value.leader] += 1
            if item.value.open is not None:
                replicas.update(owners[store] for store in item.value.open.replicas if store in owners)
    drawn = []
    addresses = {node.name: node.address for node in snapshot.plan.nodes}
    addresses["console"] = snapshot.plan.console or ""
    for child in snapshot.children:
        node = nodes.get(child.name)
        cells = [child.name, child.state, addresses.get(child.name, snapshot.metadata_url)]
        if node is None:
            cells += ["", "", "", "", "", ""]
        else:
            free = size(sum(store.free_bytes for store in node.stores)) if node.stores else "-"
            is_controller = "controller" if node.node_id == controller else ""
            counts = [str(leads[node.node_id]), str(replicas[node.node_id])]
            cells += [",".join(node.roles), node.rack or "-", *counts, free, is_controller]
        drawn.append(tuple(cells))
    return drawn


def welcome(snapshot: LocalClusterSnapshot) -> list[str]:
    nodes = snapshot.plan.nodes
    return [
        f"A cluster of {len(nodes)} nodes is up.",
        f"  {'bootstrap':<12}{snapshot.plan.bootstrap}",
        f"  {'metadata':<12}{snapshot.metadata_url}",
        f"  {'console':<12}{snapshot.plan.console or 'none'}",
        *_next_steps(snapshot),
        f"  {'stop':<12}Ctrl-C",
    ]


def _next_steps(snapshot: LocalClusterSnapshot) -> list[str]:
    if not snapshot.plan.is_secure:
        return [f"  {'try':<12}headwater produce --bootstrap {snapshot.plan.nodes[0].address} greetings hello"]
    secured = SecuredCluster(snapshot.directory)
    client = f"--client {secured.admin_file}"
    return [
        f"  {'security':<12}TLS and logins for clients, TLS between nodes, access control",
        f"  {'admin':<12}{secured.admin_file} (and others beside it)",
        f"  {'http token':<12}{secured.token_file}",
        f"  {'try':<12}headwater produce {client} greetings hello",
        f"  {'':<12}headwater user create alice {client}",
        f"  {'':<12}headwater acl allow alice consume topic greetings --group readers {client}",
        f"  {'':<12}headwater cluster status --data {snapshot.directory}",
    ]


def _welcome(snapshot: LocalClusterSnapshot) -> None:
    for line in welcome(snapshot):
        say(line)
    sys.stdout.flush()


def _prefixed(name: str, line: str) -> None:
    note(f"{name:<8}| {line}")


def _silent(name: str, line: str) -> None:
    """The output is in the log files."""


class _Lines:
    """Writes a line for each process whose state has changed."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    def show(self, snapshot: LocalClusterSnapshot) -> None:
        for child in snapshot.children:
            if self._states.get(child.name) != child.state:
                self._states[child.name] = child.state
                note(f"{child.name}: {child.state}")


@contextmanager
def _live_table(with_logs: bool) -> Iterator[LocalClusterView]:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def table(snapshot: LocalClusterSnapshot) -> Table:
        drawn = Table(box=None, pad_edge=False)
        for name in COLUMNS:
            is_number = name in ("leads", "replicas", "free")
            drawn.add_column(name, justify="right" if is_number else "left", header_style="bold")
        for row in rows(snapshot):
            drawn.add_row(*map(Text, row))
        return drawn

    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=REFRESHES_PER_S, redirect_stdout=False) as live:

        def above(name: str, line: str) -> None:
            live.console.print(Text(f"{name:<8}| {line}"), soft_wrap=True)

        def tell(line: str) -> None:
            live.console.print(Text(line, style="bold"), soft_wrap=True)

        def ready(snapshot: LocalClusterSnapshot) -> None:
            if sys.stdout.isatty():
                live.console.print(Text("\n".join(welcome(snapshot))), soft_wrap=True)
            else:
                _welcome(snapshot)

        yield LocalClusterView(
            above if with_logs else _silent, tell, lambda snapshot: live.update(table(snapshot)), ready
        )
