"""A listener with TLS, in front of clients that do as they should and of others."""

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
import weakref
from pathlib import Path

import pytest
import uvloop

from headwater.transport import acceptor
from headwater.transport.connection import CloseConnection, Connection
from headwater.transport.server import Server, ServerLimits
from headwater.transport.tls import ClientCertificates
from tests.support.certificates import Authority
from tests.support.eventually import until
from tests.transport.scripted_protocol import one_kind
from tests.transport.tls_server import LARGE_BYTES, RUNNERS, Run, Traffic, served


@pytest.mark.parametrize("run", RUNNERS)
def test_requests_are_answered_over_tls(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            talk = await serving.connect()
            assert [await talk.ask(text) for text in (b"one", b"two")] == [b"one", b"two"]
            assert talk.writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
            await talk.close()

    run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_a_large_response_arrives_whole_and_leaves_the_loop_to_others(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            large, small = await serving.connect(), await serving.connect()
            large.writer.write(struct.pack(">i", 5) + b"large" + struct.pack(">i", 4) + b"next")
            assert await small.ask(b"x") == b"x"
            (length,) = struct.unpack(">i", await large.reader.readexactly(4))
            body = await large.reader.readexactly(length)
            assert body == b"".join(bytes([number]) * (LARGE_BYTES // 8) for number in range(8))
            assert await large.reader.readexactly(8) == struct.pack(">i", 4) + b"next"
            for talk in (large, small):
                await talk.close()

    run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_the_last_response_is_delivered_before_the_connection_is_closed(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            talk = await serving.connect()
            talk.writer.write(struct.pack(">i", 3) + b"bye" + struct.pack(">i", 4) + b"more")
            assert await talk.reader.read() == struct.pack(">i", 3) + b"bye"
            assert len(serving.certificates) == 1, "nothing behind it was started"
            talk.writer.transport.abort()
            await until(lambda: serving.traffic.open == 0)

    run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_a_renewed_certificate_is_shown_to_new_connections_and_old_ones_live_on(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (serving, tls):
            old = await serving.connect()
            serving.authority.server_files()
            assert await tls.reload_changed()
            new = await serving.connect()
            shown = [talk.writer.get_extra_info("ssl_object").getpeercert(True) for talk in (old, new)]
            assert shown[0] != shown[1] == tls.certificate_der
            assert [await talk.ask(b"x") for talk in (old, new)] == [b"x", b"x"]
            for talk in (old, new):
                await talk.close()

    run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_a_client_shows_its_certificate_where_it_must_and_is_cut_off_without(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path, clients=ClientCertificates.REQUIRE) as (serving, _):
            talk = await serving.connect(
                serving.context(certificate=serving.authority.issue("alice", common_name="alice"))
            )
            assert await talk.ask(b"x") == b"x"
            assert serving.certificates[0] is not None
            await talk.close()
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                stranger = await serving.connect()
                await stranger.ask(b"x")
            await until(lambda: serving.traffic.bad["tls_handshake_failed"] == 1)
            other = Authority.create(tmp_path / "..").issue("mallory", common_name="alice")
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                stranger = await serving.connect(serving.context(certificate=other))
                await stranger.ask(b"x")

    run(main())


@pytest.mark.parametrize("error", [CloseConnection("the name of no user"), ZeroDivisionError("a mistake of ours")])
@pytest.mark.parametrize("run", RUNNERS)
def test_a_client_whose_certificate_names_no_user_of_the_listener_gets_no_answer(
    run: Run, error: Exception, tmp_path: Path
) -> None:
    def refuse(connection: Connection) -> None:
        assert connection.peer_certificate is not None and connection.certificate_expires_at_s is not None
        raise error

    async def main() -> None:
        async with served(tmp_path, clients=ClientCertificates.REQUIRE, examine=refuse) as (serving, _):
            context = serving.context(certificate=serving.authority.issue("alice", common_name="alice"))
            talk = await serving.connect(context)
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await talk.ask(b"x")
            await talk.close()
            await until(lambda: serving.server.places == 0 == serving.traffic.open)
            assert serving.traffic.bad == {"client_certificate_refused": 1}
            assert serving.certificates == [], "nothing was handled"

    run(main())


def test_an_authority_that_was_taken_away_lets_no_client_in_again(tmp_path: Path) -> None:
    """Not even with a ticket of a connection before: there are none."""

    async def main() -> None:
        async with served(tmp_path, clients=ClientCertificates.REQUIRE) as (serving, tls):
            context = serving.context(certificate=serving.authority.issue("alice", common_name="alice"))
            talk = await serving.connect(context)
            assert await talk.ask(b"x") == b"x"
            assert not talk.writer.get_extra_info("ssl_object").session.has_ticket
            (tmp_path / "new").mkdir()
            Authority.create(tmp_path / "new").file.replace(serving.authority.file)
            assert await tls.reload_changed()
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                again = await serving.connect(context)
                await again.ask(b"x")
            assert await talk.ask(b"y") == b"y", "a connection that exists stays"
            await talk.close()

    asyncio.run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_clients_that_never_finish_their_handshake_cost_a_place_until_their_time_is_up(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "MAX_HANDSHAKES", 3)
    monkeypatch.setattr(acceptor, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            silent = [socket.create_connection(serving.server.address) for _ in range(20)]
            silent[0].send(b"\x16\x03\x01")
            talk = await serving.connect()
            assert await talk.ask(b"x") == b"x"
            await until(lambda: serving.traffic.bad["tls_handshake_failed"] == len(silent))
            await until(lambda: serving.server.places == 1)
            await talk.close()
            for each in silent:
                each.close()
            await until(lambda: serving.server.places == 0)

    run(main())


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("opening", ["nothing", "half a hello", "a hello"])
def test_clients_that_only_begin_a_handshake_keep_out_no_other(
    opening: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "MAX_HANDSHAKES", 3)
    hello = client_hello_bytes()
    openings = {"nothing": b"", "half a hello": hello[: len(hello) // 2], "a hello": hello}

    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            others = [socket.create_connection(serving.server.address) for _ in range(20)]
            for each in others:
                each.send(openings[opening])
            await until(lambda: serving.server.places == (3 if opening == "a hello" else 20))
            talk = await serving.connect()
            assert await talk.ask(b"x") == b"x"
            for each in others:
                each.close()
            await until(lambda: serving.server.places == 1)
            await talk.close()

    run(main())


@pytest.mark.parametrize("limits", [{"max_connections": 2}, {"max_connections_per_ip": 2}])
@pytest.mark.parametrize("run", RUNNERS)
def test_connections_are_counted_before_their_handshake_and_make_room_for_others(
    run: Run, limits: dict[str, int], tmp_path: Path
) -> None:
    async def main() -> None:
        async with served(tmp_path, limits=ServerLimits(**limits)) as (serving, _):
            silent = [socket.create_connection(serving.server.address) for _ in range(2)]
            await until(lambda: serving.server.places == 2)
            talks = [await serving.connect() for _ in range(2)]
            assert [each.recv(1) for each in silent] == [b"", b""], "they have made room"
            assert [await talk.ask(b"x") for talk in talks] == [b"x", b"x"]
            with pytest.raises((ssl.SSLError, ConnectionError, OSError)):
                await serving.connect()
            assert await talks[0].ask(b"y") == b"y", "clients do not"
            for talk in talks:
                await talk.close()
            for each in silent:
                each.close()
            await until(lambda: serving.server.places == 0)

    run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_a_server_that_is_closed_forgets_those_that_only_began(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            hello = client_hello_bytes()
            others = [socket.create_connection(serving.server.address, 60) for _ in range(6)]
            for number, each in enumerate(others):
                each.send((b"", hello[:50], hello)[number % 3])
            await until(lambda: serving.server.places == len(others))
            await serving.server.close()
            await until(lambda: serving.server.places == 0)
            for each in others:
                with contextlib.suppress(ConnectionResetError):  # the server had not read all of it
                    while await asyncio.to_thread(each.recv, 65_536):
                        continue
                each.close()

    run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_connections_that_make_room_before_they_were_looked_at_give_their_places_back(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path, limits=ServerLimits(max_connections=1)) as (serving, _):
            burst = [socket.create_connection(serving.server.address, 60) for _ in range(10)]
            for each in burst[:-1]:
                assert await asyncio.to_thread(each.recv, 1) == b""
            await until(lambda: serving.server.places == 1)
            talk = await serving.connect()
            assert await talk.ask(b"x") == b"x"
            for each in burst:
                each.close()
            await talk.close()
            await until(lambda: serving.server.places == 0)

    run(main())


def test_a_connection_that_is_gone_leaves_nothing_for_the_collector_of_cycles(tmp_path: Path) -> None:
    """It comes seldom, and the session of TLS has a quarter of a MiB."""

    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            talk = await serving.connect()
            assert await talk.ask(b"x") == b"x"
            [connection] = serving.server.connections()
            gone = weakref.ref(connection)
            gc.disable()
            try:
                connection.close("no_handshake")
                del connection
                await until(lambda: gone() is None)
            finally:
                gc.enable()
            await talk.close()

    uvloop.run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_a_hello_that_comes_in_pieces_is_whole_in_the_end(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
            session = serving.context().wrap_bio(received, sent, server_hostname="localhost")
            with pytest.raises(ssl.SSLWantReadError):
                session.do_handshake()
            reader, writer = await asyncio.open_connection(*serving.server.address)
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in sent.read():
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            while True:
                received.write(await reader.read(65_536))
                try:
                    session.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    continue
            writer.transport.abort()
            await until(lambda: serving.server.places == 0)

    run(main())


def client_hello_bytes() -> bytes:
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(received, sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return sent.read()


@pytest.mark.parametrize(
    "opening", [b"\x00\x00\x00\x08\x00\x12\x00\x00\x00\x00\x00\x01", b"GET / HTTP/1.1\r\n\r\n", bytes(64)]
)
def test_plain_text_on_a_tls_listener_is_named_so(opening: bytes, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            with socket.create_connection(serving.server.address) as plain:
                plain.send(opening)
                await until(lambda: serving.traffic.bad["plaintext_on_tls_listener"] == 1)

    asyncio.run(main())


def test_tls_on_a_plain_listener_is_named_so() -> None:
    async def main() -> None:
        traffic = Traffic()
        server = Server(lambda connection, frame: [frame], ServerLimits(), traffic, one_kind)
        host, port = await server.listen("127.0.0.1", 0)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(host, port, ssl=ssl.create_default_context(), server_hostname="localhost")
        assert traffic.bad == {"tls_on_plaintext_listener": 1}
        await server.close()

    asyncio.run(main())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_of_tls_are_refused(version: ssl.TLSVersion, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            context = serving.context()
            with pytest.warns(DeprecationWarning):
                context.minimum_version = version
                context.maximum_version = version
            context.set_ciphers("ALL:@SECLEVEL=0")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await serving.connect(context)

    asyncio.run(main())
