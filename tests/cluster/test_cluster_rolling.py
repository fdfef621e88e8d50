"""Every node is restarted, one after the other, while records are produced and consumed."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from headwater.testing.processes.etcd_process import EtcdProcess, find_etcd
from tests.cluster.small_cluster import PATIENCE_S, SmallCluster
from tests.support.eventually import eventually
from tests.support.producing import Producing

PARTITIONS = 3
REBALANCED = (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SmallCluster]:
    """Processes with etcd, as clusters are run; with SQLite where there is no etcd."""
    if find_etcd() is None:
        with SmallCluster(tmp_path, subprocess=True) as cluster:
            yield cluster.add_all(1, 2, 3)
        return
    with EtcdProcess.start(tmp_path) as etcd, SmallCluster(tmp_path, etcd.url(), subprocess=True) as cluster:
        yield cluster.add_all(1, 2, 3)


class Consuming:
    """A member of a group. It counts what it has read when that is committed: a record that it counts twice was given
    to it twice."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.read: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.read.values()))

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._is_over.is_set():
            records = [record for record in self._consumer.consume(500, 0.1) if not record.error()]
            if records and self._is_committed():
                for record in records:
                    self.read[record.partition()].append(int(record.value()))

    def _is_committed(self) -> bool:
        """False if the group was rebalanced meanwhile: then the records are given out again."""

        def outcome() -> tuple[bool] | None:
            try:
                self._consumer.commit(asynchronous=False)
            except KafkaException as error:
                return (False,) if error.args[0].code() in REBALANCED else None
            return (True,)

        return eventually(outcome, "a commit is answered", patience_s=PATIENCE_S)[0]


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_doubled_while_every_node_is_restarted(cluster: SmallCluster) -> None:
    cluster.create("t", PARTITIONS, 3, **{"min.insync.replicas": "2"})
    bootstrap = cluster.bootstrap
    producing, consuming = Producing({"bootstrap.servers": bootstrap}, "t", PARTITIONS), Consuming(bootstrap, "t")
    try:
        for number, node in cluster.nodes.items():
            reached = producing.count + 100
            cluster.wait_until("records are acknowledged", partial(producing.has_reached, reached))
            node.stop()
            assert number not in leaders(cluster, PARTITIONS), "a node that stops hands over first"
            reached = producing.count + 100
            cluster.wait_until("the others go on", partial(producing.has_reached, reached))
            node.start()
            cluster.wait_until("all is well", lambda: cluster.facts().is_healthy)
    finally:
        producing.stop()
    sent = producing.acknowledged
    cluster.wait_until("all is read", lambda: all(set(sent[it]) <= set(consuming.read[it]) for it in sent))
    consuming.stop()
    assert producing.failed == []
    for partition, numbers in sent.items():
        assert numbers == list(range(len(numbers))), "every record is acknowledged, in order"
        assert [int(value) for value in cluster.read("t", len(numbers), partition)] == numbers
        twice = [number for number, times in Counter(consuming.read[partition]).items() if times > 1]
        assert twice == [], "the group went on where it was"


def leaders(cluster: SmallCluster, partitions: int) -> set[int]:
    """As the metadata has it, that is, without what a node has not heard of yet."""
    return {cluster.head("t", index).leader for index in range(partitions)}


def test_a_stop_hands_over_before_it_closes(cluster: SmallCluster) -> None:
    cluster.assign("t", [[1, 2, 3]] * 4)
    started = time.monotonic()
    cluster.nodes[1].stop()
    assert leaders(cluster, 4) <= {2, 3}, f"it took {time.monotonic() - started:.1f} s"
    cluster.produce("t", [b"x"])
