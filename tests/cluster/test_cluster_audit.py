"""One audit for all nodes: their events are in one topic, and stay there when its leader is killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.broker.audit.audit_event import AuditKind, AuditRecord
from headwater.cli.audit_reading import AuditReader
from headwater.cli.brokers import Brokers
from headwater.cli.client import cluster
from headwater.cli.output import CommandFailed
from headwater.client.blocking_cluster import BlockingCluster
from headwater.client.errors import ClientError
from headwater.model.cluster import AUDIT_TOPIC
from headwater.testing import Broker
from headwater.wire.api_keys import ApiKey
from tests.cluster.small_cluster import SmallCluster
from tests.support.eventually import eventually
from tests.support.messages import nested
from tests.support.wire import ask

NODES = (1, 2, 3)


@contextmanager
def client_of(nodes: SmallCluster) -> Iterator[BlockingCluster]:
    with cluster(Brokers(nodes.bootstrap)) as client:
        yield client


def audited(nodes: SmallCluster) -> list[AuditRecord]:
    try:
        with client_of(nodes) as client:
            return [*AuditReader(client, 0).to_end()]
    except (CommandFailed, ClientError):  # it is not there yet, or moves
        return []


def use(node: Broker, topic: str) -> bool:
    """The node that is asked makes the topic, and says so. False if it cannot now."""
    answer = ask(node, ApiKey.METADATA, 9, topics=[nested(name=topic)], allow_auto_topic_creation=True)
    return bool(answer.topics[0].error_code == 0)


def made_by(node: Broker, topic: str) -> None:
    eventually(lambda: use(node, topic), f"{topic} is made")


def made(records: list[AuditRecord]) -> set[tuple[int, str]]:
    """Which node told of which topic."""
    return {(each.node, each.event.name) for each in records if each.event.kind is AuditKind.MANAGEMENT}


def leader(nodes: SmallCluster) -> int:
    with client_of(nodes) as client:
        client.topics([AUDIT_TOPIC])
        return client.view.topics[AUDIT_TOPIC].leaders[0]


def test_events_of_all_nodes_are_in_one_topic_and_outlive_its_leader(tmp_path: Path) -> None:
    with SmallCluster(tmp_path, subprocess=True, audit="on", session_timeout_s=2.0) as nodes:
        nodes.add_all(*NODES)
        before = {(node_id, f"before-{node_id}") for node_id in NODES}
        for node_id, topic in before:
            made_by(nodes.nodes[node_id], topic)
        eventually(lambda: made(audited(nodes)) >= before, lambda: f"{before}: {made(audited(nodes))}")
        starts = {each.node for each in audited(nodes) if each.event.kind is AuditKind.NODE}
        assert starts == set(NODES)
        lost = leader(nodes)
        nodes.nodes[lost].kill()
        nodes.remove(lost)
        after = {(node_id, f"after-{node_id}") for node_id in nodes.nodes}
        for node_id, topic in after:
            made_by(nodes.nodes[node_id], topic)
        eventually(lambda: made(audited(nodes)) >= before | after, lambda: f"{after}: {made(audited(nodes))}")
        assert leader(nodes) != lost
