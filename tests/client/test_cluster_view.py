"""What a client knows of a cluster, as responses fill it in."""

from uuid import uuid4

import pytest

from headwater.client.address import BrokerAddress, InvalidAddress, parse_bootstrap
from headwater.client.cluster_view import GROUP, TRANSACTION, ClusterView, Coordinated, coordinator_request
from headwater.client.errors import BrokerRefused, CoordinatorUnknown
from headwater.model.errors import ErrorCode
from headwater.wire.messages import read_body, read_header, write_response
from headwater.wire.requests import read_response, write_request
from headwater.wire.typed.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.typed.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST, SECOND, GIVEN = BrokerAddress("a", 1), BrokerAddress("b", 2), BrokerAddress("given", 9092)
BILLING = Coordinated(GROUP, "billing")


def partition(index: int, leader: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(partition_index=index, leader_id=leader)


def topic(name: str, *leaders: int, error_code: int = 0) -> MetadataResponseTopic:
    partitions = [partition(index, leader) for index, leader in enumerate(leaders)]
    return MetadataResponseTopic(name=name, partitions=partitions, error_code=error_code)


def metadata(*topics: MetadataResponseTopic, brokers: tuple[BrokerAddress, ...] = (FIRST, SECOND)) -> MetadataResponse:
    nodes = [
        MetadataResponseBroker(node_id=number, host=each.host, port=each.port) for number, each in enumerate(brokers)
    ]
    return MetadataResponse(brokers=nodes, topics=topics)


def test_brokers_that_metadata_named_are_asked_before_those_that_were_given() -> None:
    view = ClusterView([GIVEN, FIRST])
    assert view.addresses == [GIVEN, FIRST]
    view.learn(None, metadata())
    assert view.addresses == [FIRST, SECOND, GIVEN]
    view.learn([], metadata(brokers=(SECOND,)))
    assert view.addresses == [SECOND, GIVEN, FIRST], "a node that is gone is asked last, as it was given"


def test_a_leader_is_known_by_its_address() -> None:
    view = ClusterView([GIVEN])
    view.learn(["t"], metadata(topic("t", 1, 0, -1, 7)))
    assert [view.leader("t", index) for index in range(5)] == [SECOND, FIRST, None, None, None]
    assert view.leader("other", 0) is None


def test_topics_that_were_asked_for_and_do_not_exist_are_forgotten_and_others_stay() -> None:
    view = ClusterView([GIVEN])
    view.learn(["kept", "gone"], metadata(topic("kept", 0), topic("gone", 0)))
    missing = topic("gone", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert view.learn(["gone"], metadata(missing)) == {}
    assert view.topics.keys() == {"kept"}
    assert view.learn(None, metadata(topic("new", 0))).keys() == {"new"}
    assert view.topics.keys() == {"new"}, "all were asked for"
    view.forget_topic("new")
    assert view.leader("new", 0) is None


def test_a_topic_that_cannot_be_described_is_an_error() -> None:
    with pytest.raises(BrokerRefused, match=r"Topic t: .*TOPIC_AUTHORIZATION_FAILED"):
        ClusterView([GIVEN]).learn(["t"], metadata(topic("t", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))


def test_a_topic_has_an_id_unless_the_broker_is_older_than_ids() -> None:
    topic_id = uuid4()
    found = ClusterView([GIVEN]).learn(
        None, metadata(MetadataResponseTopic(name="new", topic_id=topic_id), MetadataResponseTopic(name="old"))
    )
    assert (found["new"].topic_id, found["old"].topic_id) == (topic_id, None)


@pytest.mark.parametrize("version", range(1, 5))
def test_a_coordinator_is_learnt_in_old_and_new_versions(version: int) -> None:
    request = coordinator_request(BILLING)
    frame = write_request(request, version, 7, "test")[4:]
    read = read_body(frame, read_header(frame))
    assert isinstance(read, FindCoordinatorRequest)
    assert (read.key, *read.coordinator_keys) == (("billing",) if version < 4 else ("", "billing"))
    told = {"host": FIRST.host, "port": FIRST.port}
    response = FindCoordinatorResponse(**told, coordinators=[Coordinator(key="billing", **told)])  # type: ignore[arg-type]
    sent = write_response(FindCoordinatorRequest.API_KEY, version, 7, response)
    view = ClusterView([GIVEN])
    assert view.learn_coordinator(BILLING, read_response(sent, FindCoordinatorRequest, version, 7)) == FIRST
    assert view.coordinators == {BILLING: FIRST}
    assert Coordinated(TRANSACTION, "billing") not in view.coordinators


def test_a_coordinator_that_is_not_known_is_an_error_with_its_code() -> None:
    response = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(CoordinatorUnknown, match="The coordinator of billing") as raised:
        ClusterView([GIVEN]).learn_coordinator(BILLING, response)
    assert raised.value.is_retriable


def test_addresses_are_names_or_numbers_with_a_port() -> None:
    assert parse_bootstrap("one:1, [::1]:9092") == (("one", 1), ("::1", 9092))
    assert str(BrokerAddress("::1", 9092)) == "[::1]:9092"
    for text in ("", "host", ":1", "host:", "host:x", "host:65536", "a:1,,b:2"):
        with pytest.raises(InvalidAddress):
            parse_bootstrap(text)
