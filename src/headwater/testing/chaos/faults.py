"""What can happen to a cluster: each fault begins, may do something from time to time, and is undone.

Two faults that claim the same thing are never there at once: a process that was killed cannot be paused, too. What is
claimed is a process ("node 1", "etcd 0"), a host's links ("links of node1") or a disk ("disk of 1").
"""

import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.model.ids import NodeId
from headwater.testing.chaos.disks import Disk
from headwater.testing.fakes.network import Network
from headwater.testing.processes.cluster import ProcessCluster
from headwater.testing.processes.etcd_process import EtcdProcess

STOP_TIMEOUT_S: Final = 30.0
STOPPED: Final = (0, -signal.SIGTERM)
"""A node that has just been started, and does not listen to signals yet, ends by the signal itself."""
FLAP_MIN_S, FLAP_MAX_S = 0.1, 0.8


class ClusterFault(ABC):
    __slots__ = ()

    @property
    @abstractmethod
    def claims(self) -> frozenset[str]: ...

    @abstractmethod
    def begin(self) -> None: ...

    def step(self) -> None:  # noqa: B027 (most faults do nothing here)
        """Called often while the fault is there."""

    @abstractmethod
    def end(self) -> bool:
        """Undo it; False if that is not possible yet, and must be tried again."""


@dataclass(slots=True)
class Kill(ClusterFault):
    """SIGKILL of some nodes at one moment; they start again, without waiting for each other."""

    cluster: ProcessCluster
    nodes: Sequence[NodeId]

    @property
    def claims(self) -> frozenset[str]:
        return frozenset(f"node {node}" for node in self.nodes)

    def begin(self) -> None:
        for node in self.nodes:
            self.cluster.kill(node)

    def end(self) -> bool:
        for node in self.nodes:
            self.cluster.launch(node)
        return True


@dataclass(slots=True)
class Pause(ClusterFault):
    """SIGSTOP of a node or a member of etcd: for the others, a process that hangs; for itself, time that is missing."""

    processes: ProcessCluster | EtcdProcess
    number: int

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({f"{'etcd' if isinstance(self.processes, EtcdProcess) else 'node'} {self.number}"})

    def begin(self) -> None:
        self.processes.pause(NodeId(self.number))

    def end(self) -> bool:
        self.processes.resume(NodeId(self.number))
        return True


@dataclass(slots=True)
class Stop(ClusterFault):
    """SIGTERM, as a rolling restart does. A node that does not stop in time is killed, and that is noted."""

    cluster: ProcessCluster
    node: NodeId
    complaints: list[str]
    _asked_s: float = 0.0

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({f"node {self.node}"})

    def begin(self) -> None:
        self._asked_s = time.monotonic()
        self.cluster.ask_to_stop(self.node)

    def end(self) -> bool:
        if self.cluster.is_running(self.node):
            if time.monotonic() - self._asked_s < STOP_TIMEOUT_S:
                return False
            self.complaints.append(f"node {self.node} did not stop within {STOP_TIMEOUT_S:.0f} s")
            self.cluster.kill(self.node)
        elif self.cluster.exit_status(self.node) not in STOPPED:
            self.complaints.append(f"node {self.node} stopped with status {self.cluster.exit_status(self.node)}")
        self.cluster.launch(self.node)
        return True


@dataclass(slots=True)
class KillEtcd(ClusterFault):
    etcd: EtcdProcess
    member: int

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({f"etcd {self.member}"})

    def begin(self) -> None:
        self.etcd.kill(self.member)

    def end(self) -> bool:
        self.etcd.restart(self.member, wait=False)
        return True


@dataclass(slots=True)
class Cut(ClusterFault):
    """Packets are lost on some ways between hosts; with dice, now and then they are not."""

    network: Network
    host: str
    ways: Sequence[tuple[str, str]]
    """(from, to)"""
    dice: random.Random | None = None
    _is_cut: bool = field(default=False)
    _change_s: float = 0.0

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({f"links of {self.host}"})

    def begin(self) -> None:
        self._set(True)

    def step(self) -> None:
        if self.dice is not None and time.monotonic() >= self._change_s:
            self._set(not self._is_cut)

    def end(self) -> bool:
        self._set(False)
        return True

    def _set(self, is_cut: bool) -> None:
        if is_cut != self._is_cut:
            for source, target in self.ways:
                (self.network.cut if is_cut else self.network.heal)(source, target)
            self._is_cut = is_cut
        if self.dice is not None:
            self._change_s = time.monotonic() + self.dice.uniform(FLAP_MIN_S, FLAP_MAX_S)


@dataclass(slots=True)
class FullDisk(ClusterFault):
    disk: Disk
    node: NodeId

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({f"disk of {self.node}"})

    def begin(self) -> None:
        self.disk.fill()

    def step(self) -> None:
        """Take the space that was freed."""
        self.disk.fill()

    def end(self) -> bool:
        self.disk.free()
        return True
