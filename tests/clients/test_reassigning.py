"""Java's admin client moves partitions of a cluster about."""

from collections.abc import Callable
from typing import Any

import pytest

from headwater.model.errors import ErrorCode
from tests.clients.judged import Client, Record, Refused
from tests.clients.with_java import JavaClient
from tests.support.eventually import eventually

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def java(cluster_bootstrap: str, open_client: Callable[[str, str], Client]) -> JavaClient:
    client = open_client("java", cluster_bootstrap)
    assert isinstance(client, JavaClient)
    return client


def placement(java: JavaClient, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = java.ask("placement", topic=topic)
    return found


def test_java_moves_a_partition_and_gives_it_more_replicas(java: JavaClient) -> None:
    java.ask("createPlaced", topic="moved", nodes=[1])
    java.produce("moved", [Record(b"%d" % number) for number in range(100)])
    java.ask("reassign", topic="moved", nodes=[3, 2])
    eventually(lambda: java.ask("reassignments", topic="moved") == [], "it has arrived")
    eventually(lambda: placement(java, "moved")["leader"] == 3, "node 3 leads")
    assert sorted(placement(java, "moved")["inSync"]) == [2, 3]
    assert [record.value for record in java.read("moved", 0, 0, 100)] == [b"%d" % number for number in range(100)]


def test_java_elects_the_preferred_leader(java: JavaClient) -> None:
    java.ask("createPlaced", topic="elected", nodes=[1, 2, 3])
    java.ask("reassign", topic="elected", nodes=[2, 1, 3])
    try:
        java.ask("electLeader", topic="elected")
    except Refused as refused:
        assert refused.code == ErrorCode.ELECTION_NOT_NEEDED  # the controller was faster
    eventually(lambda: placement(java, "elected")["leader"] == 2, "node 2 leads")
    with pytest.raises(Refused) as again:
        java.ask("electLeader", topic="elected")
    assert again.value.code == ErrorCode.ELECTION_NOT_NEEDED


def test_java_is_told_why_a_partition_cannot_be_moved(java: JavaClient) -> None:
    java.ask("createPlaced", topic="stays", nodes=[1])
    for nodes, code in (([8], ErrorCode.INVALID_REPLICA_ASSIGNMENT), (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)):
        with pytest.raises(Refused) as refused:
            java.ask("reassign", topic="stays", nodes=nodes)
        assert refused.value.code == code
