"""Clients show certificates: who they are by them, to clients that others wrote, and to a client that speaks bytes."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.helpers import create_ssl_context
from bench import maven
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from headwater.broker.server import Broker
from headwater.model.errors import ErrorCode
from headwater.security.oauthbearer import bearer_message
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from headwater.transport.ports import free_port
from tests.support import local_broker
from tests.support.certificates import Authority
from tests.support.effort import only_long
from tests.support.eventually import until
from tests.support.identity_provider import identity_provider
from tests.support.local_broker import API_VERSIONS
from tests.support.log_lines import own_lines
from tests.support.wire import AsyncWireClient

RULE = "RULE:^CN=(.*?),OU=.*$/$1/L"
ANONYMOUS = "User:ANONYMOUS"
SASL_HANDSHAKE, DESCRIBE_ACLS, SASL_AUTHENTICATE = 17, 29, 36
EXPIRES = datetime(2040, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Mutual:
    """A broker with one listener, which asks for certificates."""

    broker: Broker
    authority: Authority
    port: int

    def files(self, common_name: str | None, **more: Any) -> tuple[str, str]:
        certificate, key = self.authority.issue("client", common_name=common_name, **more)
        return str(certificate), str(key)

    def context(self, files: tuple[str, str] | None) -> ssl.SSLContext:
        context: ssl.SSLContext = create_ssl_context(cafile=str(self.authority.file))
        if files is not None:
            context.load_cert_chain(*files)
        return context

    def principals(self) -> list[str]:
        return sorted(str(connection.principal) for connection in self.broker.server.connections())

    async def connect(self, files: tuple[str, str] | None) -> AsyncWireClient:
        return AsyncWireClient(
            *await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context(files), server_hostname="localhost")
        )


@asynccontextmanager
async def mutual(
    directory: Path,
    clock: ManualClock | None = None,
    demand: str = "require",
    config: dict[str, Any] | None = None,
    **keys: Any,
) -> AsyncIterator[Mutual]:
    authority = Authority.create(directory)
    certificate, key = authority.issue("node", "localhost", "127.0.0.1")
    port = free_port()
    table = {
        "name": "clients",
        "protocol": "SSL",
        "listen": f"127.0.0.1:{port}",
        "certificate": str(certificate),
        "key": str(key),
        "client_ca": str(authority.file),
        "client_certificates": demand,
        **keys,
    }
    async with asyncio.timeout(120):
        more = {"listen": None, "http": "off", "authorization": "off", **(config or {})}
        broker: Broker = await local_broker.start(directory, MemoryFiles(), clock, listener=[table], **more)
        try:
            yield Mutual(broker, authority, port)
        finally:
            await broker.stop()


async def is_cut_off(client: AsyncWireClient) -> bool:
    try:
        await client.ask(API_VERSIONS, 0)
    except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, AssertionError):
        return True
    finally:
        client.close()
    return False


def ask_librdkafka(serving: Mutual, files: tuple[str, str], timeout_s: float = 60) -> list[str]:
    certificate, key = files
    admin = AdminClient(
        {
            "bootstrap.servers": f"localhost:{serving.port}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(serving.authority.file),
            "ssl.certificate.location": certificate,
            "ssl.key.location": key,
            "log_level": 0,
        }
    )
    admin.list_topics(timeout=timeout_s)
    return serving.principals()


def ask_kafka_python(serving: Mutual, files: tuple[str, str]) -> list[str]:
    client = kafka.KafkaAdminClient(
        bootstrap_servers=f"localhost:{serving.port}", security_protocol="SSL", ssl_context=serving.context(files)
    )
    try:
        client.list_topics()
        return serving.principals()
    finally:
        client.close()


async def ask_aiokafka(serving: Mutual, files: tuple[str, str]) -> list[str]:
    client = aiokafka.AIOKafkaProducer(
        bootstrap_servers=f"localhost:{serving.port}", security_protocol="SSL", ssl_context=serving.context(files)
    )
    try:
        await client.start()
        return serving.principals()
    finally:
        await client.stop()


def in_thread(ask: Callable[[Mutual, tuple[str, str]], list[str]]) -> Callable[..., Awaitable[list[str]]]:
    return lambda serving, files: asyncio.to_thread(ask, serving, files)


def test_clients_are_the_users_that_their_certificates_stand_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with mutual(tmp_path, principal_rules=[RULE]) as serving:
            for ask in (in_thread(ask_librdkafka), in_thread(ask_kafka_python), ask_aiokafka):
                principals = await ask(serving, serving.files("Alice"))
                assert set(principals) == {"User:alice"}
                await until(lambda: not serving.principals(), "the client is gone")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("keys", "identities", "common_name", "principal"),
    [
        ({"principal_from": "cn"}, (), "alice", "User:alice"),
        ({"principal_from": "san-dns"}, ("orders.example.com",), None, "User:orders.example.com"),
        ({"principal_rules": [r"RULE:^CN=(.*?),OU=nothing of this kind$/$1/", "DEFAULT"]}, (), "a=b", r"User:CN=a\=b"),
    ],
)
def test_a_listener_says_what_names_the_user(
    keys: dict[str, Any], identities: Iterable[str], common_name: str | None, principal: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with mutual(tmp_path, **keys) as serving:
            certificate, key = serving.authority.issue("client", *identities, common_name=common_name)
            client = await serving.connect((str(certificate), str(key)))
            await client.ask(API_VERSIONS, 0)
            (seen,) = serving.principals()
            assert seen.startswith(principal)
            client.close()

    asyncio.run(main())


def test_a_certificate_that_no_rule_applies_to_is_refused_and_a_name_within_a_name_is_no_way_around(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with mutual(tmp_path, principal_rules=["RULE:^CN=(.*?),OU=Admins,.*$/$1/"]) as serving:
            for name in ("alice", "alice,OU=Admins,O=x"):
                assert await is_cut_off(await serving.connect(serving.files(name)))
            with pytest.raises(KafkaException):
                await asyncio.to_thread(ask_librdkafka, serving, serving.files("alice"), 0.5)
            assert serving.broker.metrics.bad_requests["client_certificate_refused"] >= 3
            assert serving.broker.server.places == 0

    with caplog.at_level("INFO"):
        asyncio.run(main())
    assert any("client_certificate_refused" in line and "No rule applies" in line for line in own_lines(caplog))


def test_a_client_without_a_certificate_is_anonymous_where_none_is_required(tmp_path: Path) -> None:
    async def main() -> None:
        async with mutual(tmp_path, demand="request", principal_rules=[RULE]) as serving:
            stranger = await serving.connect(None)
            await stranger.ask(API_VERSIONS, 0)
            assert serving.principals() == [ANONYMOUS]
            known = await serving.connect(serving.files("alice"))
            await known.ask(API_VERSIONS, 0)
            assert serving.principals() == [ANONYMOUS, "User:alice"]
            for client in (stranger, known):
                client.close()

    asyncio.run(main())


def test_a_connection_ends_when_its_certificate_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(now_ms=int(EXPIRES.timestamp() * 1000) - 100)

    async def main() -> None:
        async with mutual(tmp_path, clock, principal_from="cn") as serving:
            short = await serving.connect(serving.files("short", not_after=EXPIRES))
            long = await serving.connect(serving.files("long", not_after=EXPIRES.replace(year=2041)))
            for client in (short, long):
                await client.ask(API_VERSIONS, 0)
            assert serving.principals() == ["User:long", "User:short"]
            clock.advance(0.2)
            await until(lambda: serving.principals() == ["User:long"])
            assert await is_cut_off(short)
            late = await serving.connect(serving.files("late", not_after=EXPIRES))
            assert await is_cut_off(late), "the time of the broker counts"
            await long.ask(API_VERSIONS, 0)
            long.close()

    with caplog.at_level("INFO"):
        asyncio.run(main())
    assert any("client_certificate_expired" in line and "User:short" in line for line in own_lines(caplog))


def test_behind_a_login_the_certificate_names_no_user_and_limits_the_connection(tmp_path: Path) -> None:
    clock = ManualClock(now_ms=int(EXPIRES.timestamp() * 1000) - 60_000)

    async def main() -> None:
        with identity_provider() as provider:
            keys: dict[str, Any] = {
                "protocol": "SASL_SSL",
                "mechanisms": ["OAUTHBEARER"],
                "config": {"oidc": provider.config},
            }
            async with mutual(tmp_path, clock, **keys) as serving:
                client = await serving.connect(serving.files("alice", not_after=EXPIRES))
                await client.ask(SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
                assert serving.principals() == [ANONYMOUS]
                token = provider.token("bob", now_s=clock.now_ms() / 1000)
                answer = await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=bearer_message(token))
                assert answer.error_code == 0
                assert serving.principals() == ["User:bob"]
                clock.advance(61)
                late = await serving.connect(serving.files("late", not_after=EXPIRES))
                assert await is_cut_off(late)
                client.close()

    asyncio.run(main())


def test_what_a_client_may_do_goes_by_the_user_of_its_certificate(tmp_path: Path) -> None:
    """From its first request on."""
    config = {"authorization": "on", "super_users": ["User:alice"]}
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}

    async def main() -> None:
        async with mutual(tmp_path, config=config, principal_from="cn") as serving:
            for name, code in (("alice", ErrorCode.NONE), ("bob", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)):
                client = await serving.connect(serving.files(name))
                answer = await client.ask(DESCRIBE_ACLS, 2, **every)
                assert answer.error_code == code
                client.close()

    asyncio.run(main())


@only_long
def test_kafkas_tools_are_the_users_of_their_certificates(tmp_path: Path) -> None:
    """Java's client, and a JVM of its own."""
    try:
        jars = maven.class_path("tools", maven.KAFKA_TOOLS)
    except maven.JarsUnavailable as reason:
        pytest.skip(f"Kafka's tools are not here: {reason}")

    async def main() -> None:
        async with mutual(tmp_path, principal_rules=[RULE]) as serving:
            properties = tmp_path / "client.properties"
            properties.write_text(java_properties(serving, tmp_path))
            command = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars, "org.apache.kafka.tools.TopicCommand"]
            command += ["--bootstrap-server", f"localhost:{serving.port}", "--command-config", str(properties)]
            command += ["--create", "--topic", "made-by-java"]
            run = asyncio.create_task(
                asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=100)
            )
            seen: set[str] = set()

            def has_ended() -> bool:
                seen.update(serving.principals())
                return run.done()

            await until(has_ended)
            done = await run
            assert done.returncode == 0, done.stdout + done.stderr
            assert seen == {"User:alice"}

    asyncio.run(main())


def java_properties(serving: Mutual, directory: Path) -> str:
    """Java takes certificate and key from one file, the key as PKCS#8 alone, and no empty list of alternative names."""
    certificate, key = serving.authority.issue("client", "alice.example.com", common_name="Alice")
    decoded = load_pem_private_key(key.read_bytes(), None)
    pem = decoded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "both.pem").write_bytes(pem + certificate.read_bytes())
    return (
        "security.protocol=SSL\n"
        "ssl.keystore.type=PEM\n"
        f"ssl.keystore.location={directory / 'both.pem'}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={serving.authority.file}\n"
    )
