"""The client in the executors, against brokers that restart, move leaders, hold back, lie and talk nonsense."""

import os
import pickle
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from headwater.client.offsets import EARLIEST, LATEST
from headwater.client.settings import MAX_RESPONSE_BYTES
from headwater.client.topic_partition import TopicPartition
from headwater.model.errors import ErrorCode
from headwater.pipelines.client import cluster_client
from headwater.pipelines.client.cluster_client import ClusterClient, shared_cluster
from headwater.pipelines.client.config import ClientConfig, client_config
from headwater.pipelines.client.long_poll import LongPoll
from headwater.pipelines.errors import BrokerUnreachable, InvalidOption, RequestRefused, UnknownTopic
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.wire.typed.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.pipelines.scripted_cluster import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    Log,
    Misdeed,
    ScriptedCluster,
    running,
)

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
A_LONG_TIME_MS = 10 * 60 * 1000
"""Longer than a test may take."""
SELECT_LIMIT = 1024


@pytest.fixture
def brokers() -> Iterator[ScriptedCluster]:
    with running(ScriptedCluster(), brokers=2) as scripted:
        scripted.topic("t", Log(leader=0, end=10), Log(leader=1, start=3, end=20))
        yield scripted


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """So many that every further file descriptor is above the limit of select(2)."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2 * SELECT_LIMIT:
        pytest.skip(f"a process may open {limits[1]} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2 * SELECT_LIMIT), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    while opened[-1] < SELECT_LIMIT:
        opened.append(os.dup(opened[0]))
    yield
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def config(bootstrap: str, **more: str) -> ClientConfig:
    return client_config({"bootstrap.servers": bootstrap, **more})


def connected(scripted: ScriptedCluster, **more: str) -> ClusterClient:
    return ClusterClient(config(scripted.bootstrap, **more))


def fail_with(code: int) -> Misdeed:
    def misdeed(request: ListOffsetsRequest, right: ListOffsetsResponse) -> ListOffsetsResponse:
        right.topics[0].partitions[0].error_code = code
        return right

    return misdeed


def test_offsets_are_asked_of_each_leader(brokers: ScriptedCluster) -> None:
    cluster = connected(brokers)
    assert cluster.list_offsets({T0: LATEST, T1: LATEST}) == {T0: 10, T1: 20}
    assert cluster.list_offsets({T0: EARLIEST, T1: EARLIEST}) == {T0: 0, T1: 3}
    assert {node for node, api in brokers.asked if api == LIST_OFFSETS} == {0, 1}


def test_metadata_is_remembered_and_connections_are_kept(brokers: ScriptedCluster) -> None:
    cluster = connected(brokers)
    for _ in range(5):
        cluster.list_offsets({T0: LATEST, T1: LATEST})
    apis = [api for _, api in brokers.asked]
    assert (apis.count(METADATA), apis.count(API_VERSIONS)) == (1, 2)


def test_a_leader_that_moved_is_looked_up_again(brokers: ScriptedCluster) -> None:
    cluster = connected(brokers)
    assert cluster.list_offsets({T0: LATEST}) == {T0: 10}
    brokers.topics["t"][0].leader = 1
    brokers.misbehave(LIST_OFFSETS, fail_with(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert cluster.list_offsets({T0: LATEST}) == {T0: 10}
    assert brokers.asked[-1] == (1, LIST_OFFSETS)


def test_a_connection_that_breaks_is_opened_again(brokers: ScriptedCluster) -> None:
    cluster = connected(brokers)
    brokers.misbehave(LIST_OFFSETS, lambda request, right: None, lambda request, right: None)
    assert cluster.list_offsets({T0: LATEST}) == {T0: 10}


def test_an_error_that_does_not_pass_is_told_at_once(brokers: ScriptedCluster) -> None:
    brokers.misbehave(LIST_OFFSETS, fail_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(RequestRefused, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
        connected(brokers).list_offsets({T0: LATEST})


def test_an_error_that_should_pass_and_does_not_is_told_in_the_end(brokers: ScriptedCluster) -> None:
    brokers.misbehave(LIST_OFFSETS, *[fail_with(ErrorCode.LEADER_NOT_AVAILABLE)] * 10)
    with pytest.raises(RequestRefused, match="LEADER_NOT_AVAILABLE"):
        connected(brokers, **{"default.api.timeout.ms": "100"}).list_offsets({T0: LATEST})


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.BROKER_NOT_AVAILABLE])
def test_a_broker_that_has_no_better_word_is_asked_again(brokers: ScriptedCluster, code: ErrorCode) -> None:
    brokers.misbehave(LIST_OFFSETS, fail_with(code))
    assert connected(brokers).list_offsets({T0: LATEST}) == {T0: 10}


def test_an_answer_that_leaves_partitions_out_is_asked_for_again(brokers: ScriptedCluster) -> None:
    brokers.misbehave(LIST_OFFSETS, lambda request, right: ListOffsetsResponse())
    assert connected(brokers).list_offsets({T0: LATEST}) == {T0: 10}


def test_topics_that_do_not_exist_are_not_there(brokers: ScriptedCluster) -> None:
    cluster = connected(brokers)
    assert set(cluster.topics(["t", "nope"])) == {"t"}
    assert set(cluster.topics()) == {"t"}
    with pytest.raises(UnknownTopic, match="nope-0"):
        cluster.list_offsets({TopicPartition("nope", 0): LATEST})


def test_nobody_there_is_told_soon_and_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_client, "FIRST_CONTACT_MS", 100)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(BrokerUnreachable, match=rf"127\.0\.0\.1:{port}.*Connection refused.*bootstrap\.servers right"):
        ClusterClient(config(f"127.0.0.1:{port}")).reach()


def test_the_second_address_is_tried_when_the_first_is_dead(brokers: ScriptedCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = taken.getsockname()[1]
    cluster = ClusterClient(config(f"127.0.0.1:{dead},{brokers.bootstrap}"))
    cluster.reach()
    assert cluster.list_offsets({T0: LATEST}) == {T0: 10}


HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"


@pytest.mark.parametrize(
    ("nonsense", "words"),
    [
        (HTTP, "does not speak the Kafka protocol"),
        (struct.pack(">i", -5), "does not speak the Kafka protocol"),
        (struct.pack(">ii", 4, 77), "response to request 77"),
        (struct.pack(">i", 2) + b"ab", "does not fit"),
        (struct.pack(">iihi", 10, 0, 0, 2**30), "elements are announced"),
        (struct.pack(">iihi", 10, 0, 0, 0), "does not serve API"),
    ],
)
def test_what_is_no_answer_is_told_as_such(
    brokers: ScriptedCluster, monkeypatch: pytest.MonkeyPatch, nonsense: bytes, words: str
) -> None:
    monkeypatch.setattr(cluster_client, "FIRST_CONTACT_MS", 0)
    brokers.misbehave(API_VERSIONS, lambda request, right: nonsense)
    cluster = connected(brokers, **{"default.api.timeout.ms": "0"})
    with pytest.raises(BrokerUnreachable, match=words):
        cluster.topics()


def test_an_answer_that_does_not_come_is_not_waited_for_forever(brokers: ScriptedCluster) -> None:
    brokers.misbehave(METADATA, lambda request, right: b"")
    with pytest.raises(BrokerUnreachable, match="no answer in time"):
        connected(brokers, **{"request.timeout.ms": "50", "default.api.timeout.ms": "0"}).topics()


def test_a_length_that_is_only_announced_costs_no_memory(brokers: ScriptedCluster) -> None:
    announced = struct.pack(">i", MAX_RESPONSE_BYTES)
    brokers.misbehave(METADATA, lambda request, right: announced)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BrokerUnreachable, match="no answer in time"):
        connected(brokers, **{"request.timeout.ms": "50", "default.api.timeout.ms": "0"}).topics()
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MAX_RESPONSE_BYTES // 4


def test_brokers_of_old_are_asked_in_their_versions() -> None:
    old = ScriptedCluster({FETCH: (0, 4), LIST_OFFSETS: (0, 2), METADATA: (0, 4), API_VERSIONS: (0, 0)})
    with running(old):
        old.topic("t", Log(end=5))
        cluster = connected(old)
        assert cluster.list_offsets({T0: LATEST}) == {T0: 5}
        assert cluster.topic_id("t") is None


def test_a_broker_that_is_too_old_is_told_as_such() -> None:
    ancient = ScriptedCluster({METADATA: (0, 3), API_VERSIONS: (0, 0)})
    with running(ancient), pytest.raises(BrokerUnreachable, match="does not serve API 3"):
        connected(ancient, **{"default.api.timeout.ms": "0"}).topics()


# One cluster for each configuration in a process


def test_the_same_configuration_shares_its_connections(brokers: ScriptedCluster) -> None:
    one, other = config(brokers.bootstrap), config(brokers.bootstrap, **{"client.id": "other"})
    assert shared_cluster(one) is shared_cluster(config(brokers.bootstrap))
    assert shared_cluster(one) is not shared_cluster(other)


def test_a_configuration_that_went_to_an_executor_is_the_same() -> None:
    tls = {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem", "ssl.endpoint.identification.algorithm": ""}
    here = config("one:1,two:2", **tls, **{"isolation.level": "read_committed", "request.timeout.ms": "1234"})
    there = pickle.loads(pickle.dumps(here))
    assert there == here and hash(there) == hash(here)
    assert there.connection == here.connection and hash(there.connection) == hash(here.connection)


def test_a_thread_has_a_cluster_of_its_own(brokers: ScriptedCluster) -> None:
    mine, theirs = shared_cluster(config(brokers.bootstrap)), []
    thread = threading.Thread(target=lambda: theirs.append(shared_cluster(config(brokers.bootstrap))))
    thread.start()
    thread.join()
    assert theirs != [mine]


def test_a_forked_process_does_not_use_the_connections_of_its_parent(
    brokers: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = shared_cluster(config(brokers.bootstrap))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert shared_cluster(config(brokers.bootstrap)) is not mine


def test_only_so_many_configurations_are_kept(monkeypatch: pytest.MonkeyPatch, brokers: ScriptedCluster) -> None:
    monkeypatch.setattr(cluster_client, "MAX_CLUSTERS", 2)
    first, second = (shared_cluster(config("localhost", **{"client.id": name})) for name in "ab")
    shared_cluster(config("localhost", **{"client.id": "a"}))
    shared_cluster(config("localhost", **{"client.id": "c"}))
    assert shared_cluster(config("localhost", **{"client.id": "a"})) is first
    assert shared_cluster(config("localhost", **{"client.id": "b"})) is not second


def test_pem_files_that_are_not_there_are_told_with_their_names(brokers: ScriptedCluster) -> None:
    missing = {"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"}
    with pytest.raises(InvalidOption, match=r"/nowhere/ca\.pem"):
        connected(brokers, **missing).topics()


# LongPoll


def test_news_of_any_broker_end_the_wait(brokers: ScriptedCluster) -> None:
    cluster = connected(brokers)
    cluster.topics(["t"])
    news = LongPoll(cluster)
    for log in brokers.topics["t"].values():
        log.end = None
    ends = {T0: 0, T1: 0}
    brokers.topics["t"][1].start = 0
    timer = threading.Timer(0.1, lambda: brokers.topics["t"][1].batches.append(bytes(build_batch([Record(None, b"")]))))
    timer.start()
    news.wait(ends, A_LONG_TIME_MS)
    news.close()


def test_a_process_with_thousands_of_open_files_hears_of_news_too(
    brokers: ScriptedCluster, many_open_files: None
) -> None:
    cluster = connected(brokers)
    cluster.topics(["t"])
    brokers.topics["t"][1].start = 0
    brokers.topics["t"][1].batches.append(bytes(build_batch([Record(None, b"")])))
    long_poll = LongPoll(cluster)
    long_poll.wait({T1: 0}, A_LONG_TIME_MS)
    long_poll.close()


def test_without_news_the_wait_takes_its_time(brokers: ScriptedCluster) -> None:
    cluster = connected(brokers)
    cluster.topics(["t"])
    news = LongPoll(cluster)
    began_s = time.monotonic()
    for _ in range(2):
        news.wait({T0: 10, T1: 20}, 50)
    assert time.monotonic() - began_s >= 0.1
    news.close()


def test_a_wait_without_brokers_takes_its_time_too(brokers: ScriptedCluster) -> None:
    cluster = connected(brokers)
    cluster.topics(["t"])
    brokers.misbehave(FETCH, lambda request, right: None, lambda request, right: None)
    began_s = time.monotonic()
    LongPoll(cluster).wait({T0: 10}, 50)
    assert time.monotonic() - began_s >= 0.05
