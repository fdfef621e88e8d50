"""How a local cluster looks while it runs: a live table on a terminal, a line whenever something changes in a log."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.cli.cluster.up import Audience, Sight
from headwater.cli.output import note, say, size

if TYPE_CHECKING:
    from headwater.model.cluster import Node

REFRESHES_PER_S = 4
COLUMNS = ("process", "state", "address", "roles", "rack", "leads", "replicas", "free", "")


@contextmanager
def cluster_view(*, with_logs: bool) -> Iterator[Audience]:
    """On stderr; what is said once the cluster is up is a result, on stdout."""
    if sys.stderr.isatty():
        with _live_table(with_logs) as audience:
            yield audience
    else:
        yield Audience(_prefixed if with_logs else _silent, note, _Lines().show, _welcome)


def rows(sight: Sight) -> list[tuple[str, ...]]:
    """One for each process."""
    watch = sight.watch
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
    addresses = {node.name: node.address for node in sight.plan.nodes}
    addresses["console"] = sight.plan.console or ""
    for child in sight.children:
        node = nodes.get(child.name)
        cells = [child.name, child.state, addresses.get(child.name, sight.metadata_url)]
        if node is None:
            cells += ["", "", "", "", "", ""]
        else:
            free = size(sum(store.free_bytes for store in node.stores)) if node.stores else "-"
            is_controller = "controller" if node.node_id == controller else ""
            counts = [str(leads[node.node_id]), str(replicas[node.node_id])]
            cells += [",".join(node.roles), node.rack or "-", *counts, free, is_controller]
        drawn.append(tuple(cells))
    return drawn


def welcome(sight: Sight) -> list[str]:
    nodes = sight.plan.nodes
    return [
        f"A cluster of {len(nodes)} nodes is up.",
        f"  {'bootstrap':<12}{sight.plan.bootstrap}",
        f"  {'metadata':<12}{sight.metadata_url}",
        f"  {'console':<12}{sight.plan.console or 'none'}",
        f"  {'try':<12}headwater produce --bootstrap {nodes[0].address} greetings hello",
        f"  {'stop':<12}Ctrl-C",
    ]


def _welcome(sight: Sight) -> None:
    for line in welcome(sight):
        say(line)
    sys.stdout.flush()


def _prefixed(name: str, line: str) -> None:
    note(f"{name:<8}| {line}")


def _silent(name: str, line: str) -> None:
    """Logs are in their files."""


class _Lines:
    """Tells of a process whose state is another than before."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    def show(self, sight: Sight) -> None:
        for child in sight.children:
            if self._states.get(child.name) != child.state:
                self._states[child.name] = child.state
                note(f"{child.name}: {child.state}")


@contextmanager
def _live_table(with_logs: bool) -> Iterator[Audience]:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def table(sight: Sight) -> Table:
        drawn = Table(box=None, pad_edge=False)
        for name in COLUMNS:
            is_number = name in ("leads", "replicas", "free")
            drawn.add_column(name, justify="right" if is_number else "left", header_style="bold")
        for row in rows(sight):
            drawn.add_row(*map(Text, row))
        return drawn

    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=REFRESHES_PER_S, redirect_stdout=False) as live:

        def above(name: str, line: str) -> None:
            live.console.print(Text(f"{name:<8}| {line}"), soft_wrap=True)

        def tell(line: str) -> None:
            live.console.print(Text(line, style="bold"), soft_wrap=True)

        def ready(sight: Sight) -> None:
            if sys.stdout.isatty():
                live.console.print(Text("\n".join(welcome(sight))), soft_wrap=True)
            else:
                _welcome(sight)

        yield Audience(above if with_logs else _silent, tell, lambda sight: live.update(table(sight)), ready)
