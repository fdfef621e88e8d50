"""A real cluster for tests: nodes as processes, with etcd, each of which can be killed, paused, stopped and started.

    with ProcessCluster(tmp_path) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(cluster.find("leader of orders-0"))

A node keeps its address and its data from one start to the next. With a `Network` every node and every member of etcd
has its own host there (`ProcessCluster.hosts` names them), and the caller can cut them from each other.

Not thread-safe, and to be used from the main thread: members of etcd die with the thread that started them.
"""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headwater.cli.cluster.secured import SecuredCluster
from headwater.client.client_file import read_client_file
from headwater.client.security_options import ClientSecurity
from headwater.model.ids import NodeId
from headwater.testing.broker import TEST_DEFAULTS
from headwater.testing.fakes.network import Network
from headwater.testing.processes.broker_process import BrokerProcess
from headwater.testing.processes.cluster_state import ClusterState, read_state
from headwater.testing.processes.etcd_process import EtcdProcess
from headwater.testing.processes.pausing import pause
from headwater.transport.ports import free_ports

READY_TIMEOUT_S: Final = 60.0
LOOK_EVERY_S: Final = 0.05
CLIENT_PORT: Final = 9092
PEER_PORT: Final = 9093
METADATA_PREFIX: Final = "test"


class ProcessCluster:
    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        etcd_members: int = 1,
        network: Network | None = None,
        data_dirs: Mapping[NodeId, Path] | None = None,
        secure: bool = False,
        **config: Any,
    ) -> None:
        """Logs are below `directory`, and data, unless `data_dirs` says where. `config` is for every node: fields of
        `headwater.broker.settings.broker_config.BrokerConfig`. With `secure` there is TLS everywhere, and clients log
        in: `security`."""
        self._directory = directory
        self._etcd_members = etcd_members
        self._network = network
        self._data_dirs = dict(data_dirs or {})
        self._secured = SecuredCluster(directory / "secured") if secure else None
        self._config = {**TEST_DEFAULTS, **config}
        self._ports = dict(zip(map(NodeId, range(1, nodes + 1)), free_ports(nodes), strict=True))
        self._processes: dict[NodeId, BrokerProcess] = {}
        self._paused: set[NodeId] = set()
        self._etcd: EtcdProcess | None = None

    @staticmethod
    def hosts(nodes: int, etcd_members: int) -> list[str]:
        """The hosts that a network must have for a cluster of this size."""
        return [ProcessCluster.host(NodeId(node)) for node in range(1, nodes + 1)] + [
            EtcdProcess.host(member) for member in range(etcd_members)
        ]

    @staticmethod
    def host(node: NodeId) -> str:
        return f"node{node}"

    def __enter__(self) -> "ProcessCluster":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> "ProcessCluster":
        """Return when every node serves clients."""
        try:
            self._etcd = EtcdProcess.start(self._directory, self._etcd_members, network=self._network)
            if self._secured is not None and not self._secured.is_there:
                self._secured.write(self.bootstrap, self.data_dir(self.nodes[0]))
            for node in self.nodes:
                self.launch(node)
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Everything is killed: the data goes with the test."""
        for process in self._processes.values():
            process.kill()
        if self._etcd is not None:
            self._etcd.stop()

    # What it is

    @property
    def etcd(self) -> EtcdProcess:
        assert self._etcd is not None, "the cluster was started"
        return self._etcd

    @property
    def nodes(self) -> list[NodeId]:
        return list(self._ports)

    @property
    def bootstrap(self) -> str:
        """All nodes, as clients want them."""
        return ",".join(self.address(node) for node in self.nodes)

    @property
    def secured(self) -> SecuredCluster:
        """The files of a cluster that was made with `secure`."""
        assert self._secured is not None, "only a secure cluster has certificates"
        return self._secured

    @property
    def security(self) -> ClientSecurity | None:
        """How the user who may do everything gets in; None: without TLS and login."""
        if self._secured is None:
            return None
        path = self._secured.admin_file
        return read_client_file(path.read_text(), path.parent).security

    @property
    def client_config(self) -> dict[str, Any]:
        """What a client of confluent-kafka is made with."""
        return {"bootstrap.servers": self.bootstrap, **(self.security.options() if self.security is not None else {})}

    @property
    def metadata_url(self) -> str:
        return self.etcd.url(METADATA_PREFIX)

    def address(self, node: NodeId) -> str:
        if self._network is None:
            return f"127.0.0.1:{self._ports[node]}"
        return f"{self._network.address(self.host(node))}:{CLIENT_PORT}"

    def log_path(self, node: NodeId) -> Path:
        return self._scratch(node) / "broker.log"

    def data_dir(self, node: NodeId) -> Path:
        return self._data_dirs.get(node, self._scratch(node) / "data")

    def is_running(self, node: NodeId) -> bool:
        """Also while it is paused."""
        return node in self._processes and self._processes[node].is_running

    def exit_status(self, node: NodeId) -> int | None:
        return self._processes[node].exit_status if node in self._processes else None

    # Who is what

    def state(self) -> ClusterState:
        return read_state(self.etcd, METADATA_PREFIX)

    def find(self, role: str) -> NodeId:
        """The node in a role (`ClusterState.node` has them); waits until there is one."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (node := self.state().node(role)) is None or node not in self._ports:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no node has been {role} for {READY_TIMEOUT_S:.0f} s")
            time.sleep(LOOK_EVERY_S)
        return node

    # What happens to a node

    def launch(self, node: NodeId) -> None:
        """Start a node, and wait for nothing."""
        assert not self.is_running(node), f"node {node} runs"
        scratch = self._scratch(node)
        scratch.mkdir(parents=True, exist_ok=True)
        prefix = self._network.command_prefix(self.host(node)) if self._network is not None else ()
        self._processes[node] = BrokerProcess(self.node_config(node), scratch, prefix)
        self._processes[node].launch()

    def wait_until_ready(self) -> None:
        """Until every node that runs serves clients. Raises with the node's words if one gives up."""
        for process in self._processes.values():
            if process.is_running:
                process.wait_until_ready()

    def restart(self, node: NodeId) -> None:
        """Start a node that was killed or stopped; return when it serves clients."""
        self.launch(node)
        self._processes[node].wait_until_ready()

    def stop(self, node: NodeId) -> None:
        """SIGTERM, and wait: it hands over what it leads."""
        self._processes[node].stop()

    def ask_to_stop(self, node: NodeId) -> None:
        """SIGTERM, and wait for nothing."""
        self._processes[node].signal(signal.SIGTERM)

    def kill(self, node: NodeId) -> None:
        """SIGKILL, and wait: nothing of the node runs any more."""
        self._paused.discard(node)
        self._processes[node].kill()

    def pause(self, node: NodeId) -> None:
        """SIGSTOP: its connections stay open, without answers."""
        self._paused.add(node)
        pause(self._processes[node].pid)

    def resume(self, node: NodeId) -> None:
        if node in self._paused:
            self._paused.discard(node)
            self._processes[node].signal(signal.SIGCONT)

    def _scratch(self, node: NodeId) -> Path:
        return self._directory / self.host(node)

    def node_config(self, node: NodeId) -> dict[str, Any]:
        host = "127.0.0.1" if self._network is None else self._network.address(self.host(node))
        way_in: dict[str, Any] = {"listen": self.address(node)}
        if self._secured is not None:
            way_in = self._secured.settings(self.host(node), self.address(node), host)
            way_in["cluster_secret_file"] = self._secured.secret_file
        return {
            **self._config,
            "node_id": node,
            "data_dir": self.data_dir(node),
            "metadata": self.metadata_url,
            **way_in,
            "insecure": self._network is not None,  # the network is the test's own
            "peer_listen": f"{host}:{0 if self._network is None else PEER_PORT}",
        }
