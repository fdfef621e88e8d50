"""The table [peer_tls]."""

import re
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.settings.broker_config import BrokerConfig, ConfigError
from headwater.peers.identity import PeerTlsMode

FILES = {"certificate": "/tls/node.pem", "key": "/tls/node.key", "ca": "/tls/ca.pem"}
MEMBER = {"peer_listen": "127.0.0.1:9192", "metadata": "etcd://127.0.0.1:2379"}


def test_the_table_is_read_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "headwater.toml"
    file.write_text(
        """
metadata = "etcd://127.0.0.1:2379"
[cluster]
peer_listen = "127.0.0.1:9192"
cluster_secret_file = "/etc/headwater/cluster-secret"
[peer_tls]
certificate = "/tls/node.pem"
key = "/tls/node.key"
ca = "/tls/ca.pem"
mode = "prefer"
"""
    )
    config = BrokerConfig.load(file)
    assert config.peer_tls is not None
    assert (config.peer_tls.certificate, config.peer_tls.ca) == (Path("/tls/node.pem"), Path("/tls/ca.pem"))
    assert config.peer_tls.mode is PeerTlsMode.PREFER
    assert config.cluster_secret_file == Path("/etc/headwater/cluster-secret")
    assert BrokerConfig.load(None, **MEMBER, peer_tls=FILES).peer_tls.mode is PeerTlsMode.REQUIRE  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("yes", "a table is needed"),
        ({}, "certificate and key and ca missing"),
        ({**FILES, "ca": ""}, "a path is needed"),
        ({**FILES, "modus": "x"}, "did you mean 'mode'?"),
        ({**FILES, "mode": "maybe"}, "one of accept, prefer, require is needed"),
    ],
)
def test_a_table_that_cannot_be_meant_stops_the_start(table: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        BrokerConfig.load(None, **MEMBER, peer_tls=table)
