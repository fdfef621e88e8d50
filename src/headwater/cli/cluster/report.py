"""The state of a cluster in tables."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headwater.cli.output import note, print_table, say, size

if TYPE_CHECKING:
    from headwater.cli.cluster_facts import ClusterFacts, NodeFacts

MOST_PROBLEMS = 20


def print_facts(facts: "ClusterFacts") -> None:
    controller = f"controller {facts.controller}" if facts.controller >= 0 else "no controller"
    up, known = facts.nodes_up, len(facts.nodes)
    nodes = counted(known, "node") if up == known else f"{up} of {counted(known, 'node')}"
    say(
        f"Cluster {facts.cluster_id}: {nodes}, {controller}, "
        f"{counted(facts.partitions, 'partition')}, {facts.under_replicated} under-replicated, "
        f"{facts.leaderless} without a leader"
    )
    has_roles = any(node.roles is not None for node in facts.nodes)
    columns = ["node", "state", "address", "rack", "leads", "in sync", "used", "free"]
    print_table(
        [*columns, *(["roles"] if has_roles else [])],
        [
            (
                node.node, _state(node), node.address, node.rack, node.leads, node.in_sync, size(node.used_bytes),
                size(node.free_bytes),
                *([",".join(node.roles or ()) + (" (leaving)" if node.is_leaving else "")] if has_roles else []),
            )
            for node in facts.nodes
        ],
    )  # fmt: skip
    for address in facts.cannot_tell:
        note(f"headwater: {address} does not tell what its disk holds.")
    if facts.stores is not None:
        say("")
        print_table(
            ("store", "node", "state", "segments", "open", "size", "free"),
            [
                (
                    store.store, store.node, store.state if store.is_alive else f"{store.state}, away",
                    store.segments, store.open, size(store.bytes), size(store.free_bytes),
                )
                for store in facts.stores
            ],
        )  # fmt: skip
    if facts.problems:
        say("")
        print_table(
            ("partition", "leader", "in sync", "wanted", "problem"),
            [
                (f"{it.topic}-{it.partition}", it.leader, ",".join(map(str, it.in_sync)), it.wanted, it.problem)
                for it in facts.problems[:MOST_PROBLEMS]
            ],
        )
        if len(facts.problems) > MOST_PROBLEMS:
            say(f"... and {len(facts.problems) - MOST_PROBLEMS} more")


def _state(node: "NodeFacts") -> str:
    if node.is_up:
        return "up"
    if node.down_since_ms is None:
        return "down"
    return f"down since {datetime.fromtimestamp(node.down_since_ms / 1000, UTC).isoformat(timespec='seconds')}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
