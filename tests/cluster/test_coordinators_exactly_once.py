"""Each input has its effect once, whichever node of a cluster is killed. On one node: `make exactly-once`."""

from itertools import cycle
from pathlib import Path

import pytest
from bench import exactly_once

from headwater.model.ids import NodeId
from headwater.testing.processes.cluster import ProcessCluster
from tests.cluster.coordinated import OFFSETS, coordinated, coordinator
from tests.support.eventually import eventually

SEED = 2026
INPUTS = 8_000


class NodesInTurn:
    """A cluster that loses a node with each kill: the group's coordinator, the controller, the leader of an output."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster
        self._roles = cycle(["coordinator", "controller", f"leader of {exactly_once.OUTPUT}-0"])
        self._victim: NodeId | None = None

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def kill(self) -> None:
        role = next(self._roles)
        if role == "coordinator":
            self._victim = coordinator(self._cluster, OFFSETS, exactly_once.GROUP)
        else:
            self._victim = self._cluster.find(role)
        self._cluster.kill(self._victim)

    def start(self) -> None:
        """Not before others lead what it led."""
        victim = self._victim
        assert victim is not None, "a node was killed"
        eventually(
            lambda: all(head.leader != victim for head in self._cluster.state().heads.values()), "others take over"
        )
        self._cluster.restart(victim)


@pytest.mark.crash
def test_every_input_is_counted_once_though_nodes_and_programs_are_killed(tmp_path: Path) -> None:
    with coordinated(tmp_path, durability="sync") as cluster:
        verdict = exactly_once.run(NodesInTurn(cluster), INPUTS, broker_kills=3, program_kills=1, seed=SEED, replicas=3)
    assert verdict.violations == []
    assert verdict.outputs == INPUTS
    assert verdict.broker_kills >= 3
