"""Coordinators that are not there, or not yet: the sink asks again, and says at last what the brokers said."""

import pytest

from headwater.client.cluster_view import TRANSACTION, Coordinated
from headwater.client.errors import BrokerRefused
from headwater.client.question import question
from headwater.model.errors import ErrorCode
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.client.config import client_config
from headwater.pipelines.errors import RetriableError
from headwater.pipelines.sink.coordinator import TransactionCoordinators, check_codes
from headwater.wire.typed.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.typed.metadata import MetadataRequest, MetadataResponse
from tests.pipelines.scripted_cluster import FIND_COORDINATOR, ScriptedCluster, running

MINE = Coordinated(TRANSACTION, "mine")


def nobody(_request: FindCoordinatorRequest, right: FindCoordinatorResponse) -> FindCoordinatorResponse:
    (coordinator,) = right.coordinators
    coordinator.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.error_message = "No store has room for a new segment."
    return right


def ask(scripted: ScriptedCluster, patience_ms: int) -> MetadataResponse:
    """A request that any broker answers, for its coordinator."""
    cluster = ClusterClient(client_config({"bootstrap.servers": scripted.bootstrap}))
    with TransactionCoordinators(cluster) as coordinators:
        return coordinators.answer(question(MetadataRequest(topics=[]), lambda response: response, MINE), patience_ms)


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


def test_of_many_errors_one_that_does_not_pass_is_told() -> None:
    codes = [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.PRODUCER_FENCED, ErrorCode.NOT_COORDINATOR]
    with pytest.raises(BrokerRefused, match="PRODUCER_FENCED"):
        check_codes(codes)
    with pytest.raises(BrokerRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        check_codes(code for code in codes if code != ErrorCode.PRODUCER_FENCED)
    check_codes([ErrorCode.NONE])
