"""Clients log in with tokens of an identity provider: clients that others wrote, and one that speaks bytes."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from aiokafka.helpers import create_ssl_context
from bench import maven
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from headwater.broker.server import Broker as OwnBroker
from headwater.model.errors import ErrorCode
from headwater.security.oauthbearer import AFTER_FAILURE, bearer_message
from headwater.testing import Broker
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from headwater.transport.ports import free_ports
from headwater.wire.typed.sasl_authenticate import SaslAuthenticateResponse
from tests.support import local_broker
from tests.support.certificates import Authority
from tests.support.effort import only_long
from tests.support.eventually import eventually, until
from tests.support.identity_provider import LIFETIME_S, TOKEN, IdentityProvider, identity_provider
from tests.support.local_broker import METADATA
from tests.support.wire import AsyncWireClient

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
SHORT_SESSION_MS = 2_000
RECORDS_OVER_SESSIONS = 450
"""One every 10 ms at the most: they last for more than two sessions."""
SKEW_S = 30
Token = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Trusting:
    """A broker that believes one identity provider."""

    provider: IdentityProvider
    addresses: dict[str, str]
    """By protocol."""
    short: str
    """SASL_PLAINTEXT, with sessions that end soon."""
    ca: Path

    def librdkafka(self, protocol: str, token: Token) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.addresses[protocol],
            "security.protocol": protocol,
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token(), time.time() + LIFETIME_S),
            "ssl.ca.location": str(self.ca),
            "log_level": 0,
        }

    def python(self, protocol: str, provider: object) -> dict[str, Any]:
        """For kafka-python and aiokafka."""
        return {
            "bootstrap_servers": self.addresses[protocol],
            "security_protocol": protocol,
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": provider,
            "ssl_context": create_ssl_context(cafile=str(self.ca)),
        }


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trusting]:
    authority = Authority.create(tmp_path_factory.mktemp("tls"))
    certificate, key = authority.issue("node", "localhost", "127.0.0.1")
    inside, plain, encrypted, short = (f"127.0.0.1:{port}" for port in free_ports(4))
    files = {"certificate": str(certificate), "key": str(key)}
    login = {"mechanisms": ["SCRAM-SHA-256", "OAUTHBEARER"]}
    tables: list[dict[str, Any]] = [
        {"name": "inside", "listen": inside},
        {"name": "plain", "protocol": "SASL_PLAINTEXT", "listen": plain, **login},
        {"name": "encrypted", "protocol": "SASL_SSL", "listen": encrypted, **login, **files},
        {"name": "short", "protocol": "SASL_PLAINTEXT", "listen": short, **login, "reauth_ms": SHORT_SESSION_MS},
    ]
    with (
        identity_provider() as provider,
        Broker(listener=tables, http="off", oidc=provider.config, authorization="off"),
    ):
        yield Trusting(provider, dict(zip(PROTOCOLS, (plain, encrypted), strict=True)), short, authority.file)


class BlockingProvider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: Token) -> None:
        self._token = token

    def token(self) -> str:
        return self._token()


class AwaitedProvider(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: Token) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token()


def ask_librdkafka(config: dict[str, Any]) -> None:
    """Raises PermissionError if the login is refused."""
    failures: list[KafkaError] = []
    admin = AdminClient({**config, "error_cb": failures.append})

    def has_answer() -> bool:
        with suppress(KafkaException):
            return admin.list_topics(timeout=0.5) is not None
        admin.poll(0)
        refused = [failure for failure in failures if failure.code() == KafkaError._AUTHENTICATION]
        if refused:
            raise PermissionError(refused[0].str())
        return False

    admin.poll(0)
    eventually(has_answer, "the broker answers")


def ask_kafka_python(trusting: Trusting, protocol: str, token: Token, **more: Any) -> None:
    client = kafka.KafkaAdminClient(**trusting.python(protocol, BlockingProvider(token)), **more)
    try:
        client.list_topics()
    finally:
        client.close()


def ask_aiokafka(trusting: Trusting, protocol: str, token: Token) -> None:
    async def main() -> None:
        client = aiokafka.AIOKafkaProducer(**trusting.python(protocol, AwaitedProvider(token)))
        try:
            await client.start()
        finally:
            await client.stop()
            await until(are_closed)  # a refused client has begun to close its connection, and does not wait for TLS to
            await asyncio.sleep(0)

    def are_closed() -> bool:
        transports = asyncio.get_running_loop()._transports  # type: ignore[attr-defined]
        return all(transport.is_closing() for transport in transports.values())

    asyncio.run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_token_lets_each_client_in(trusting: Trusting, protocol: str) -> None:
    token = trusting.provider.token
    ask_librdkafka(trusting.librdkafka(protocol, token))
    ask_kafka_python(trusting, protocol, token)
    ask_aiokafka(trusting, protocol, token)


def test_librdkafka_gets_its_tokens_itself(trusting: Trusting) -> None:
    config = trusting.librdkafka("SASL_SSL", trusting.provider.token)
    del config["oauth_cb"]
    config |= {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "orders",
        "sasl.oauthbearer.client.secret": "a secret",
        "sasl.oauthbearer.token.endpoint.url": trusting.provider.issuer + TOKEN,
    }
    ask_librdkafka(config)
    assert TOKEN in trusting.provider.requests


def test_a_token_that_is_refused_is_refused_in_words_to_each_client(trusting: Trusting) -> None:
    def late() -> str:
        return trusting.provider.token(now_s=time.time() - 2 * LIFETIME_S)

    with pytest.raises(PermissionError, match="The token is refused: The token has expired"):
        ask_librdkafka(trusting.librdkafka("SASL_SSL", late))
    with pytest.raises(kafka.errors.KafkaError):
        ask_kafka_python(trusting, "SASL_SSL", late, bootstrap_timeout_ms=1_000)
    with pytest.raises(aiokafka.errors.KafkaError):
        ask_aiokafka(trusting, "SASL_SSL", late)


def test_a_client_shows_new_tokens_before_its_sessions_end_and_loses_nothing(trusting: Trusting) -> None:
    shown: list[str] = []

    def next_token(_: object) -> tuple[str, float]:
        shown.append(trusting.provider.token(number=len(shown)))
        return shown[-1], time.time() + SHORT_SESSION_MS / 1000

    config = trusting.librdkafka("SASL_PLAINTEXT", trusting.provider.token)
    failures: list[KafkaError] = []
    delivered: list[int] = []
    producer = Producer(
        {
            **config,
            "bootstrap.servers": trusting.short,
            "oauth_cb": next_token,
            "error_cb": failures.append,
            "linger.ms": 5,
        }
    )

    def on_delivery(number: int) -> Callable[[Any, Any], None]:
        return lambda error, message: delivered.append(number) if error is None else None

    for number in range(RECORDS_OVER_SESSIONS):
        producer.produce("over-several-tokens", value=str(number), on_delivery=on_delivery(number))
        producer.poll(0.01)
    assert producer.flush(60) == 0
    assert delivered == list(range(RECORDS_OVER_SESSIONS)), "in order, each once"
    assert failures == []
    assert len(set(shown)) > 1


@only_long
def test_kafkas_tools_log_in_with_a_token_from_a_file(trusting: Trusting, tmp_path: Path) -> None:
    """Java's client, and a JVM of its own."""
    try:
        jars = maven.class_path("tools", maven.KAFKA_TOOLS)
    except maven.JarsUnavailable as reason:
        pytest.skip(f"Kafka's tools are not here: {reason}")
    file, properties = tmp_path / "token", tmp_path / "client.properties"
    file.write_text(trusting.provider.token())
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    properties.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={handler}\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{file}\n"
        f"sasl.jaas.config={module} required;\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={trusting.ca}\n"
    )
    command = ["java", "-XX:TieredStopAtLevel=1", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{file}"]
    command += [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={file}", "-cp", jars]
    command += ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", trusting.addresses["SASL_SSL"]]
    command += ["--command-config", str(properties), "--create", "--topic", "made-by-java"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Created topic made-by-java" in done.stdout


# One that speaks bytes


@dataclass(frozen=True, slots=True)
class Bearing:
    """A broker on the test's event loop, whose clock is the test's, and a client that is not logged in."""

    broker: OwnBroker
    provider: IdentityProvider
    clock: ManualClock
    client: AsyncWireClient

    def token(self, user: str = "alice", **claims: Any) -> str:
        return self.provider.token(user, now_s=self.clock.now_ms() / 1000, **claims)

    async def show(self, token: bytes) -> SaslAuthenticateResponse:
        answer = await self.client.ask(SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
        assert answer.error_code == ErrorCode.NONE
        shown: SaslAuthenticateResponse = await self.client.ask(SASL_AUTHENTICATE, 2, auth_bytes=token)
        return shown

    async def log_in(self, user: str = "alice", **claims: Any) -> SaslAuthenticateResponse:
        return await self.show(bearer_message(self.token(user, **claims)))

    async def is_served(self) -> bool:
        try:
            await self.client.ask(METADATA, 12, topics=[])
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        return True


@asynccontextmanager
async def bearing(directory: Path, **keys: Any) -> AsyncIterator[Bearing]:
    clock = ManualClock()
    table = {"name": "a", "protocol": "SASL_PLAINTEXT", "listen": "127.0.0.1:0", "mechanisms": ["OAUTHBEARER"]}
    with identity_provider() as provider:
        config = {
            "listen": None,
            "listener": [table],
            "http": "off",
            "oidc": provider.config | keys,
            "authorization": "off",
        }
        async with asyncio.timeout(120):
            broker: OwnBroker = await local_broker.start(directory, MemoryFiles(), clock, **config)
            client = await AsyncWireClient.open(broker.address)
            try:
                yield Bearing(broker, provider, clock, client)
            finally:
                client.close()
                await broker.stop()


def test_a_session_lasts_as_long_as_its_token_and_another_token_of_the_same_user_renews_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with bearing(tmp_path) as one:
            answer = await one.log_in()
            assert (answer.error_code, answer.auth_bytes) == (ErrorCode.NONE, b"")
            assert answer.session_lifetime_ms == (LIFETIME_S + SKEW_S) * 1_000
            (connection,) = one.broker.server.connections()
            assert str(connection.principal) == "User:alice"
            one.clock.advance(LIFETIME_S)
            answer = await one.log_in()
            assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, (LIFETIME_S + SKEW_S) * 1_000)
            one.clock.advance(LIFETIME_S)
            assert await one.is_served()
            one.clock.advance(SKEW_S + 1)
            assert not await one.is_served(), "the session is over"

    asyncio.run(main())


@pytest.mark.parametrize("user", ["bob", "alice"])
def test_a_connection_keeps_its_user_when_it_shows_another_token(user: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with bearing(tmp_path) as one:
            await one.log_in("alice")
            one.clock.advance(2)
            answer = await one.log_in(user)
            expected = ErrorCode.NONE if user == "alice" else ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_code == expected
            assert await one.is_served() == (user == "alice")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"aud": "payroll"}, "The token is refused: The token is for another audience."),
        ({"iss": "https://id.example.com"}, "The token is refused: The token is from another issuer."),
        ({"exp": 1_600_000_000}, "The token is refused: The token has expired."),
        ({"sub": "*"}, "The token is refused: The sub of the token cannot name a principal."),
        ({"scope": "logs"}, "The token is refused: The token does not have the scope that is needed."),
    ],
)
def test_a_token_that_is_not_believed_is_answered_in_words(claims: dict[str, Any], words: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with bearing(tmp_path, scope="kafka") as one:
            answer = await one.log_in(**({"scope": "kafka"} | claims))
            assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, words)
            assert answer.session_lifetime_ms == 0
            assert not await one.is_served()
            assert one.broker.metrics.bad_requests["authentication_failed"] == 1

    asyncio.run(main())


@pytest.mark.parametrize("message", [AFTER_FAILURE, b"", b"n,,\x01auth=Bearer \x01\x01", b"\xff" * 20_000])
def test_what_is_no_token_is_answered_as_any_failure(message: bytes, tmp_path: Path) -> None:
    async def main() -> None:
        async with bearing(tmp_path) as one:
            answer = await one.show(message)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "invalid credentials with SASL mechanism OAUTHBEARER" in str(answer.error_message)
            assert not await one.is_served()

    asyncio.run(main())


def test_the_page_of_metrics_tells_how_old_the_keys_are_and_how_often_they_were_not_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with bearing(tmp_path) as one:
            issuer = one.broker.issuer
            assert issuer is not None
            await until(lambda: issuer.keys_age_s is not None)
            one.clock.advance(7)
            one.provider.keys.clear()
            await issuer.refresh()
            read = {name: list(gauge.read()) for name, gauge in one.broker.metrics.gauges.items() if "oidc" in name}
            assert read == {"oidc_keys_age_seconds": [((), 7.0)], "oidc_key_fetch_failures": [((), 1)]}

    asyncio.run(main())


def test_a_user_of_the_cluster_who_is_removed_takes_no_namesake_of_the_issuer_along(tmp_path: Path) -> None:
    async def main() -> None:
        async with bearing(tmp_path) as one:
            await one.log_in("alice")
            for watcher in one.broker.users.watchers:
                watcher(frozenset({"alice"}))
            assert await one.is_served()

    asyncio.run(main())
