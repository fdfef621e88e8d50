"""Listeners in the configuration: what is read, and what stops the start with which words."""

from pathlib import Path
from typing import Any

import pytest

from headwater.broker.settings.broker_config import BrokerConfig, ConfigError
from headwater.broker.settings.listener_config import PRINCIPAL_SOURCES, SecurityProtocol
from headwater.broker.settings.setting import Address
from headwater.security.principal_rules import PrincipalSource

TLS = {"protocol": "SSL", "certificate": "/tls/node.pem", "key": "/tls/node.key"}
PLAIN = {"name": "inside", "listen": "127.0.0.1:9092"}
SASL = {**PLAIN, "protocol": "SASL_PLAINTEXT"}
MUTUAL = {**PLAIN, **TLS, "client_certificates": "require", "client_ca": "/tls/ca.pem"}


def loaded(*listeners: dict[str, Any], **more: Any) -> BrokerConfig:
    return BrokerConfig.load(None, listener=list(listeners), **more)


def test_a_configuration_without_listeners_has_one(tmp_path: Path) -> None:
    (listener,) = BrokerConfig.load(None, listen="127.0.0.1:1234", advertise="example.com:9092").client_listeners
    assert (listener.name, listener.protocol) == ("PLAINTEXT", SecurityProtocol.PLAINTEXT)
    assert listener.listen == Address("127.0.0.1", 1234)
    assert listener.advertised(1234) == ("example.com", 9092)


def test_listeners_are_tables_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "headwater.toml"
    file.write_text("""
durability = "os"

[[listener]]
name = "inside"
listen = "127.0.0.1:9092"

[[listener]]
name = "clients"
protocol = "SSL"
listen = "0.0.0.0:9093"
advertise = "broker-1.example.com:9093"
certificate = "/tls/node.pem"
key = "/tls/node.key"
client_ca = "/tls/ca.pem"
client_certificates = "require"
max_connections = 50
""")
    inside, clients = BrokerConfig.load(file).client_listeners
    assert (inside.name, inside.protocol, inside.listen) == ("inside", "PLAINTEXT", ("127.0.0.1", 9092))
    assert (clients.protocol, clients.client_certificates, clients.max_connections) == ("SSL", "require", 50)
    assert (clients.certificate, clients.key, clients.client_ca) == (
        Path("/tls/node.pem"), Path("/tls/node.key"), Path("/tls/ca.pem"),
    )  # fmt: skip
    assert clients.advertised(9093) == ("broker-1.example.com", 9093)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"listen": "127.0.0.1:9092"}, "a listener without a name: name is missing"),
        ({"name": "a"}, "listener 'a': listen is missing"),
        ({**PLAIN, "name": "a b"}, "a name of 1 to 64 letters, digits, - and _ is needed"),
        ({**PLAIN, "name": "x" * 65}, "a name of 1 to 64"),
        ({**PLAIN, "protocol": "ssl"}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL is needed"),
        ({**PLAIN, "protocol": ["SSL"]}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL is needed"),
        ({**PLAIN, "protocol": "SASL_SSL"}, "SASL_SSL needs certificate and key: PEM files"),
        ({**PLAIN, "mechanisms": ["PLAIN"]}, "mechanisms is for listeners with SASL; the protocol of this one is"),
        ({**PLAIN, **TLS, "reauth_ms": 1}, "reauth_ms is for listeners with SASL; the protocol of this one is SSL"),
        ({**PLAIN, "reauth_ms": -1}, "a number of milliseconds is needed; 0 sets no limit"),
        (
            {**SASL, "mechanisms": ["GSSAPI"]},
            "one or more of SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER are needed",
        ),
        ({**SASL, "mechanisms": []}, "one or more of SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER are needed"),
        (
            {**SASL, "listen": "0.0.0.0:9092", "mechanisms": ["PLAIN"]},
            "PLAIN sends passwords as they are: it needs SASL_SSL, or a loopback address",
        ),
        (
            {**SASL, "listen": "0.0.0.0:9092", "mechanisms": ["OAUTHBEARER"]},
            "OAUTHBEARER sends tokens as they are: it needs SASL_SSL, or a loopback address",
        ),
        ({**SASL, "mechanisms": ["OAUTHBEARER"]}, "add a table [oidc] with issuer and audience"),
        ({**PLAIN, "certifcate": "x"}, "unknown key 'certifcate'; did you mean 'certificate'?"),
        ({**PLAIN, "listen": "9092"}, "HOST:PORT is needed"),
        ({**PLAIN, "advertise": "example.com:0"}, "advertise needs the port that clients connect to, not 0"),
        ({**PLAIN, "protocol": "SSL"}, "SSL needs certificate and key: PEM files"),
        ({**PLAIN, **TLS, "client_certificates": "require"}, "client_certificates needs client_ca"),
        ({**PLAIN, **TLS, "client_certificates": True}, "one of none, request, require is needed"),
        (
            {**PLAIN, "certificate": "/x"},
            "is for listeners with TLS; the protocol of this one is PLAINTEXT",
        ),
        ({**PLAIN, "client_certificates": "request"}, "client_certificates is for listeners with TLS"),
        ({**PLAIN, "principal_from": "cn"}, "principal_from is for listeners with SSL; the protocol of this one is"),
        ({**MUTUAL, "protocol": "SASL_SSL", "principal_rules": ["DEFAULT"]}, "the protocol of this one is SASL_SSL"),
        ({**PLAIN, **TLS, "principal_rules": ["DEFAULT"]}, 'set client_certificates = "require"'),
        ({**MUTUAL, "principal_from": "CN"}, "one of dn, cn, san-dns, san-uri is needed"),
        ({**MUTUAL, "principal_rules": []}, "a list of 1 to 100 rules is needed"),
        ({**MUTUAL, "principal_rules": [1]}, "a list of texts is needed"),
        ({**MUTUAL, "principal_rules": ["RULE:^CN=(?=x)/$1/"]}, "is not valid RE2"),
        ({**MUTUAL, "principal_rules": "RULE:CN"}, "A rule is DEFAULT or RULE:pattern/replacement/"),
        ({**MUTUAL, "principal_rules": ["DEFAULT"], "principal_from": "cn"}, "Rules are for distinguished names"),
        ({**PLAIN, "max_connections": 0}, "a whole number above 0 is needed"),
        ({**PLAIN, "max_connections": True}, "a whole number above 0 is needed"),
    ],
)
def test_a_listener_that_makes_no_sense_stops_the_start(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(table)
    assert words in str(refused.value)


def test_a_listener_says_which_part_of_a_certificate_names_the_user() -> None:
    (taken,) = loaded({**MUTUAL, "principal_from": "san-uri"}, http="off").listener
    assert taken.principals().source is PrincipalSource.SAN_URI
    assert set(PRINCIPAL_SOURCES) == {each.value for each in PrincipalSource}


@pytest.mark.parametrize("rules", ["RULE:^CN=(.*?), *O=x$/$1/L, DEFAULT", ["RULE:^CN=(.*?), *O=x$/$1/L", "DEFAULT"]])
def test_rules_for_principals_are_a_list_or_one_text_as_kafka_has_it(rules: object) -> None:
    (mapped,) = loaded({**MUTUAL, "principal_rules": rules}, http="off").listener
    of_rules = mapped.principals().rules
    assert of_rules is not None
    assert [of_rules.name(name) for name in ("CN=Alice,O=x", "CN=Bob")] == ["alice", "CN=Bob"]


def test_a_listener_with_sasl_offers_scram_unless_it_says_otherwise() -> None:
    first, second = loaded(
        SASL, {**SASL, "name": "b", "listen": "127.0.0.1:1", "mechanisms": ["PLAIN"]}, http="off"
    ).listener
    assert (first.offered, second.offered) == (("SCRAM-SHA-512", "SCRAM-SHA-256"), ("PLAIN",))


def test_listeners_have_names_and_addresses_of_their_own() -> None:
    with pytest.raises(ConfigError, match="two listeners have one name"):
        loaded(PLAIN, {**PLAIN, "listen": "127.0.0.1:9093"})
    with pytest.raises(ConfigError, match="two listeners have one address"):
        loaded(PLAIN, {**PLAIN, "name": "other"})
    with pytest.raises(ConfigError, match="at most 16 listeners"):
        loaded(*({"name": f"l{port}", "listen": f"127.0.0.1:{port}"} for port in range(1, 18)))
    with pytest.raises(ConfigError, match="tables are needed"):
        BrokerConfig.load(None, listener="127.0.0.1:9092")


def test_listeners_take_the_place_of_listen_and_advertise() -> None:
    for option in ({"listen": "127.0.0.1:1"}, {"advertise": "example.com:1"}):
        with pytest.raises(ConfigError, match="either listen and advertise, or listeners"):
            loaded(PLAIN, **option)


def test_the_http_interface_needs_a_listener_that_it_can_use() -> None:
    with pytest.raises(ConfigError, match=r"there is none: add one on 127.0.0.1, or set http = \"off\""):
        loaded({**PLAIN, **TLS})
    assert loaded({**PLAIN, **TLS}, http="off").http is None
    assert len(loaded(PLAIN, {**TLS, "name": "clients", "listen": "127.0.0.1:9093"}).client_listeners) == 2
