"""Nodes that come and go, stores that are emptied or lost, and where segments lie meanwhile."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli.brokers import Brokers
from headwater.cli.cluster.kafka_description import ask_brokers
from headwater.cli.main import app
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import Is, Put
from headwater.model.cluster import Node, Role, StoreRecord, StoreState
from headwater.model.ids import StoreId
from tests.cluster.small_cluster import SEGMENT_BYTES, SmallCluster, filling
from tests.support.wire import ask

LOG_DIRS = 35


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SmallCluster]:
    with SmallCluster(tmp_path) as cluster:
        yield cluster


def headwater(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_new_segments_land_on_a_node_that_is_added_and_no_old_one_moves(cluster: SmallCluster) -> None:
    cluster.add_all(1, 2, 3)
    cluster.create("t", replicas=3, segment_bytes=str(SEGMENT_BYTES))
    cluster.produce("t", filling(3))
    # A leader that had not heard of all three yet began with fewer, and the rest would be copied to node 4.
    cluster.wait_until("each has three replicas", lambda: {len(it.replicas) for it in cluster.segments("t")} == {3})
    before = {segment.id: segment.replicas for segment in cluster.segments("t")}
    cluster.add(4)
    new = cluster.store_of(4)

    # Of four stores each segment takes three, the leader's own among them: one that avoids node 4 has a chance of 1/3,
    # as soon as the leader has heard of it.
    def has_a_segment() -> bool:
        cluster.produce("t", filling(1))
        return any(new in segment.replicas for segment in cluster.segments("t"))

    cluster.wait_until("a segment is on node 4", has_a_segment)
    after = {segment.id: segment.replicas for segment in cluster.segments("t")}
    assert {segment: after[segment] for segment in before} == before


def test_a_node_without_a_store_leads_serves_and_goes_without_a_trace(cluster: SmallCluster) -> None:
    cluster.add_all(1, 2)
    cluster.add(7, roles="broker")
    cluster.assign("t", [[7, 1], [1, 2]])
    cluster.wait_until("node 7 leads", lambda: cluster.partition("t").leader == 7)
    assert {node.node: node.roles for node in cluster.facts().nodes}[7] == ("broker",)
    cluster.produce("t", [b"one", b"two"])
    assert cluster.read("t", 2) == [b"one", b"two"]
    assert ask(cluster.nodes[7], LOG_DIRS, 4, topics=None).results == []
    stores = {store.node for store in cluster.facts().stores or ()}
    assert stores == {1, 2}
    cluster.remove(7)
    cluster.produce("t", [b"three"])
    assert cluster.read("t", 3) == [b"one", b"two", b"three"]
    assert {node.node for node in cluster.facts().nodes} == {1, 2}


def test_a_store_node_keeps_replicas_and_leads_nothing(cluster: SmallCluster) -> None:
    cluster.add_all(1, 2)
    cluster.add(5, roles="store")
    cluster.create("t", partitions=6, replicas=3)
    cluster.wait_until("all are in sync", lambda: all(len(it.isrs) == 3 for it in partitions_of(cluster, "t")))
    assert set(cluster.admin.list_topics(timeout=60).brokers) == {1, 2}
    assert {partition.leader for partition in partitions_of(cluster, "t")} == {1, 2}
    assert all(sorted(partition.isrs) == [1, 2, 5] for partition in partitions_of(cluster, "t"))
    cluster.produce("t", [b"kept"])
    (result,) = ask(cluster.nodes[5], LOG_DIRS, 4, topics=None).results
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }
    assert sizes["t", 0] > 0


def test_replicas_are_spread_over_racks(cluster: SmallCluster) -> None:
    racks = {1: "east", 2: "east", 3: "west", 4: "west"}
    for node, rack in racks.items():
        cluster.add(node, rack=rack)
    cluster.create("t", partitions=12, replicas=2)
    cluster.wait_until(
        "every node knows all others", lambda: all(len(it.isrs) == 2 for it in partitions_of(cluster, "t"))
    )
    for partition in partitions_of(cluster, "t"):
        assert {racks[node] for node in partition.isrs} == {"east", "west"}, f"{partition.id}: {partition.isrs}"


def partitions_of(cluster: SmallCluster, topic: str) -> list[Any]:
    cluster.partition(topic)  # is known
    return list(cluster.admin.list_topics(timeout=60).topics[topic].partitions.values())


def test_a_drained_store_is_emptied_and_its_node_can_be_removed(cluster: SmallCluster) -> None:
    cluster.add_all(1, 2, 3)
    values = filling(2)
    cluster.create("t", partitions=3, replicas=2, segment_bytes=str(SEGMENT_BYTES))
    for partition in range(3):
        cluster.produce("t", values, partition)
    said = headwater("cluster", "drain", "3", "--metadata", cluster.metadata_url, "--wait", "60")
    assert "It is empty" in said
    (drained,) = [store for store in cluster.facts().stores or () if store.node == 3]
    assert (drained.state, drained.segments, drained.open) == ("draining", 0, 0)
    cluster.wait_until("node 3 leads nothing", lambda: all(n.leads == 0 for n in cluster.facts().nodes if n.node == 3))
    cluster.remove(3)
    for partition in range(3):
        assert cluster.read("t", len(values), partition) == values
    assert cluster.facts().is_healthy


def test_a_drain_that_is_taken_back_lets_the_store_take_segments_again(cluster: SmallCluster) -> None:
    cluster.add_all(1, 2)
    headwater("cluster", "drain", "2", "--metadata", cluster.metadata_url)
    cluster.wait_until("the store is not used", lambda: _usable(cluster) == 1)
    headwater("cluster", "drain", cluster.store_of(2)[:8], "--metadata", cluster.metadata_url, "--undo")
    cluster.wait_until("the store is used", lambda: _usable(cluster) == 2)


_probes = itertools.count()


def _usable(cluster: SmallCluster) -> int:
    """How many stores the open segment of a new topic lies on: it wants three."""
    name = f"probe-{next(_probes)}"
    cluster.create(name, replicas=-1)
    return len(cluster.open_replicas(name))


def test_a_store_is_lost_only_if_it_is_away_and_somebody_says_so(cluster: SmallCluster) -> None:
    cluster.add_all(1, 2, 3)
    cluster.create("t", replicas=2, segment_bytes=str(SEGMENT_BYTES))
    cluster.produce("t", filling(2))
    cluster.wait_until("two are in sync", lambda: len(cluster.partition("t").isrs) == 2)
    gone = cluster.partition("t").isrs[1]
    store, url = cluster.store_of(gone), cluster.metadata_url
    refused = CliRunner().invoke(app, ["cluster", "lost", store, "--metadata", url, "--yes"])
    assert refused.exit_code == 1
    assert "is alive" in refused.output
    cluster.remove(gone)
    unasked = CliRunner().invoke(app, ["cluster", "lost", store, "--metadata", url])
    assert unasked.exit_code == 2
    assert "--yes" in unasked.output
    assert "is lost" in headwater("cluster", "lost", str(gone), "--metadata", url, "--yes")
    # What it had is copied from the others at once, not after the ten minutes that a restart may take.
    cluster.wait_until(
        "no segment names the lost store", lambda: all(store not in it.replicas for it in cluster.segments("t"))
    )
    assert cluster.read("t", len(filling(2))) == filling(2)
    assert "counts again" in headwater("cluster", "lost", store, "--metadata", url, "--undo")


def test_a_replica_that_is_away_is_shown_and_comes_back_by_itself(cluster: SmallCluster) -> None:
    cluster.add_all(1, 2, 3)
    cluster.assign("t", [[1, 2, 3]])
    cluster.produce("t", [b"x"])
    cluster.wait_until("three are in sync", lambda: sorted(cluster.partition("t").isrs) == [1, 2, 3])
    cluster.wait_until("all know it", lambda: cluster.facts().is_healthy)
    cluster.nodes[3].stop()
    cluster.wait_until("two are in sync", lambda: sorted(cluster.partition("t").isrs) == [1, 2])
    cluster.wait_until("three are wanted", lambda: sorted(cluster.partition("t").replicas) == [1, 2, 3])
    short = [(it.topic, it.partition, it.in_sync, it.wanted, it.problem) for it in cluster.facts().problems]
    assert short == [("t", 0, (1, 2), 3, "under-replicated")]
    cluster.wait_until("it is known since when it is gone", lambda: cluster.facts().nodes[2].down_since_ms is not None)
    away = cluster.facts().nodes[2]
    assert (away.node, away.is_up, away.leads, away.in_sync) == (3, False, 0, 0)
    assert away.address == cluster.nodes[3].bootstrap
    by_kafka = ask_brokers(Brokers(",".join(cluster.nodes[number].bootstrap for number in (1, 2))))
    (missed,) = [it for it in by_kafka.nodes if not it.is_up]
    assert (missed.node, missed.address, missed.down_since_ms) == (3, away.address, away.down_since_ms)
    cluster.nodes[3].start()
    cluster.wait_until("three are in sync", lambda: sorted(cluster.partition("t").isrs) == [1, 2, 3])
    cluster.wait_until("all is well", lambda: cluster.facts().is_healthy)


def test_records_of_a_newer_version_in_the_metadata_are_read_as_far_as_they_are_known(cluster: SmallCluster) -> None:
    cluster.add_all(1, 2)

    async def write_as_a_newer_node() -> None:
        metadata = await open_metadata(cluster.metadata_url)
        store, node = keys.store_key(StoreId("f" * 32)), keys.node_key(9, 99)
        stored = keys.encode(StoreRecord(StoreId("f" * 32), 9, StoreState.ACTIVE))
        alive = keys.encode(
            Node(
                node_id=9, epoch=99, host="127.0.0.1", port=1, peer_host="127.0.0.1", peer_port=1, roles=(Role.BROKER,)
            )
        )
        newer = [
            Put(store, stored[:-1] + b',"encryption":{"kind":"none"}}'),
            Put(node, alive.replace(b'"broker"', b'"archivist"')[:-1] + b',"quota":{"bytes":1}}'),
        ]
        assert (await metadata.txn([Is(store, 0), Is(node, 0)], newer)).ok
        await metadata.close()

    asyncio.run(write_as_a_newer_node())
    cluster.create("t", replicas=2)
    cluster.produce("t", [b"x"])
    facts = cluster.facts()
    assert {store.node for store in facts.stores or ()} == {1, 2, 9}
    assert {node.node: node.roles for node in facts.nodes}[9] == ()
    assert set(cluster.admin.list_topics(timeout=60).brokers) == {1, 2}
