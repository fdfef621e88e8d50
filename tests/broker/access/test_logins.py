"""A listener that asks for a login, and what strangers may do there: little, and at nobody else's cost."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.access import sasl_session
from headwater.broker.access.sasl_session import Logins
from headwater.broker.access.user_record import UserRecord
from headwater.broker.access.users import Users
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import MetaStore, Put
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.sasl_decisions import CheckPassword
from headwater.security.scram import InventedCredentials, ScramCredential, ScramMechanism
from headwater.testing import Broker
from headwater.testing.fakes.clock import ManualClock
from headwater.transport.connection import CloseConnection
from headwater.wire.requests import read_response, write_request
from headwater.wire.typed.api_versions import ApiVersionsRequest
from headwater.wire.typed.metadata import MetadataRequest, MetadataRequestTopic
from headwater.wire.typed.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headwater.wire.typed.sasl_handshake import SaslHandshakeRequest

SHA_256, SHA_512 = ScramMechanism
CREDENTIAL = ScramCredential.of_password(SHA_256, "secret", b"salt", 4096)
RIGHT, WRONG = b"\0alice\0secret", b"\0alice\0wrong"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """With one user, alice."""
    data = tmp_path_factory.mktemp("data")

    async def prepare() -> None:
        metadata = await open_metadata(f"sqlite:{data / 'metadata.db'}")
        await metadata.txn([], [Put(keys.user_key("alice"), UserRecord(credentials={SHA_256: CREDENTIAL}).to_json())])
        await metadata.close()

    asyncio.run(prepare())
    table = {"name": "a", "protocol": "SASL_PLAINTEXT", "listen": "127.0.0.1:0", "mechanisms": ["PLAIN"]}
    with Broker(listener=[table], http="off", data_dir=data, authorization="off") as running:
        yield running


class Stranger:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, request: Any, version: int) -> None:
        self.sock.sendall(write_request(request, version, 7, "stranger"))

    def frame(self) -> bytes:
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return read_response(memoryview(self.frame()), type(request), version, 7)

    def handshake(self, version: int = 1, mechanism: str = "PLAIN") -> None:
        assert self.ask(SaslHandshakeRequest(mechanism=mechanism), version).error_code == ErrorCode.NONE

    def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        return answer

    def is_cut_off(self) -> bool:
        """After nothing more was said."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return data


@contextmanager
def stranger(broker: Broker) -> Iterator[Stranger]:
    with socket.create_connection((broker.host, broker.port), timeout=60) as sock:
        yield Stranger(sock)


def test_nothing_is_served_before_a_login(broker: Broker) -> None:
    with stranger(broker) as client:
        client.send(MetadataRequest(topics=None), 12)
        assert client.is_cut_off()


def test_nothing_is_served_behind_a_login_that_fails(broker: Broker) -> None:
    with stranger(broker) as client:
        client.handshake()
        client.send(SaslAuthenticateRequest(auth_bytes=WRONG), 2)
        client.send(MetadataRequest(topics=None), 12)
        answer = read_response(memoryview(client.frame()), SaslAuthenticateRequest, 2, 7)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_cut_off()


def test_what_comes_behind_a_login_that_succeeds_waits_for_it(broker: Broker) -> None:
    with stranger(broker) as client:
        client.handshake()
        client.send(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
        client.send(MetadataRequest(topics=None), 12)
        answer = read_response(memoryview(client.frame()), SaslAuthenticateRequest, 2, 7)
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
        assert len(read_response(memoryview(client.frame()), MetadataRequest, 12, 7).brokers) == 1


def test_a_token_without_a_handshake_is_not_looked_at(broker: Broker) -> None:
    with stranger(broker) as client:
        client.send(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
        assert client.is_cut_off()


def test_versions_are_told_before_a_login_and_only_now_and_then(broker: Broker) -> None:
    with stranger(broker) as client:
        for _ in range(2):
            assert {17, 36} <= {api.api_key for api in client.ask(ApiVersionsRequest(), 0).api_keys}
        client.send(ApiVersionsRequest(), 0)
        assert client.is_cut_off()


def test_tokens_come_as_bare_frames_after_a_handshake_of_version_0(broker: Broker) -> None:
    with stranger(broker) as client:
        client.handshake(version=0)
        client.sock.sendall(struct.pack(">i", len(RIGHT)) + RIGHT)
        assert client.frame() == b""
        assert len(client.ask(MetadataRequest(topics=None), 12).brokers) == 1
    with stranger(broker) as client:
        client.handshake(version=0)
        client.sock.sendall(struct.pack(">i", len(WRONG)) + WRONG)
        assert client.is_cut_off()


@pytest.mark.parametrize("mechanism", ["", "plain", "GSSAPI", "SCRAM-SHA-256", "x" * 30_000])
def test_another_mechanism_is_refused_with_those_that_are_offered(broker: Broker, mechanism: str) -> None:
    with stranger(broker) as client:
        answer = client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        assert (answer.error_code, list(answer.mechanisms)) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
        assert client.is_cut_off()


def test_a_large_request_before_a_login_is_refused_by_its_length(broker: Broker) -> None:
    with stranger(broker) as client:
        client.sock.sendall(struct.pack(">i", 65 * 1024))
        assert client.is_cut_off()


def test_the_first_request_behind_a_login_may_be_large(broker: Broker) -> None:
    """As that of a producer is, which has filled a batch while it logged in."""
    with stranger(broker) as client:
        client.handshake()
        assert client.authenticate(RIGHT).error_code == ErrorCode.NONE
        topics = [MetadataRequestTopic(name=f"{number}-" + "x" * 200) for number in range(1_000)]
        answer = client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        assert len(answer.topics) == 1_000


def test_a_listener_without_logins_says_so_and_stays() -> None:
    with Broker() as plain, stranger(plain) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.authenticate(RIGHT).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert len(client.ask(MetadataRequest(topics=None), 12).brokers) == 1


@asynccontextmanager
async def stored(path: Path) -> AsyncIterator[MetaStore]:
    metadata = await open_metadata(f"sqlite:{path / 'metadata.db'}")
    try:
        yield metadata
    finally:
        await metadata.close()


def test_a_flood_of_passwords_is_cut_off_beyond_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_session, "MAX_PASSWORD_CHECKS", 3)
    monkeypatch.setattr(sasl_session, "MAX_DELAYED", 2)
    monkeypatch.setattr(sasl_session, "FAILURE_DELAY_S", 0.01)

    async def main() -> None:
        async with stored(tmp_path) as metadata:
            failures: list[None] = []
            invented = InventedCredentials(b"k" * 32)
            logins = Logins(
                users=Users(metadata, ManualClock()),
                clock=ManualClock(),
                invented=invented,
                failed=lambda: failures.append(None),
            )
            check = CheckPassword("alice", "secret", CREDENTIAL)
            hosts = ["10.0.0.1"] * 5 + ["10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]
            checks = await asyncio.gather(*(logins.is_right(check, host) for host in hosts), return_exceptions=True)
            was_checked = [each is True for each in checks]
            assert was_checked == [True] * 3 + [False] * 2 + [True, False, True, True, False], "others are not kept out"
            assert all(isinstance(each, CloseConnection) for each in checks if each is not True)
            assert await logins.is_right(check, "10.0.0.1"), "there is room again"
            delays = await asyncio.gather(*(logins.delay_failure() for _ in range(4)), return_exceptions=True)
            assert delays[:2] == [None] * 2 and all(isinstance(each, CloseConnection) for each in delays[2:])
            assert len(failures) == 4
            logins.close()

    asyncio.run(main())


def test_users_of_two_nodes_are_altered_one_after_the_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with stored(tmp_path) as metadata, stored(tmp_path) as of_another:
            users, others = Users(metadata, ManualClock()), Users(of_another, ManualClock())
            other = ScramCredential.of_password(SHA_512, "secret", b"salt", 4096)
            await asyncio.gather(
                users.alter("alice", (), {SHA_256: CREDENTIAL}), others.alter("alice", (), {SHA_512: other})
            )
            await users.load()
            alice = users.find("alice")
            assert alice is not None and set(alice.credentials) == {SHA_256, SHA_512} and alice.generation == 2
            await users.alter("alice", [SHA_256, SHA_512], {})
            assert (users.find("alice"), users.names()) == (None, [])
            with pytest.raises(RequestError) as refused:
                await users.alter("alice", [SHA_256], {})
            assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND
            await users.alter("alice", (), {SHA_256: CREDENTIAL})
            again = users.find("alice")
            assert again is not None and again.generation == 4, "what was granted to the one before does not come back"

    asyncio.run(main())


@pytest.mark.parametrize("name", ["a.b/c", "100%", "é", "x" * 128, "a b"])
def test_a_user_of_any_name_is_found_again(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with stored(tmp_path) as metadata:
            await Users(metadata, ManualClock()).alter(name, (), {SHA_256: CREDENTIAL})
            users = Users(metadata, ManualClock())
            await users.load()
            assert users.names() == [name] and users.credential(name, SHA_256) == CREDENTIAL

    asyncio.run(main())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"scram": {"SCRAM-SHA-256": {}}, "generation": 1, "created_ms": 1}',
        b'{"scram": {}, "generation": Infinity, "created_ms": 1}',
        b'{"scram": ' + b'{"a":' * 50_000,
    ],
)
def test_a_record_that_cannot_be_read_is_left_out(data: bytes, tmp_path: Path) -> None:
    async def main() -> None:
        async with stored(tmp_path) as metadata:
            await metadata.txn([], [Put(keys.user_key("alice"), data), Put(keys.user_key("bob"), b"{}")])
            users = Users(metadata, ManualClock())
            await users.load()
            assert users.names() == []

    asyncio.run(main())


def test_a_record_does_not_show_what_it_keeps() -> None:
    record = UserRecord(credentials={SHA_256: CREDENTIAL}, generation=3, created_ms=4)
    assert UserRecord.from_json(record.to_json()) == record
    assert repr(CREDENTIAL.stored_key) not in repr(record) and repr(CREDENTIAL.server_key) not in repr(record)
