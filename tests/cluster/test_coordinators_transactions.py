"""Transactions between nodes: their coordinator, the partitions that they write to and the groups whose offsets they
commit are led by different nodes, any of which may die. Java speaks the newer protocol of transactions, the others the
older one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.model.errors import ErrorCode
from headwater.testing.processes.cluster import ProcessCluster
from tests.clients.every_transactor import TRANSACTORS
from tests.clients.judged import Record, Refused
from tests.clients.transacting import END, READ_COMMITTED, Place, Transactor, read_to_the_end, sent
from tests.clients.with_confluent import ConfluentClient
from tests.cluster.coordinated import OFFSETS, TRANSACTIONS, coordinated, coordinator, killed, name_kept_by, new_topic
from tests.support.effort import in_long
from tests.support.eventually import eventually

ROUNDS = 3
MOVING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with coordinated(tmp_path_factory.mktemp("cluster")) as cluster:
        _first_transaction(cluster)
        yield cluster


def _first_transaction(cluster: ProcessCluster) -> None:
    """Internal topics come into being with the first that needs them."""
    topic = new_topic(cluster)
    transactor = TRANSACTORS["confluent"](cluster.bootstrap)
    producer = transactor.producer("the first")
    producer.begin()
    producer.send(sent([(topic, 0)], b"x"))
    producer.send_offsets("the first", {(topic, 0): 1})
    producer.commit()
    producer.close()
    transactor.close()


@pytest.fixture(params=["java", "confluent", in_long("aiokafka")])
def transactor(request: pytest.FixtureRequest, cluster: ProcessCluster) -> Iterator[Transactor]:
    given = request.getfixturevalue("java") if request.param == "java" else cluster.bootstrap
    found: Transactor = TRANSACTORS[request.param](given)
    yield found
    found.close()


@pytest.fixture
def places(cluster: ProcessCluster) -> list[Place]:
    """One partition on each node."""
    topic = new_topic(cluster)
    assert {cluster.state().heads[topic, index].leader for index in range(3)} == set(cluster.nodes)
    return [(topic, index) for index in range(3)]


def committed_values(cluster: ProcessCluster, places: list[Place]) -> list[list[bytes]]:
    """What a reader of committed records sees, place by place, up to now."""
    transactor, client = TRANSACTORS["confluent"](cluster.bootstrap), ConfluentClient(cluster.bootstrap)
    try:
        for topic, partition in places:
            client.produce(topic, [Record(END, partition=partition)])
        found = read_to_the_end(transactor.reader(places, READ_COMMITTED), places)
    finally:
        client.close()
        transactor.close()
    return [found[place] for place in places]


def committed_offset(cluster: ProcessCluster, group: str, place: Place) -> int | None:
    transactor = TRANSACTORS["confluent"](cluster.bootstrap)
    member = transactor.member(None, group)
    try:
        return until_answered(lambda: member.committed(place))
    finally:
        member.close()
        transactor.close()


def until_answered(ask: Callable[[], int | None]) -> int | None:
    """librdkafka gives up on a coordinator that has just moved; whoever asks again is sent to the new one."""

    def answer() -> tuple[int | None] | None:
        try:
            return (ask(),)
        except Refused as refused:
            if refused.code not in MOVING:
                raise
            return None

    return eventually(answer, "a coordinator answers")[0]


@pytest.mark.parametrize("node", [1, in_long(2), in_long(3)])
def test_a_coordinator_on_any_node_ends_transactions_on_all_nodes(
    cluster: ProcessCluster, places: list[Place], transactor: Transactor, node: int
) -> None:
    producer = transactor.producer(name_kept_by(cluster, TRANSACTIONS, lambda kept_by: kept_by == node))
    group = name_kept_by(cluster, OFFSETS, lambda kept_by: kept_by != node, "group")
    for number in range(ROUNDS):
        producer.begin()
        producer.send(sent(places, b"kept %d" % number))
        producer.send_offsets(group, {places[0]: number + 1})
        producer.commit()
        producer.begin()
        producer.send(sent(places, b"dropped %d" % number))
        producer.send_offsets(group, {places[0]: 1000})
        producer.abort()
    producer.close()
    assert committed_values(cluster, places) == [[b"kept %d" % number for number in range(ROUNDS)]] * 3
    assert committed_offset(cluster, group, places[0]) == ROUNDS


def test_a_producer_goes_on_when_its_coordinator_is_killed(
    cluster: ProcessCluster, places: list[Place], transactor: Transactor
) -> None:
    name = name_kept_by(cluster, TRANSACTIONS, lambda node: True)
    producer = transactor.producer(name)
    producer.begin()
    producer.send(sent(places, b"before"))
    producer.commit()
    producer.begin()
    producer.send(sent(places[:1], b"open"))
    victim = coordinator(cluster, TRANSACTIONS, name)
    with killed(cluster, victim):
        producer.send(sent(places, b"meanwhile"))
        producer.commit()
        assert coordinator(cluster, TRANSACTIONS, name) != victim
        producer.begin()
        producer.send(sent(places, b"after"))
        producer.commit()
    producer.close()
    whole = [b"before", b"meanwhile", b"after"]
    assert committed_values(cluster, places) == [[b"before", b"open", b"meanwhile", b"after"], whole, whole]


def test_offsets_of_a_transaction_survive_the_coordinator_of_their_group(
    cluster: ProcessCluster, places: list[Place], transactor: Transactor
) -> None:
    group = name_kept_by(cluster, OFFSETS, lambda node: True, "group")
    victim = coordinator(cluster, OFFSETS, group)
    producer = transactor.producer(name_kept_by(cluster, TRANSACTIONS, lambda node: node != victim))
    producer.begin()
    producer.send(sent(places, b"x"))
    producer.send_offsets(group, {places[0]: 7})
    with killed(cluster, victim):
        producer.commit()
        assert committed_offset(cluster, group, places[0]) == 7
        producer.begin()
        producer.send_offsets(group, {places[0]: 9})
        producer.abort()
        assert committed_offset(cluster, group, places[0]) == 7
    producer.close()


def test_what_was_decided_is_marked_by_the_next_coordinator(
    cluster: ProcessCluster, places: list[Place], transactor: Transactor
) -> None:
    """The leader of a partition is away while the transaction ends, so its marker is owed; then the coordinator dies,
    too: both are back before anybody sees the partition stable."""
    name = name_kept_by(cluster, TRANSACTIONS, lambda node: True)
    victim = coordinator(cluster, TRANSACTIONS, name)
    producer = transactor.producer(name)
    producer.begin()
    producer.send(sent(places, b"owed"))
    absent = next(
        node
        for (topic, _), head in cluster.state().heads.items()
        if topic == places[0][0] and (node := head.leader) != victim
    )
    cluster.pause(absent)
    try:
        producer.commit()
        with killed(cluster, victim):
            cluster.resume(absent)
            assert committed_values(cluster, places) == [[b"owed"]] * 3
    finally:
        cluster.resume(absent)
    producer.close()


def test_an_abandoned_transaction_is_aborted_by_the_next_coordinator(tmp_path: Path, cluster: ProcessCluster) -> None:
    topic = new_topic(cluster, 1)
    name = name_kept_by(cluster, TRANSACTIONS, lambda node: True)
    transactor = TRANSACTORS["confluent"](cluster.bootstrap)
    producer = transactor.producer(name, timeout_ms=2_000)
    producer.begin()
    producer.send(sent([(topic, 0)], b"abandoned"))
    with killed(cluster, coordinator(cluster, TRANSACTIONS, name)):
        assert committed_values(cluster, [(topic, 0)]) == [[]]
    producer.close()
    transactor.close()
