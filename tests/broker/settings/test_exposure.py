"""A broker that strangers can reach does not start by accident."""

import re
from typing import Any

import pytest

from headwater.broker.settings.broker_config import BrokerConfig, ConfigError

TLS = {"certificate": "/tls/node.pem", "key": "/tls/node.key"}
LOGIN = {"name": "clients", "protocol": "SASL_SSL", "listen": "0.0.0.0:9093", **TLS}
MUTUAL = {**LOGIN, "protocol": "SSL", "client_certificates": "require", "client_ca": "/tls/ca.pem"}
ADMIN = {"super_users": ["User:admin"]}
LOCAL_LOGIN = {**LOGIN, "listen": "127.0.0.1:9093"}
PEERS = {"peer_listen": "0.0.0.0:9192", "metadata": "etcds://etcd:2379", **ADMIN}
PLAIN_ETCD = {"metadata": "etcd://user:hush@127.0.0.1:2379,etcd-2.example.com:2379/x", **ADMIN}
PEER_TLS = {"peer_tls": {"certificate": "/tls/node.pem", "key": "/tls/node.key", "ca": "/tls/ca.pem"}}


def config(*listeners: dict[str, Any], **settings: Any) -> BrokerConfig:
    given = {"http": "off", **settings}
    return BrokerConfig.load(None, **({"listener": list(listeners), **given} if listeners else given))


@pytest.mark.parametrize(
    ("listeners", "settings", "reason"),
    [
        ((), {"listen": "0.0.0.0:9092"}, "listener PLAINTEXT on 0.0.0.0:9092 asks no client who it is"),
        ((), {"listen": "[::]:9092"}, "listener PLAINTEXT on [::]:9092 asks no client"),
        ((), {"listen": "broker-1:9092"}, "listener PLAINTEXT on broker-1:9092 asks no client"),
        (({**LOGIN, "protocol": "SSL"},), {}, 'set client_certificates = "require"'),
        (({**MUTUAL, "client_certificates": "request"},), {}, 'set client_certificates = "require"'),
        (({"name": "a", "protocol": "SASL_PLAINTEXT", "listen": "192.0.2.1:9092"},), {}, "is not encrypted"),
        ((), {"http": "0.0.0.0:8080"}, "HTTP on 0.0.0.0:8080 asks for no token"),
        ((), {"http": "0.0.0.0:8080", "http_token_file": "/token"}, "is not encrypted"),
        ((), {"http": "0.0.0.0:8080", "authorization": "on"}, "does not hold its clients to access control bindings"),
        ((LOGIN,), PEERS, "nodes on 0.0.0.0:9192 send each other what clients send to listener clients with TLS"),
        ((LOCAL_LOGIN,), PLAIN_ETCD, "the metadata store on etcd-2.example.com has what users log in with"),
        ((LOCAL_LOGIN,), {**ADMIN, "metadata": "zookeeper://[2001:db8::1]:2181"}, "store on 2001:db8::1 has"),
        ((), {"super_users": ["User:ANONYMOUS"]}, "super_users names User:ANONYMOUS"),
    ],
)
def test_what_is_open_to_strangers_is_said_and_needs_a_word(
    listeners: tuple[dict[str, Any], ...], settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)) as refused:
        config(*listeners, **settings)
    assert "headwater security init" in str(refused.value) and "--insecure" in str(refused.value)
    assert config(*listeners, **settings, insecure=True).insecure


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "[::1]", "localhost"])
def test_this_machine_may_be_open_to_its_own_users(host: str) -> None:
    assert config(listen=f"{host}:9092", http=f"{host}:8080").client_listeners


@pytest.mark.parametrize("listener", [LOGIN, MUTUAL])
def test_listeners_that_ask_who_is_there_and_encrypt_need_no_word(listener: dict[str, Any]) -> None:
    assert config(listener, **ADMIN).client_listeners[0].asks_who


@pytest.mark.parametrize(
    ("listener", "settings"),
    [
        (LOGIN, {**PEERS, **PEER_TLS}),
        (LOCAL_LOGIN, PEERS),
        (LOGIN, {**PEERS, "peer_listen": "127.0.0.1:9192"}),
        (LOCAL_LOGIN, {**ADMIN, "metadata": "etcd://user:hush@127.0.0.1:2379,[::1]:2379"}),
        (LOCAL_LOGIN, {**ADMIN, "metadata": "zookeepers://zk-1.example.com:2181"}),
        (LOCAL_LOGIN, {**PLAIN_ETCD, "insecure_metadata": True}),
        ({"name": "plain", "listen": "127.0.0.1:9092"}, PLAIN_ETCD),
    ],
)
def test_nodes_and_metadata_that_are_encrypted_or_on_this_machine_need_no_word(
    listener: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert config(listener, **settings).metadata


def test_what_is_wrong_with_the_metadata_store_is_said_without_its_password() -> None:
    with pytest.raises(ConfigError) as refused:
        config(LOCAL_LOGIN, **PLAIN_ETCD)
    assert "hush" not in str(refused.value)
    assert "--insecure-metadata" in str(refused.value)
