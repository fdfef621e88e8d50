"""Draws faults: the kind, and the node that it hits, by the node's role at this moment."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.model.ids import NodeId
from headwater.testing.chaos.confluent_clients import GROUP
from headwater.testing.chaos.disks import Disk
from headwater.testing.chaos.faults import ClusterFault, Cut, FullDisk, Kill, KillEtcd, Pause, Stop
from headwater.testing.chaos.pulse import PARTITIONS, TOPIC
from headwater.testing.fakes.network import MACHINE, Network
from headwater.testing.processes.cluster import ProcessCluster
from headwater.testing.processes.etcd_process import EtcdProcess

ROLES: Final = ("leader", "replica", "controller", "coordinator")
NODE_FAULTS: Final = ("kill", "pause", "stop", "cut off", "cut one way", "flapping links", "cut from etcd", "full disk")
WEIGHTS: Final = {"kill": 4, "pause": 3, "cut off": 2}
"""How often a kind is in the deck; every other is in it once."""
SECONDS: Final = {
    "kill": (0.0, 3.0),
    "stop": (0.5, 3.0),
    "kill etcd": (0.2, 4.0),
    "kill all": (0.0, 1.0),
    "full disk": (1.0, 6.0),
}
"""How long they last; every other from 1 to 8."""
MAX_DRAWS: Final = 100


@dataclass(frozen=True, slots=True)
class Drawn:
    kind: str
    target: str
    fault: ClusterFault
    duration_s: float
    partition: int | None = None
    """The partition of the pulse that the node leads or has a replica of."""


class Arsenal:
    def __init__(
        self,
        cluster: ProcessCluster,
        network: Network | None,
        disks: Mapping[NodeId, Disk],
        dice: random.Random,
        pace: float,
    ) -> None:
        """`pace` shortens how long faults last."""
        self._cluster = cluster
        self._network = network
        self._disks = disks
        self._dice = dice
        self._pace = pace
        self.complaints: list[str] = []
        """Of nodes that did not do what a fault asked of them."""
        impossible = set() if network is not None else {"cut off", "cut one way", "flapping links", "cut from etcd"}
        impossible |= set() if disks else {"full disk"}
        self.kinds = [kind for kind in NODE_FAULTS if kind not in impossible] + ["kill etcd", "pause etcd", "kill all"]
        self._deck: list[str] = []

    def draw(self, claimed: frozenset[str]) -> Drawn | None:
        """Something that does not interfere with what is claimed; None if there was nothing in a while. Every kind
        comes before any has come more often than it should."""
        for _ in range(MAX_DRAWS):
            if not self._deck:
                self._deck = [kind for kind in self.kinds for _ in range(WEIGHTS.get(kind, 1))]
                self._dice.shuffle(self._deck)
            kind = self._deck.pop()
            low_s, high_s = SECONDS.get(kind, (1.0, 8.0))
            drawn = self._aim(kind, self._dice.uniform(low_s, high_s) * self._pace)
            if drawn is not None and claimed.isdisjoint(drawn.fault.claims):
                return drawn
            self._deck.insert(0, kind)
        return None

    def _aim(self, kind: str, duration_s: float) -> Drawn | None:
        cluster = self._cluster
        if kind == "kill all":
            return Drawn(kind, "all nodes", Kill(cluster, cluster.nodes), duration_s)
        if kind in ("kill etcd", "pause etcd"):
            member = self._dice.choice(cluster.etcd.members)
            is_kill = kind == "kill etcd"
            fault = KillEtcd(cluster.etcd, member) if is_kill else Pause(cluster.etcd, member)
            return Drawn(kind, f"etcd {member}", fault, duration_s)
        role, partition = self._dice.choice(ROLES), self._dice.randrange(PARTITIONS)
        node = self._node(role, f"{TOPIC}-{partition}")
        if node is None:
            return None
        name = f"{kind} {role}" if kind in ("kill", "pause") else kind
        is_placed = role in ("leader", "replica")
        return Drawn(
            name, f"node {node}, {role}", self._fault(kind, node), duration_s, partition if is_placed else None
        )

    def _node(self, role: str, partition: str) -> NodeId | None:
        state = self._cluster.state()
        questions = {"controller": "controller", "coordinator": f"coordinator of {GROUP}"}
        node = state.node(questions.get(role, f"{role} of {partition}"))
        return node if node in self._cluster.nodes else None

    def _fault(self, kind: str, node: NodeId) -> ClusterFault:
        match kind:
            case "kill":
                return Kill(self._cluster, [node])
            case "pause":
                return Pause(self._cluster, node)
            case "stop":
                return Stop(self._cluster, node, self.complaints)
            case "full disk":
                return FullDisk(self._disks[node], node)
            case _:
                return self._cut(kind, node)

    def _cut(self, kind: str, node: NodeId) -> ClusterFault:
        assert self._network is not None, "links are cut only where there are some"
        host, dice = ProcessCluster.host(node), self._dice
        etcd = [EtcdProcess.host(member) for member in self._cluster.etcd.members]
        nodes = [ProcessCluster.host(other) for other in self._cluster.nodes if other != node]
        clients = [MACHINE] if dice.random() < 0.5 else []
        match kind:
            case "cut from etcd":
                others = etcd
            case "cut one way":
                others = dice.choice([nodes, nodes + etcd, [dice.choice(nodes)]])
            case _:
                others = [*nodes, *etcd, *clients]
        out, into = [(host, other) for other in others], [(other, host) for other in others]
        if kind == "cut one way":
            return Cut(self._network, host, dice.choice([out, into]))
        flapping = random.Random(dice.random()) if kind == "flapping links" else None
        return Cut(self._network, host, out + into, flapping)
