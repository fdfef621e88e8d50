"""Three nodes on this machine as one thing to measure: Headwater with etcd, and Apache Kafka with KRaft.

Each node is a process of its own that can be killed, paused and started again, on a data directory of its own. What a
cluster needs beside its nodes counts as part of it: etcd's CPU time and memory are Headwater's."""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import etcd, kafka
from bench.headwater import headwater_program
from bench.process import BrokerProcess
from bench.report import KAFKA, OS, SYNC

from headwater.transport.ports import free_ports

NODES: Final = (1, 2, 3)
START_TIMEOUT_S: Final = 120.0
"""A node of Kafka on two cores that three of them want."""


class Cluster:
    """Nodes by their ids, and what else has to run. Start, measure, and stop it once."""

    def __init__(
        self, name: str, folder: Path, nodes: Mapping[int, BrokerProcess], beside: Sequence[BrokerProcess] = ()
    ) -> None:
        self.name = name
        self.nodes = nodes
        self._folder = folder
        self._beside = beside

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> None:
        try:
            for process in self._beside:
                process.start()
                process.wait_until_answering()
            for node in self.nodes.values():
                node.start()
            for node in self.nodes.values():
                node.wait_until_answering(START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Killed, not stopped: a clean stop is measured elsewhere, and the data goes anyway."""
        for process in (*self.nodes.values(), *self._beside):
            process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self, node: int) -> None:
        self.nodes[node].kill()

    def restart(self, node: int) -> None:
        """Start a node that was killed or stopped, on the data that it has."""
        self.nodes[node].start()
        self.nodes[node].wait_until_answering(START_TIMEOUT_S)

    def cpu_seconds(self) -> float:
        """Of everything that runs."""
        return sum(process.cpu_seconds() for process in (*self.nodes.values(), *self._beside))

    def resident_bytes(self) -> dict[int, int]:
        """By node."""
        return {number: node.resident_bytes() for number, node in self.nodes.items()}

    def resident_bytes_beside(self) -> int:
        return sum(process.resident_bytes() for process in self._beside)

    def output_tails(self) -> str:
        return "\n".join(f"node {number}: {node.output_tail()}" for number, node in self.nodes.items())


def headwater_cluster(name: str, durability: str, settings: str = "") -> Cluster:
    """`settings` are further lines of each node's configuration."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-cluster-"))
    store = etcd.new_process(folder / "etcd")
    nodes = {}
    for number, port in zip(NODES, free_ports(len(NODES)), strict=True):
        config = folder / f"node-{number}.toml"
        config.write_text(
            f'node_id = {number}\ndata_dir = "{folder / f"node-{number}"}"\nlisten = "127.0.0.1:{port}"\n'
            f'durability = "{durability}"\nmetrics = "off"\nhttp = "off"\n'
            f'metadata = "etcd://{store.bootstrap}/bench"\n{settings}\n'
            '[cluster]\npeer_listen = "127.0.0.1:0"\n'
        )
        command = [headwater_program(), "serve", "--config", str(config), "--log-level", "warning"]
        nodes[number] = BrokerProcess(command, f"127.0.0.1:{port}", folder / f"node-{number}.log")
    return Cluster(name, folder, nodes, [store])


def kafka_cluster() -> Cluster:
    folder = Path(tempfile.mkdtemp(prefix="kafka-cluster-"))
    try:
        return Cluster(KAFKA, folder, kafka.new_nodes(folder, NODES))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


CLUSTERS: dict[str, Callable[[], Cluster]] = {
    KAFKA: kafka_cluster,
    OS: lambda: headwater_cluster(OS, "os"),
    SYNC: lambda: headwater_cluster(SYNC, "sync"),
}
