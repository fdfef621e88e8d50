"""Coordinators that are not there, or not yet: the sink asks again, and says at last what the brokers said."""

import pytest

from headwater.model.errors import ErrorCode
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.client.config import client_config
from headwater.pipelines.errors import RetriableError
from headwater.pipelines.sink.coordinator import TRANSACTION, Coordinated, TransactionCoordinators
from headwater.wire.message import Message
from tests.pipelines.scripted_cluster import FIND_COORDINATOR, METADATA, ScriptedCluster, running

MINE = Coordinated(TRANSACTION, "mine")


def nobody(_request: Message, _right: Message) -> Message:
    return Message(
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        error_message="No store has room for a new segment.",
        node_id=-1,
        host="",
        port=-1,
    )


def ask(scripted: ScriptedCluster, patience_ms: int) -> Message:
    cluster = ClusterClient(client_config({"bootstrap.servers": scripted.bootstrap}))
    with TransactionCoordinators(cluster) as coordinators:
        return coordinators.ask(MINE, METADATA, lambda _: (), patience_ms, topics=[])


def test_a_coordinator_is_asked_for_until_there_is_one() -> None:
    with running(ScriptedCluster()) as scripted:
        scripted.misbehave(FIND_COORDINATOR, nobody, nobody)
        assert ask(scripted, patience_ms=60_000).topics == []
        assert [api for _, api in scripted.asked].count(FIND_COORDINATOR) == 3


def test_who_finds_none_is_told_why_not_that_no_broker_can_be_reached() -> None:
    with running(ScriptedCluster()) as scripted:
        scripted.misbehave(FIND_COORDINATOR, *[nobody] * 1_000)
        with pytest.raises(RetriableError) as caught:
            ask(scripted, patience_ms=0)
    why = "COORDINATOR_NOT_AVAILABLE. No store has room for a new segment."
    assert str(caught.value) == f"mine has no coordinator now: {why}"
