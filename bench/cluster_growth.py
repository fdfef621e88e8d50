"""What partitions cost a cluster: a fresh one for each number of them, in one topic with three replicas.

Writable means that a producer has had a record acknowledged by every partition."""

import time

from bench import cluster_measures
from bench.cluster_measures import ADMIN_TIMEOUT_S, create_topic, wait_until_in_sync
from bench.clusters import Cluster
from bench.measures import Figures
from bench.steady import touching
from bench.turns import Say

TOPIC = "grown"
QUIET_S = 20.0
"""After ten thousand partitions were touched their segments are still on the way to disk."""
IDLE_S = 5.0


def grown(cluster: Cluster, count: int, say: Say) -> Figures:
    """Create, kill a node, start it again: how long each takes, what CPU time, and what a node weighs."""
    cluster_measures.start(cluster)
    bare_bytes = max(cluster.resident_bytes().values())
    say(f"{count} partitions: create")
    begun_s = time.monotonic()
    with cluster_measures.cpu_used(cluster) as create_cpu:
        create_topic(cluster, TOPIC, count)
        with touching(cluster.bootstrap, TOPIC, count) as touch:
            touch.begin()
            created_s = touch.end_s() - begun_s
    time.sleep(QUIET_S)
    grown_bytes = max(cluster.resident_bytes().values())
    say(f"{count} partitions: idle")
    with cluster_measures.cpu_used(cluster) as idle_cpu:
        time.sleep(IDLE_S)
    say(f"{count} partitions: a node is killed")
    failover_s, failover_cpu_s = _failover(cluster, count)
    say(f"{count} partitions: the node starts again")
    begun_s = time.monotonic()
    cluster.restart(max(cluster.nodes))
    answering_s = time.monotonic() - begun_s
    wait_until_in_sync(cluster, TOPIC, ADMIN_TIMEOUT_S)
    return {
        "create, until writable": created_s,
        "CPU, create": create_cpu(),
        "memory, largest node": grown_bytes / 1e6,
        "memory, a partition": (grown_bytes - bare_bytes) / 1e3 / count,
        "idle": 100 * idle_cpu() / IDLE_S,
        "failover, until writable": failover_s,
        "CPU, failover": failover_cpu_s,
        "restart, until it answers": answering_s,
        "restart, until in sync": time.monotonic() - begun_s,
    }


def _failover(cluster: Cluster, count: int) -> tuple[float, float]:
    """From the end of a node that leads a third of the partitions until each has taken a record; and the CPU time that
    this took the others."""
    with touching(cluster.bootstrap, TOPIC, count) as touch:
        killed_s = time.monotonic()
        cluster.kill(max(cluster.nodes))
        before_s = cluster.cpu_seconds()
        touch.begin()
        took_s = touch.end_s() - killed_s
    return took_s, cluster.cpu_seconds() - before_s
