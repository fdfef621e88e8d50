"""How long a right outlives its revocation on the other nodes: `python -m tests.cluster.revocation_time`.

From the moment when node 1 has acknowledged that a binding is deleted, to the first request that is refused on both
other nodes. Each is asked over and over, so the figures have the time of a round trip in them.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from tests.cluster.guarded_nodes import NODES, GuardedNodes, logged_in, three_nodes


async def measure(addresses: dict[int, tuple[str, int]], rounds: int) -> list[float]:
    """Milliseconds, one for each round: of the slower node."""
    async with logged_in(addresses) as nodes:
        figures = []
        for _ in range(rounds):
            await nodes.allow()
            await nodes.revoke()
            acknowledged_s = time.perf_counter()
            refused_s = await asyncio.gather(*(_refused_at_s(nodes, node) for node in NODES[1:]))
            figures.append((max(refused_s) - acknowledged_s) * 1000)
        return figures


async def _refused_at_s(nodes: GuardedNodes, node: int) -> float:
    while not await nodes.refuses(node):
        continue
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--metadata", help="the URL of etcd or ZooKeeper; a SQLite file by default")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        three_nodes(Path(directory), options.metadata) as addresses,
    ):
        figures = sorted(asyncio.run(measure(addresses, options.rounds)))
    p99 = statistics.quantiles(figures, n=100, method="inclusive")[98]
    print(f"{options.rounds} revocations: p50 {statistics.median(figures):.0f} ms, p99 {p99:.0f} ms, ", end="")
    print(f"longest {figures[-1]:.0f} ms")


if __name__ == "__main__":
    main()
