"""A cluster with TLS everywhere: nothing that was acknowledged is lost while nodes die, restart, and get other
certificates and another secret; and what belongs to another cluster is refused in words."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.broker.cluster.followed_secrets import read_secret_file
from headwater.cli.security import authority as authorities
from headwater.cli.security.authority import Authority, NodeFiles
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.model.ids import NodeId
from headwater.model.replica import StoreUnreachable
from headwater.peers.channel import ChannelOptions
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.peers.identity import PeerIdentity, PeerTls
from headwater.peers.messages import PeerAddress
from headwater.peers.remote_store import RemoteStore
from headwater.testing.processes.broker_process import BrokerProcess
from headwater.testing.processes.cluster import ProcessCluster
from headwater.testing.processes.etcd_process import find_etcd
from headwater.transport.ports import free_port
from headwater.transport.tls import ClientCertificates, ServerTlsFiles
from headwater.transport.tls_reload import ReloadedTls
from tests.support.effort import IS_LONG
from tests.support.eventually import eventually, gathered
from tests.support.producing import Producing

HOST = "127.0.0.1"
TOPIC = "t"
PARTITIONS = 3
NODES = 3
REACHED = 150
"""Records that go through between one event and the next."""
LISTENERS = ("peers", "clients")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    if find_etcd() is None:
        pytest.skip("etcd is not installed (apt-get install etcd-server)")
    directory = tmp_path_factory.mktemp("secure")
    with ProcessCluster(
        directory, secure=True, session_timeout_s=3.0, offsets_topic_partitions=2, transaction_state_topic_partitions=2
    ) as cluster:
        assignment = [[(index + place) % NODES + 1 for place in range(NODES)] for index in range(PARTITIONS)]
        topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment, config={"min.insync.replicas": "2"})
        admin = AdminClient({**cluster.client_config, "log_level": 0})  # a future does not keep its client alive
        admin.create_topics([topic])[TOPIC].result(60)
        del admin
        yield cluster


class Certificates:
    """Of the nodes, and who signs them; both can be replaced."""

    def __init__(self, cluster: ProcessCluster, scratch: Path) -> None:
        self._cluster = cluster
        self._scratch = scratch
        self._tls = cluster.secured.authority_file.parent
        self._count = 0
        self.trusted = scratch / "trusted.pem"
        """For clients: the first authority and the second."""
        self.second = Authority.create(scratch / "second", "the second authority")
        first = cluster.secured.authority_file.read_bytes()
        self.trusted.write_bytes(first + self.second.file.read_bytes())

    def trust(self, *authority_files: Path) -> None:
        """From now on nodes trust these, and no others."""
        self._replace("ca.pem", b"".join(path.read_bytes() for path in authority_files))
        self._wait(("peers",))

    def issue(self, authority: Authority | None = None) -> None:
        """Every node gets another certificate, of this authority or the first."""
        issuer = authority or Authority.load(self._tls)
        self._count += 1
        for node in self._cluster.nodes:
            name = self._cluster.host(node)
            files = issuer.issue(f"{name}-{self._count}", [HOST])
            self._replace(f"{name}.key", files.key.read_bytes())
            self._replace(f"{name}.pem", files.certificate.read_bytes())
        self._wait(LISTENERS)

    def _replace(self, name: str, data: bytes) -> None:
        self._marks = {node: len(log(self._cluster, node)) for node in self._cluster.nodes}
        scratch = self._tls / f"{name}.new"
        scratch.touch(0o600)
        scratch.write_bytes(data)
        scratch.replace(self._tls / name)

    def _wait(self, listeners: tuple[str, ...]) -> None:
        """Until every node has read the files again, and found them good."""
        for node in self._cluster.nodes:
            for listener in listeners:
                line = f"tls_reloaded listener={listener}"
                eventually(partial(self._has_said, node, line), f"node {node} says {line}")

    def _has_said(self, node: NodeId, line: str) -> bool:
        return line in log(self._cluster, node)[self._marks[node] :]


def goes_on(producing: Producing) -> None:
    eventually(partial(producing.has_reached, producing.count + REACHED), lambda: f"{producing.count} records so far")


def is_whole(cluster: ProcessCluster) -> bool:
    state = cluster.state()
    heads = [place for place, head in state.heads.items() if place[0] == TOPIC and head.open is not None]
    return state.alive >= set(cluster.nodes) and all(len(state.replicas(*place)) == NODES for place in heads)


def restart_one(cluster: ProcessCluster, node: NodeId, end: Callable[[NodeId], None]) -> None:
    end(node)
    cluster.restart(node)
    eventually(lambda: is_whole(cluster), "every partition has its replicas")


def rotate_secret(cluster: ProcessCluster) -> str:
    command = [sys.executable, "-m", "headwater.cli.main", "cluster", "rotate-secret"]
    command += ["--metadata", cluster.metadata_url, "--file", str(cluster.secured.secret_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def read_all(client: dict[str, Any], partition: int, count: int) -> list[int]:
    consumer = Consumer({**client, "group.id": "reading", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    values = gathered(lambda: [each.value() for each in consumer.consume(1000, 0.2) if not each.error()], count)
    consumer.close()
    return [int(value) for value in values[:count]]


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_nothing_is_lost_while_nodes_die_and_certificates_and_secret_are_replaced(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    certificates = Certificates(cluster, tmp_path)
    client = {**cluster.client_config, "ssl.ca.location": str(certificates.trusted)}
    producing = Producing(client, TOPIC, PARTITIONS)
    try:
        goes_on(producing)
        restart_one(cluster, cluster.find(f"leader of {TOPIC}-0"), cluster.kill)
        goes_on(producing)
        for node in cluster.nodes if IS_LONG else cluster.nodes[:1]:
            restart_one(cluster, node, cluster.stop)
            goes_on(producing)

        certificates.issue()
        goes_on(producing)
        certificates.trust(certificates.trusted)
        certificates.issue(certificates.second)
        certificates.trust(certificates.second.file)
        goes_on(producing)
        for node in cluster.nodes if IS_LONG else cluster.nodes[1:2]:
            restart_one(cluster, node, cluster.kill)  # those that remain meet it with the new files
            goes_on(producing)

        before = cluster.secured.secret_file.read_text()
        told = rotate_secret(cluster)
        assert "Nodes take the new secret alone." in told
        assert cluster.secured.secret_file.read_text() != before
        goes_on(producing)
        restart_one(cluster, cluster.find(f"leader of {TOPIC}-1"), cluster.kill)
        goes_on(producing)
    finally:
        producing.stop()
    assert producing.failed == []
    for partition, numbers in producing.acknowledged.items():
        assert numbers == list(range(len(numbers))), "every record is acknowledged, in order"
        assert read_all(client, partition, len(numbers)) == numbers


def stranger(cluster: ProcessCluster, tmp_path: Path, **config: Any) -> BrokerProcess:
    """A node that would be the fourth, and only keep replicas. It has what a node of the cluster has, but for what is
    given."""
    listen = f"{HOST}:{free_port()}"
    way_in = cluster.secured.settings(cluster.host(cluster.nodes[0]), listen, HOST)
    own = {**cluster.node_config(cluster.nodes[0]), **way_in, "node_id": 9, "data_dir": tmp_path / "data"}
    return BrokerProcess({**own, "roles": "store", **config}, tmp_path)


def test_a_node_with_another_secret_is_not_served_and_the_logs_of_both_say_why(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("0f" * 32)
    marks = {node: len(log(cluster, node)) for node in cluster.nodes}
    node = stranger(cluster, tmp_path, cluster_secret_file=secret)
    node.launch()
    try:
        eventually(lambda: "a peer does not know the secret" in BrokerProcess.log_in(tmp_path), "its log says why")
        said = "it has another secret of the cluster, or a proxy is between the two"
        eventually(lambda: any(said in log(cluster, each)[mark:] for each, mark in marks.items()), "and theirs")
    finally:
        node.kill()


def log(cluster: ProcessCluster, node: NodeId) -> str:
    return cluster.log_path(node).read_text(errors="replace")


async def identity(cluster: ProcessCluster, files: NodeFiles | None, secrets: ClusterSecrets | None) -> PeerIdentity:
    """What a process shows that has these files, even if it should know better than to use them."""
    known = secrets or ClusterSecrets(*read_secret_file(cluster.secured.secret_file))
    if files is None:
        return PeerIdentity(known)
    long_ago = datetime.now(UTC) - timedelta(days=30)
    tls = ServerTlsFiles(
        certificate=files.certificate,
        key=files.key,
        client_ca=cluster.secured.authority_file,
        client_certificates=ClientCertificates.REQUIRE,
        is_of_node=True,
    )
    return PeerIdentity(known, PeerTls(await ReloadedTls.open("peers", tls, clock=lambda: long_ago)))


def test_whatever_does_not_belong_is_refused_by_a_node_whose_log_says_why(
    cluster: ProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = Authority.create(tmp_path / "signer", "the cluster's own by now")
    before = cluster.secured.authority_file.read_bytes()
    certificates = Certificates(cluster, tmp_path)
    (tmp_path / "own.pem").write_bytes(before)
    certificates.trust(tmp_path / "own.pem", signer.file)
    right = signer.issue("right", [HOST])
    foreign = Authority.create(tmp_path / "foreign", "another authority").issue("foreign", [HOST])
    monkeypatch.setattr(authorities, "CLOCK_SKEW", timedelta(days=2))
    monkeypatch.setattr(authorities, "NODE_DAYS", -1)
    expired = signer.issue("expired", [HOST])

    async def call(files: NodeFiles | None, secrets: ClusterSecrets | None = None) -> None:
        metadata = await open_metadata(cluster.metadata_url)
        nodes = [keys.decode_node(kv.value) for kv in await metadata.list(keys.NODES)]
        await metadata.close()
        node = next(each for each in nodes if each.node_id == cluster.nodes[0])
        address = PeerAddress(node.peer_host, node.peer_port)
        options = ChannelOptions(connect_timeout_s=10.0)
        store = RemoteStore(node.store_ids[0], address, await identity(cluster, files, secrets), options=options)
        try:
            await store.ping()
        finally:
            store.close()

    def refused(words: str, files: NodeFiles | None, secrets: ClusterSecrets | None = None) -> None:
        mark = len(log(cluster, cluster.nodes[0]))
        with pytest.raises(StoreUnreachable):
            asyncio.run(call(files, secrets))
        eventually(lambda: words in log(cluster, cluster.nodes[0])[mark:], words)

    asyncio.run(call(right))
    refused("self-signed certificate in certificate chain", foreign)
    refused("certificate has expired", expired)
    refused("the other side does not speak TLS", None)
    refused("a peer does not know the secret of the cluster", right, ClusterSecrets(b"another secret of a cluster"))


def test_a_node_whose_certificate_has_expired_or_is_for_another_host_does_not_start(
    cluster: ProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.create(tmp_path / "authority", "an authority")
    elsewhere = authority.issue("elsewhere", ["elsewhere.example.com"])
    monkeypatch.setattr(authorities, "NODE_DAYS", -1)
    monkeypatch.setattr(authorities, "CLOCK_SKEW", timedelta(days=2))
    expired = authority.issue("expired", [HOST])
    advertised = {"peer_advertise": "nowhere.example.com:9192"}
    for files, more, words in ((expired, {}, "expired on"), (elsewhere, advertised, "nowhere.example.com")):
        tls = {"certificate": files.certificate, "key": files.key, "ca": authority.file}
        with pytest.raises(RuntimeError, match=words):
            stranger(cluster, tmp_path, peer_tls=tls, **more).start()
