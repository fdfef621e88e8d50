"""Logins that fail, and secrets that were set, sent and mistyped: nothing tells the secrets."""

import logging
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headwater.broker.audit.audit_event import AuditKind, AuditRecord, AuditVerdict
from headwater.cli.audit_reading import AuditReader
from headwater.cli.brokers import Brokers
from headwater.cli.client import cluster
from headwater.model.cluster import AUDIT_TOPIC
from headwater.security.oauthbearer import bearer_message
from headwater.security.plain import plain_message
from headwater.testing import Broker
from headwater.transport.ports import free_ports
from headwater.wire.api_keys import ApiKey
from tests.support.eventually import eventually
from tests.support.messages import nested
from tests.support.wire import WireClient, ask

PASSWORD, WRONG, WEBHOOK = "canary-password-91ab", "canary-mistyped-17cd", "whsec_canary-5f2b8d0c"
SALTED = b"canary-salted---" * 4
TOKEN = "eyJhbGciOiJSUzI1NiJ9.Y2FuYXJ5LXRva2Vu.c2lnbmF0dXJl"
CANARIES = (PASSWORD, WRONG, WEBHOOK, SALTED.decode(), SALTED.hex(), TOKEN, "Y2FuYXJ5LXRva2Vu")
SHA_512 = 2


class Loggable:
    """A broker that takes passwords and tokens, with the addresses of its listeners and of its metrics."""

    def __init__(self, inside: int, login: int, metrics: int) -> None:
        self.inside = f"127.0.0.1:{inside}"
        self.login = ("127.0.0.1", login)
        self.metrics = f"http://127.0.0.1:{metrics}/metrics"

    def records(self) -> list[AuditRecord]:
        with cluster(Brokers(self.inside)) as client:
            return [*AuditReader(client, 0).to_end()] if AUDIT_TOPIC in client.topics([AUDIT_TOPIC]) else []


@pytest.fixture(scope="module")
def broker() -> Iterator[Loggable]:
    inside, login, metrics, issuer = free_ports(4)
    mechanisms = ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"]
    tables = [
        {"name": "inside", "listen": f"127.0.0.1:{inside}"},
        {"name": "a", "protocol": "SASL_PLAINTEXT", "listen": f"127.0.0.1:{login}", "mechanisms": mechanisms},
    ]
    oidc = {"issuer": f"http://127.0.0.1:{issuer}", "audience": "headwater"}
    with Broker(listener=tables, oidc=oidc, authorization="off", metrics=f"127.0.0.1:{metrics}"):
        yield Loggable(inside, login, metrics)


def log_in(broker: Loggable, mechanism: str, message: bytes) -> str:
    """What the client is told."""
    with WireClient(broker.login) as client:
        assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism).error_code == 0
        return str(client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message).error_message)


def test_secrets_are_told_nowhere(broker: Loggable, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    host, _, port = broker.inside.partition(":")
    inside = host, int(port)
    upsertions = [
        nested(name=user, mechanism=SHA_512, iterations=4096, salt=b"s" * 16, salted_password=salted)
        for user, salted in (("alice", SALTED), ("bob", SALTED[::-1]))
    ]
    ask(inside, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=upsertions)
    admin = AdminClient({"bootstrap.servers": broker.inside})
    values = {"push.url": "https://x.example/h", "push.secret": WEBHOOK, "subscription.topic": "t"}
    entries = [
        ConfigEntry(f"headwater.{name}", value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    group = ConfigResource(ResourceType.GROUP, "hooked", incremental_configs=entries)
    admin.incremental_alter_configs([group])[group].result(60)
    told = [
        log_in(broker, "PLAIN", plain_message("alice", WRONG)),
        log_in(broker, "PLAIN", plain_message("alice", PASSWORD) + b"\xff"),
        log_in(broker, "PLAIN", f"{PASSWORD}\0alice\0{WRONG}".encode()),
        log_in(broker, "SCRAM-SHA-512", f"n,,n=alice,r={WRONG},x".encode()),
        log_in(broker, "OAUTHBEARER", bearer_message(TOKEN)),
    ]
    described = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")])
    told += [str(entry.value) for future in described.values() for entry in future.result(60).values()]
    failed = {"PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"}

    def has_all() -> bool:
        events = [each.event for each in broker.records()]
        names = {each.name for each in events if each.kind is AuditKind.MANAGEMENT}
        return names >= {"alice", "bob", "hooked"} and {each.mechanism for each in events} >= failed

    eventually(has_all, "every event is in the audit")
    told += [each.to_json().decode() for each in broker.records()]
    with urllib.request.urlopen(broker.metrics) as page:
        told.append(page.read().decode())
    told.append(caplog.text)
    everything = "\n".join(told)
    assert "hooked" in everything and "authentication_failed" in everything
    assert [canary for canary in CANARIES if canary in everything] == []


def test_a_mechanism_that_is_not_offered_is_a_login_that_failed(broker: Loggable) -> None:
    with WireClient(broker.login) as client:
        assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI").error_code == 33

    def is_told() -> bool:
        events = [each.event for each in broker.records() if each.event.mechanism == "GSSAPI"]
        return [(each.verdict, each.rule) for each in events] == [(AuditVerdict.FAILED, "unsupported_sasl_mechanism")]

    eventually(is_told, "the login that failed is told")
