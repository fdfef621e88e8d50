"""Nodes that show certificates to each other: what is let in, what is refused in words, and a proxy between two."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headwater.model.ids import StoreId
from headwater.model.replica import Durability, StoreUnreachable
from headwater.peers import messages
from headwater.peers.channel import ChannelOptions
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.peers.identity import PeerIdentity, PeerTls, PeerTlsMode
from headwater.peers.messages import PeerAddress
from headwater.peers.remote_store import RemoteStore
from headwater.transport import acceptor
from headwater.transport.tls import ClientCertificates, ServerTlsFiles
from headwater.transport.tls_reload import ReloadedTls
from tests.peers.peer_nodes import IDENTITY, MIB, QUICK, SECRET, Node, RawPeer, in_thread, node
from tests.storage.storage_samples import batch, segment
from tests.support.certificates import Authority
from tests.support.eventually import until
from tests.support.log_lines import own_lines

RUNNERS = [asyncio.run, uvloop.run]
Run = Callable[[Coroutine[Any, Any, None]], None]
NEW_SECRET = b"the secret that follows it in tests"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("authority"))


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another authority."""
    return Authority.create(tmp_path_factory.mktemp("stranger"))


async def identity(
    authority: Authority,
    *hosts: str,
    name: str = "node",
    trusts: Authority | None = None,
    secrets: ClusterSecrets | None = None,
    mode: PeerTlsMode = PeerTlsMode.REQUIRE,
) -> PeerIdentity:
    certificate, key = authority.issue(name, *(hosts or ("127.0.0.1",)))
    files = ServerTlsFiles(
        certificate=certificate,
        key=key,
        client_ca=(trusts or authority).file,
        client_certificates=ClientCertificates.REQUIRE,
        is_of_node=True,
    )
    tls = PeerTls(await ReloadedTls.open("peers", files), mode)
    return PeerIdentity(secrets or ClusterSecrets(SECRET), tls)


@asynccontextmanager
async def served(authority: Authority) -> AsyncIterator[tuple[Node, PeerIdentity]]:
    own = await identity(authority, name="store")
    async with node(identity=own) as store:
        yield store, await identity(authority, name="caller")


async def refused(served: Node, caller: PeerIdentity, match: str) -> None:
    remote = served.remote(identity=caller)
    with pytest.raises(StoreUnreachable, match=match):
        await remote.ping()


async def logged(caplog: pytest.LogCaptureFixture, words: str) -> None:
    await until(lambda: any(words in line for line in own_lines(caplog)), words)


@pytest.mark.parametrize("run", RUNNERS)
def test_calls_are_answered_over_tls_also_large_ones(run: Run, authority: Authority) -> None:
    async def main() -> None:
        async with served(authority) as (store, caller):
            remote = store.remote(identity=caller)
            await remote.create(segment(1), "p", 0, 1, b"", Durability.OS)
            large = batch(0, size_bytes=2 * MIB)
            sent = [remote.append_soon(segment(1), 0, 1, 0, [large])]
            sent += [remote.append_soon(segment(1), at, at + 1, 0, [batch(at)]) for at in range(1, 100)]
            await asyncio.gather(*(each.reply for each in sent))
            assert sent[-1].outcome() == 100
            assert await remote.read(segment(1), 0, 1, 4 * MIB) == large

    run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_each_side_refuses_what_it_cannot_trust_and_says_why(
    run: Run, authority: Authority, stranger: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with served(authority) as (store, caller):
            foreign = await identity(stranger, trusts=authority, name="foreign")
            await refused(store, foreign, "does not take the certificate of this node")
            await logged(caplog, "certificate of the other side is not valid: unable to get local issuer certificate")
            distrusting = await identity(authority, trusts=stranger, name="distrusting")
            await refused(store, distrusting, "the certificate of the other side is not valid")
            await refused(store, IDENTITY, "asks for TLS")
            await logged(caplog, "plaintext_on_tls_listener")
            await logged(caplog, "the other side does not speak TLS")
            other = await identity(authority, secrets=ClusterSecrets(b"some other secret"), name="other")
            await refused(store, other, "it has another secret of the cluster, or a proxy is between the two")
            await logged(caplog, "a peer does not know the secret of the cluster")
            await logged(caplog, "peer_handshake_failed")
            await store.remote(identity=caller).ping()

    run(main())


def test_a_caller_without_a_certificate_or_with_one_that_expired_is_refused_in_words(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    def context(certificate: tuple[Path, Path] | None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=authority.file)
        if certificate is not None:
            made.load_cert_chain(*certificate)
        return made

    async def knock(address: PeerAddress, certificate: tuple[Path, Path] | None) -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*address, ssl=context(certificate))
            await reader.read()
            writer.close()

    async def main() -> None:
        async with served(authority) as (store, _):
            expired = authority.issue("expired", "127.0.0.1", not_after=datetime.now(UTC) - timedelta(days=1))
            await knock(store.address, None)
            await knock(store.address, expired)
            await logged(caplog, "has shown no certificate")
            await logged(caplog, "not valid: certificate has expired")

    asyncio.run(main())


def test_a_caller_checks_the_name_of_the_store(authority: Authority) -> None:
    async def main() -> None:
        elsewhere = await identity(authority, "elsewhere.example.com", name="elsewhere")
        async with node(identity=elsewhere) as store:
            caller = await identity(authority, name="caller")
            await refused(store, caller, "IP address mismatch")

    asyncio.run(main())


@asynccontextmanager
async def relay(to: PeerAddress, inside: PeerIdentity, outside: PeerIdentity) -> AsyncIterator[PeerAddress]:
    """A proxy that has certificates for both sides, and passes on every byte."""
    assert inside.tls is not None and outside.tls is not None
    pipes: set[asyncio.Task[None]] = set()
    calling = outside.tls.files.current.outgoing

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        on_reader, on_writer = await asyncio.open_connection(*to, ssl=calling, server_hostname=to.host)
        pipes.add(asyncio.create_task(pipe(reader, on_writer)))
        pipes.add(asyncio.create_task(pipe(on_reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=inside.tls.files.context)
    try:
        yield PeerAddress(*server.sockets[0].getsockname())
    finally:
        server.close()
        for task in pipes:
            task.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)


async def through(address: PeerAddress, store: Node, caller: PeerIdentity) -> None:
    remote = RemoteStore(store.store.store_id, address, caller, options=QUICK)
    try:
        await remote.ping()
    finally:
        remote.close()


def test_a_proxy_with_a_certificate_of_the_authority_cannot_pass_on_the_proofs(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Its certificate is for the right address, too, as those of nodes on one machine are."""

    async def main() -> None:
        async with served(authority) as (store, caller):
            proxy = await identity(authority, name="proxy")
            async with relay(store.address, proxy, proxy) as address:
                with pytest.raises(StoreUnreachable, match="a proxy is between the two"):
                    await through(address, store, caller)
            assert any("or a proxy passes on its proof" in line for line in own_lines(caplog))

    asyncio.run(main())


def test_a_proxy_that_has_stolen_the_key_of_the_store_cannot_pass_on_the_proofs(authority: Authority) -> None:
    """It shows the store's own certificate to the caller. What it shows to the store is not the caller's."""

    async def main() -> None:
        own = await identity(authority, name="store")
        async with node(identity=own) as store:
            caller, proxy = await identity(authority, name="caller"), await identity(authority, name="proxy")
            async with relay(store.address, own, proxy) as address:
                with pytest.raises(StoreUnreachable, match="a proxy is between the two"):
                    await through(address, store, caller)

    asyncio.run(main())


def test_a_proxy_for_another_host_is_refused_by_its_name(authority: Authority) -> None:
    async def main() -> None:
        async with served(authority) as (store, caller):
            proxy = await identity(authority, "elsewhere.example.com", name="proxy")
            async with relay(store.address, proxy, proxy) as address:
                with pytest.raises(StoreUnreachable, match="IP address mismatch"):
                    await through(address, store, caller)

    asyncio.run(main())


def test_the_version_before_is_not_spoken_over_tls(authority: Authority) -> None:
    def attack(store: Node, context: ssl.SSLContext) -> None:
        peer = RawPeer(store.address, context)
        hello = bytes([messages.OLDEST_VERSION] * 2) + bytes(32)
        peer.send(bytes([1, messages.Call.HELLO]) + bytes(4) + bytes(16) + hello)
        answer = peer.receive()
        assert answer is not None and b"versions 1 to 1 are offered, 2 to 2 are spoken here" in answer
        peer.close()

    async def main() -> None:
        async with served(authority) as (store, caller):
            assert caller.tls is not None
            context = caller.tls.files.current.outgoing
            assert context is not None
            await in_thread(lambda: attack(store, context))

    asyncio.run(main())


MODES = list(PeerTlsMode)


@pytest.mark.parametrize("run", RUNNERS)
def test_nodes_that_move_to_tls_understand_those_one_step_behind_and_ahead(run: Run, authority: Authority) -> None:
    async def main() -> None:
        steps = [IDENTITY, *[await identity(authority, name=mode, mode=mode) for mode in MODES]]
        for behind, ahead in pairwise(steps):
            for of_store, of_caller in ((behind, ahead), (ahead, behind), (ahead, ahead)):
                async with node(identity=of_store) as store:
                    remote = store.remote(identity=of_caller)
                    await remote.ping()

    run(main())


def test_a_silent_connection_costs_a_place_for_a_few_seconds_where_both_are_taken(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(acceptor, "MAX_HANDSHAKES", 4)

    async def main() -> None:
        async with node(identity=await identity(authority, mode=PeerTlsMode.PREFER)) as store:
            silent = [await asyncio.open_connection(*store.address) for _ in range(6)]
            await store.remote(identity=await identity(authority, name="caller")).ping()
            for reader, writer in silent:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()

    asyncio.run(main())


def test_new_files_are_for_new_connections_and_end_none(authority: Authority, tmp_path: Path) -> None:
    """First another certificate of the same authority, then another authority, which both sides trust beforehand."""

    async def main() -> None:
        async with served(authority) as (store, caller):
            before = store.remote(identity=caller)
            await before.ping()
            assert caller.tls is not None
            authority.issue("caller", "127.0.0.1")
            assert await caller.tls.files.reload_changed()
            await before.ping()
            await store.remote(identity=caller).ping()
            assert store.traffic.opened == 2
            assert store.traffic.closed == 0

    asyncio.run(main())


def test_the_secret_is_replaced_on_one_node_after_the_other(authority: Authority) -> None:
    async def main() -> None:
        ours, theirs = ClusterSecrets(SECRET), ClusterSecrets(SECRET)
        async with node(identity=PeerIdentity(theirs)) as store:
            for secrets in ((SECRET, NEW_SECRET), (NEW_SECRET, SECRET), (NEW_SECRET,)):
                ours.replace(secrets)
                await store.remote(identity=PeerIdentity(ours)).ping()
                theirs.replace(secrets)
                await store.remote(identity=PeerIdentity(ours)).ping()
            await until(lambda: store.traffic.closed == 2, "those who proved the old secret are cut off")
            await refused(store, IDENTITY, "has another secret")

    asyncio.run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_a_connection_that_is_slow_to_begin_is_given_up(run: Run, authority: Authority) -> None:
    async def main() -> None:
        given_up = asyncio.Event()

        async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            given_up.set()

        silent = await asyncio.start_server(keep_silent, "127.0.0.1", 0)
        async with silent:
            caller = await identity(authority)
            address = PeerAddress(*silent.sockets[0].getsockname())
            remote = RemoteStore(StoreId("0" * 32), address, caller, options=ChannelOptions(connect_timeout_s=0.2))
            with pytest.raises(StoreUnreachable, match=r"no connection within 0\.2 s"):
                await remote.ping()
            remote.close()
            await given_up.wait()

    run(main())
