"""The state of a cluster in tables."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headwater.cli.output import note, print_table, say, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.cli.cluster.description import (
        ClusterDescription,
        NodeDescription,
        PartitionProblem,
        StoreDescription,
    )

MOST_PROBLEMS = 20


def print_description(cluster: "ClusterDescription") -> None:
    _print_summary(cluster)
    _print_nodes(cluster)
    for address in cluster.cannot_tell:
        note(f"headwater: {address} does not answer how much its disk holds.")
    if cluster.stores is not None:
        say("")
        _print_stores(cluster.stores)
    if cluster.problems:
        say("")
        _print_problems(cluster.problems)


def _print_summary(cluster: "ClusterDescription") -> None:
    controller = f"controller {cluster.controller}" if cluster.controller >= 0 else "no controller"
    up, known = cluster.nodes_up, len(cluster.nodes)
    nodes = counted(known, "node") if up == known else f"{up} of {counted(known, 'node')}"
    say(
        f"Cluster {cluster.cluster_id}: {nodes}, {controller}, "
        f"{counted(cluster.partitions, 'partition')}, {cluster.under_replicated} under-replicated, "
        f"{cluster.leaderless} without a leader"
    )


def _print_nodes(cluster: "ClusterDescription") -> None:
    has_roles = any(node.roles is not None for node in cluster.nodes)
    columns = ["node", "state", "address", "rack", "leads", "in sync", "used", "free"]
    print_table(
        [*columns, *(["roles"] if has_roles else [])],
        [
            (
                node.node, _state(node), node.address, node.rack, node.leads, node.in_sync, size(node.used_bytes),
                size(node.free_bytes),
                *([",".join(node.roles or ()) + (" (leaving)" if node.is_leaving else "")] if has_roles else []),
            )
            for node in cluster.nodes
        ],
    )  # fmt: skip


def _print_stores(stores: "Sequence[StoreDescription]") -> None:
    print_table(
        ("store", "node", "state", "segments", "open", "size", "free"),
        [
            (
                store.store, store.node, store.state if store.is_alive else f"{store.state}, away",
                store.segments, store.open, size(store.bytes), size(store.free_bytes),
            )
            for store in stores
        ],
    )  # fmt: skip


def _print_problems(problems: "Sequence[PartitionProblem]") -> None:
    print_table(
        ("partition", "leader", "in sync", "wanted", "problem"),
        [
            (f"{it.topic}-{it.partition}", it.leader, ",".join(map(str, it.in_sync)), it.wanted, it.problem)
            for it in problems[:MOST_PROBLEMS]
        ],
    )
    if len(problems) > MOST_PROBLEMS:
        say(f"... and {len(problems) - MOST_PROBLEMS} more")


def _state(node: "NodeDescription") -> str:
    if node.is_up:
        return "up"
    if node.down_since_ms is None:
        return "down"
    return f"down since {datetime.fromtimestamp(node.down_since_ms / 1000, UTC).isoformat(timespec='seconds')}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
