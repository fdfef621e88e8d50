"""etcd over a network that fails: lost answers, members that are not there, and TLS, with a proxy in the middle."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headwater.metadata.connect import open_metadata
from headwater.metadata.etcd import client as etcd_client
from headwater.metadata.store import RESYNC, Put, Unavailable, Unknown
from headwater.testing.processes.etcd_process import EtcdProcess, find_etcd
from headwater.transport.ports import free_port
from tests.support.eventually import a_while, until

pytestmark = pytest.mark.skipif(find_etcd() is None, reason="etcd is not installed (Debian: etcd-server)")

PATIENCE_S = 60.0
PUMP_BYTES = 65_536


class Proxy:
    """Between a client and a member: both ways, one way, or not at all."""

    def __init__(self, target: str, tls: ssl.SSLContext | None = None) -> None:
        self._target = target
        self._tls = tls
        self._connections: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.is_mute = False
        """Requests arrive, and their answers are dropped."""

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    @property
    def endpoint(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        for connection in self._connections:
            connection.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        pair = {writer, upstream_writer}
        self._connections |= pair
        try:
            await asyncio.gather(
                self._pump(reader, upstream_writer, is_answer=False),
                self._pump(upstream_reader, writer, is_answer=True),
            )
        finally:
            self._connections -= pair

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PUMP_BYTES):
                if not (is_answer and self.is_mute):
                    writer.write(data)
                    await writer.drain()
        writer.close()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    with EtcdProcess.start(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


def closed_endpoint() -> str:
    return f"127.0.0.1:{free_port()}"


def test_a_transaction_whose_answer_is_lost_is_unknown_and_not_sent_again(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Proxy(etcd.endpoints[0]) as proxy:
            direct = await open_metadata(etcd.url("lost"))
            store = await open_metadata(f"etcd://{proxy.endpoint},{etcd.endpoints[0]}/lost")
            before = (await direct.txn([], [Put("a", b"0")])).versions["a"]
            proxy.is_mute = True
            with pytest.raises(Unknown, match="unclear whether the change was kept"):
                await store.txn([], [Put("a", b"1")])
            found = await direct.get("a")
            assert found is not None
            assert (found.value, found.version) == (b"1", before + 1)
            # The next call goes to the member that answers; nothing was sent twice meanwhile.
            assert (await store.txn([], [Put("a", b"2")])).versions["a"] == before + 2
            await store.close()
            await direct.close()

    asyncio.run(scenario())


def test_a_transaction_that_nobody_got_is_unavailable(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        direct = await open_metadata(etcd.url("nobody"))
        async with Proxy(etcd.endpoints[0]) as proxy:
            store = await open_metadata(f"etcd://{proxy.endpoint}/nobody")
        before = (await direct.txn([], [Put("a", b"0")])).versions["a"]
        with pytest.raises(Unavailable):  # a read, because what is sent before the loss is seen is unclear
            await store.get("a")
        for _ in range(3):
            with pytest.raises(Unavailable, match="cannot be reached"):
                await store.txn([], [Put("a", b"1")])
        assert (await direct.txn([], [Put("a", b"2")])).versions["a"] == before + 1
        await store.close()
        await direct.close()

    asyncio.run(scenario())


def test_a_transaction_goes_to_the_next_member_when_one_is_not_there(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        store = await open_metadata(f"etcd://{closed_endpoint()},{etcd.endpoints[0]}/next")
        assert (await store.txn([], [Put("a", b"1")])).ok
        await store.close()

    asyncio.run(scenario())


def test_a_caller_that_gives_up_waiting_makes_the_next_call_go_elsewhere(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Proxy(etcd.endpoints[0]) as proxy:
            store = await open_metadata(f"etcd://{proxy.endpoint},{etcd.endpoints[0]}/patience")
            proxy.is_mute = True
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(store.get("a"), 0.2)
            # Through the first member, a read alone takes longer than this.
            await asyncio.wait_for(store.get("a"), etcd_client.MEMBER_ASK_S * 0.9)
            await store.close()

    asyncio.run(scenario())


def test_a_watch_goes_on_where_it_was_after_its_connection_was_cut(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Proxy(etcd.endpoints[0]) as proxy:
            direct = await open_metadata(etcd.url("cut"))
            store = await open_metadata(f"etcd://{proxy.endpoint}/cut")
            hints = store.watch("a/")
            assert await anext(hints) is RESYNC
            heard: set[str] = set()
            for number in range(5):
                await direct.txn([], [Put(f"a/{number}", b"")])
                proxy.cut()
                while f"a/{number}" not in heard:
                    hint = await asyncio.wait_for(anext(hints), PATIENCE_S)
                    assert isinstance(hint, set), "nothing was missed, so nothing is to be read again"
                    heard |= hint
            await hints.aclose()  # type: ignore[attr-defined]
            await store.close()
            await direct.close()

    asyncio.run(scenario())


def test_a_watch_moves_to_another_member_when_its_own_falls_silent(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Proxy(etcd.endpoints[0]) as proxy:
            direct = await open_metadata(etcd.url("silent"))
            store = await open_metadata(f"etcd://{proxy.endpoint},{etcd.endpoints[0]}/silent")
            hints = store.watch("a/")
            assert await anext(hints) is RESYNC
            proxy.is_mute = True
            await direct.txn([], [Put("a/1", b"")])
            assert await asyncio.wait_for(anext(hints), PATIENCE_S) == {"a/1"}
            await hints.aclose()  # type: ignore[attr-defined]
            await store.close()
            await direct.close()

    asyncio.run(scenario())


def test_a_session_is_suspended_while_etcd_is_not_heard_and_goes_on_when_it_is(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Proxy(etcd.endpoints[0]) as proxy:
            store = await open_metadata(f"etcd://{proxy.endpoint}/suspended")
            session = await store.session(6)
            # etcd still hears the owner, the owner no longer hears etcd.
            proxy.is_mute = True
            await a_while(longer_than_s=max(0.0, session.valid_until() - time.monotonic()))
            assert session.valid_until() < time.monotonic()
            assert not session.lost.is_set()
            proxy.is_mute = False
            proxy.cut()

            async def is_renewed() -> bool:
                await store.get("a")
                return session.valid_until() > time.monotonic()

            await until(is_renewed, "the session goes on")
            assert (await store.txn([], [Put("me", b"", session)])).ok
            assert not session.lost.is_set()
            await session.close()
            await store.close()

    asyncio.run(scenario())


def test_an_etcd_that_is_not_there_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "ASK_S", 0.5)
    endpoint = closed_endpoint()
    with pytest.raises(Unavailable, match=rf"etcd at {endpoint} cannot be reached.*[Cc]onnection refused"):
        asyncio.run(open_metadata(f"etcd://{endpoint}"))


@pytest.mark.parametrize(
    ("url", "status", "words"),
    [
        ("etcd:/h1", 2, "headwater: The setting metadata is wrong: an etcd URL looks like etcd://HOST:PORT"),
        (
            "etcd://127.0.0.1:1",
            1,
            "headwater: The metadata store cannot be used: etcd at 127.0.0.1:1 cannot be reached",
        ),
    ],
)
def test_a_broker_without_its_etcd_says_so_and_ends(tmp_path: Path, url: str, status: int, words: str) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(f'metadata = "{url}"')
    command = [sys.executable, "-m", "headwater.cli.main", "serve", "--config", str(config), "--metrics", "off"]
    command += ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--http", "off"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_is_no_etcd_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "ASK_S", 0.5)

    async def talk_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(talk_nonsense, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(Unavailable, match="cannot be reached"):
                await open_metadata(f"etcd://127.0.0.1:{port}")

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's and a client's, each signed by itself: NAME.crt and NAME.key."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl, which is not installed")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "client"):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
        command += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
        subprocess.run(command, check=True, capture_output=True)
    return folder


@contextlib.asynccontextmanager
async def tls_proxy(etcd: EtcdProcess, certificates: Path) -> AsyncIterator[Proxy]:
    """Takes the part of an etcd that wants a client's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    context.load_verify_locations(certificates / "client.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    async with Proxy(etcd.endpoints[0], context) as proxy:
        yield proxy


def test_etcd_is_reached_over_tls_with_a_clients_certificate(etcd: EtcdProcess, certificates: Path) -> None:
    async def scenario() -> None:
        options = f"ca={certificates}/server.crt&cert={certificates}/client.crt&key={certificates}/client.key"
        async with tls_proxy(etcd, certificates) as proxy:
            store = await open_metadata(f"etcds://{proxy.endpoint}/tls?{options}")
            assert (await store.txn([], [Put("a", b"1")])).ok
            await store.close()

    asyncio.run(scenario())


def test_an_unknown_authority_is_not_trusted(
    etcd: EtcdProcess, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_client, "ASK_S", 0.5)

    async def scenario() -> None:
        options = f"ca={certificates}/client.crt&cert={certificates}/client.crt&key={certificates}/client.key"
        async with tls_proxy(etcd, certificates) as proxy:
            with pytest.raises(Unavailable, match=r"(?i)certificate"):
                await open_metadata(f"etcds://{proxy.endpoint}/tls?{options}")

    asyncio.run(scenario())
