"""A cluster moves from plain connections between nodes to TLS, one restart after the other, under load."""

from functools import partial
from pathlib import Path

import pytest

from headwater.cli.security.authority import Authority
from headwater.peers.identity import PeerTlsMode
from headwater.transport.ports import free_ports
from tests.cluster.small_cluster import SmallCluster
from tests.support.eventually import eventually
from tests.support.log_lines import own_lines
from tests.support.producing import Producing

HOST = "127.0.0.1"
REACHED = 30


@pytest.mark.timeout(300)
def test_nothing_is_lost_while_every_node_is_restarted_for_each_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    authority = Authority.create(tmp_path / "tls", "an authority")
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    with SmallCluster(tmp_path) as cluster:
        for node, port in ports.items():
            cluster.add(node, listen=f"{HOST}:{port}")
        cluster.create("t", 1, 3, **{"min.insync.replicas": "2"})
        producing = Producing({"bootstrap.servers": cluster.bootstrap}, "t", 1)
        try:
            for mode in PeerTlsMode:
                for node, port in ports.items():
                    files = authority.issue(f"{mode}-{node}", [HOST])
                    cluster.remove(node)
                    peer_tls = {"certificate": files.certificate, "key": files.key, "ca": authority.file, "mode": mode}
                    cluster.add(node, listen=f"{HOST}:{port}", peer_tls=peer_tls)
                    cluster.wait_until("all replicas are there", lambda: cluster.facts().is_healthy)
                    eventually(partial(producing.has_reached, producing.count + REACHED), "records go on")
        finally:
            producing.stop()
        (numbers,) = producing.acknowledged.values()
        assert producing.failed == []
        assert numbers == list(range(len(numbers))), "every record is acknowledged, in order"
        assert [int(value) for value in cluster.read("t", len(numbers))] == numbers
    lines = own_lines(caplog)
    assert not [line for line in lines if "peer_handshake_failed" in line or "plaintext_on_tls_listener" in line]
