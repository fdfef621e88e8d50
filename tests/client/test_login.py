"""Our client logs in: both connections, by each mechanism, to a broker that asks for it."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from headwater.client.address import BrokerAddress
from headwater.client.asyncio_connection import AsyncioConnection
from headwater.client.blocking_connection import BlockingConnection
from headwater.client.errors import ConnectionLost, NotLoggedIn
from headwater.client.settings import ConnectionSettings, SaslLogin, SaslToken, TlsFiles
from headwater.client.token_file import TokenFile, UnusableTokenFile
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.testing import Broker
from headwater.transport.ports import free_ports
from headwater.wire.typed.metadata import MetadataRequest, MetadataResponse
from tests.support.certificates import Authority
from tests.support.identity_provider import IdentityProvider, identity_provider

PASSWORD = "a, long=password é"
MECHANISMS = [SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512, SaslMechanism.PLAIN]
CLOSING_S = 0.05
"""For the loop to say goodbye, before it ends."""
Ask: TypeAlias = Callable[[BrokerAddress, ConnectionSettings], MetadataResponse]


def ask_blocking(address: BrokerAddress, settings: ConnectionSettings) -> MetadataResponse:
    connection = BlockingConnection(address, settings)
    try:
        return connection.ask(MetadataRequest(topics=None))
    finally:
        connection.close()


def ask_on_loop(address: BrokerAddress, settings: ConnectionSettings) -> MetadataResponse:
    async def main() -> MetadataResponse:
        try:
            connection = await AsyncioConnection.open(address, settings)
            try:
                return await connection.ask(MetadataRequest(topics=None))
            finally:
                connection.close()
        finally:
            await asyncio.sleep(CLOSING_S)

    return asyncio.run(main())


both = pytest.mark.parametrize("ask", [ask_blocking, ask_on_loop])


class Secured:
    def __init__(self, plain: int, encrypted: int, ca: Path, provider: IdentityProvider) -> None:
        self.provider = provider
        self.plain = BrokerAddress("127.0.0.1", plain)
        self.encrypted = BrokerAddress("localhost", encrypted)
        self.ca = ca

    def settings(self, mechanism: SaslMechanism, *, password: str = PASSWORD, **more: Any) -> ConnectionSettings:
        sasl = SaslLogin(mechanism=mechanism, user="alice", password=password)
        patient = ConnectionSettings(client_id="test", connect_timeout_s=60.0, request_timeout_s=60.0, sasl=sasl)
        return replace(patient, **more)

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(str(self.ca), None, None, None, checks_host_name=True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority = Authority.create(tmp_path_factory.mktemp("tls"))
    certificate, key = authority.issue("node", "localhost")
    inside, plain, encrypted = free_ports(3)
    sasl = {"mechanisms": [*(each.value for each in MECHANISMS), "OAUTHBEARER"]}
    files = {"certificate": str(certificate), "key": str(key)}
    tables = [
        {"name": "inside", "listen": f"127.0.0.1:{inside}"},
        {"name": "plain", "protocol": "SASL_PLAINTEXT", "listen": f"127.0.0.1:{plain}", **sasl},
        {"name": "encrypted", "protocol": "SASL_SSL", "listen": f"127.0.0.1:{encrypted}", **sasl, **files},
    ]
    with (
        identity_provider() as provider,
        Broker(listener=tables, http="off", oidc=provider.config, authorization="off"),
    ):
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{inside}"})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4096)
            made = admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("alice", credential, PASSWORD.encode())]
            )
            made["alice"].result(60)
        yield Secured(plain, encrypted, authority.file, provider)


@both
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_logs_in(ask: Ask, mechanism: SaslMechanism, secured: Secured) -> None:
    (node,) = ask(secured.plain, secured.settings(mechanism)).brokers
    assert node.port == secured.plain.port
    (node,) = ask(secured.encrypted, secured.settings(mechanism, tls=secured.tls)).brokers
    assert node.port == secured.encrypted.port


@both
def test_a_wrong_password_is_told_and_not_tried_again(ask: Ask, secured: Secured) -> None:
    with pytest.raises(NotLoggedIn, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
        ask(secured.plain, secured.settings(SaslMechanism.SCRAM_SHA_256, password="wrong"))


@both
def test_a_mechanism_that_is_not_offered_is_not_replaced_by_another(ask: Ask, secured: Secured) -> None:
    settings = secured.settings(SaslMechanism.PLAIN)
    with (
        Broker(
            listener=[{"name": "a", "protocol": "SASL_PLAINTEXT", "listen": "127.0.0.1:0"}],
            http="off",
            authorization="off",
        ) as broker,
        pytest.raises(NotLoggedIn, match="does not offer PLAIN; it offers 'SCRAM-SHA-512', 'SCRAM-SHA-256'"),
    ):
        ask(BrokerAddress(broker.host, broker.port), settings)


@both
def test_a_client_without_a_login_is_cut_off(ask: Ask, secured: Secured) -> None:
    with pytest.raises(ConnectionLost):
        ask(secured.plain, secured.settings(SaslMechanism.PLAIN, sasl=None))


def test_a_password_does_not_show(secured: Secured) -> None:
    assert PASSWORD not in repr(secured.settings(SaslMechanism.PLAIN))


@both
def test_a_client_logs_in_with_the_token_that_its_file_has_at_the_time(
    ask: Ask, secured: Secured, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    settings = secured.settings(SaslMechanism.PLAIN, sasl=SaslToken(TokenFile(str(file))), tls=secured.tls)
    assert hash(settings) == hash(replace(settings, sasl=SaslToken(TokenFile(str(file)))))
    with pytest.raises(NotLoggedIn, match=r"The token in .*token cannot be read: No such file"):
        ask(secured.encrypted, settings)
    file.write_text(secured.provider.token(aud="payroll"))
    with pytest.raises(NotLoggedIn, match="The token is refused: The token is for another audience"):
        ask(secured.encrypted, settings)
    file.write_text("a token\nin two lines")
    with pytest.raises(NotLoggedIn, match="no others than those of base64"):
        ask(secured.encrypted, settings)
    file.write_text(secured.provider.token() + "\n")
    (node,) = ask(secured.encrypted, settings).brokers
    assert node.port == secured.encrypted.port


@pytest.mark.parametrize("content", [b"", b" \n", b"x" * 20_000, "é".encode(), bytes([255])])
def test_a_file_without_a_token_is_told_and_not_shown(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(UnusableTokenFile, match=r"token is not a file with a token of at most 16384 characters\.$"):
        TokenFile(str(file))()


def test_a_token_may_come_from_the_program(secured: Secured) -> None:
    settings = secured.settings(SaslMechanism.PLAIN, sasl=SaslToken(secured.provider.token))
    (node,) = ask_blocking(secured.plain, settings).brokers
    assert node.port == secured.plain.port
