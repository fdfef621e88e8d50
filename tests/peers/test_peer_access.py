"""What strangers may do to a store: nothing. And what a peer that has gone mad may: not much."""

import asyncio
import dataclasses
import os
import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.model.replica import StoreUnreachable
from headwater.peers import messages
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.peers.handshake import NONCE_BYTES, CallerSide
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import Call
from headwater.peers.store_server import LIMITS, StoreServer
from headwater.transport.server import ServerLimits
from headwater.wire.cursor import Cursor
from tests.peers.peer_nodes import MIB, SECRET, Node, RawPeer, in_thread, node
from tests.storage.storage_samples import batch, create, fill, run, segment
from tests.support.eventually import a_while, until

REPLY = messages.REPLY_BYTES


def frame(call: int, number: int, store_id: bytes, body: bytes = b"", version: int = 1) -> bytes:
    return messages.request(version, Call.PING, number, store_id, body)[4:5] + bytes([call]) + messages.request(
        version, Call.PING, number, store_id, body
    )[6:]  # fmt: skip


def trusted(served: Node) -> RawPeer:
    """A raw connection behind the handshake."""
    peer = RawPeer(served.address)
    ours = CallerSide(ClusterSecrets(SECRET), os.urandom(NONCE_BYTES))
    peer.send(frame(Call.HELLO, 0, bytes(16), ours.hello()))
    hello = peer.receive()
    assert hello is not None
    _, proof = ours.prove(Cursor(hello, REPLY))
    peer.send(frame(Call.PROVE, 1, bytes(16), proof))
    proven = peer.receive()
    assert proven is not None
    assert ours.is_proven(Cursor(proven, REPLY))
    return peer


async def still_serves(served: Node) -> None:
    await served.remote().ping()


def against(attack: Callable[[Node], None], limits: ServerLimits = LIMITS) -> None:
    async def main() -> None:
        async with node(limits=limits) as served:
            await create(served.store)
            await fill(served.store, segment(1), 3)
            before = served.store.replicas()
            await in_thread(lambda: attack(served))
            await still_serves(served)
            assert served.store.replicas() == before
            assert served.server.held_bytes == 0

    run(main())


@pytest.mark.parametrize("call", [call for call in Call if call not in (Call.HELLO,)])
def test_a_stranger_gets_no_answer_to_any_call(call: Call) -> None:
    def attack(served: Node) -> None:
        store_id = bytes.fromhex(served.store.store_id)
        peer = RawPeer(served.address)
        peer.send(frame(call, 0, store_id, bytes.fromhex(segment(1)) + bytes(100)))
        assert peer.is_closed()
        peer.close()
        peer = RawPeer(served.address)
        hello = bytes([1, 1]) + bytes(NONCE_BYTES)
        peer.send(frame(Call.HELLO, 0, bytes(16), hello))
        assert peer.receive() is not None
        peer.send(frame(call, 1, store_id, bytes(32)))
        assert peer.is_closed(), "half a handshake is none"
        peer.close()

    against(attack)


def test_a_wrong_secret_is_refused_without_a_word_and_the_caller_told() -> None:
    async def main() -> None:
        async with node() as served:
            stranger = served.remote(identity=PeerIdentity.of(b"some other secret"))
            for _ in range(3):
                with pytest.raises(StoreUnreachable):
                    await stranger.fence(segment(1))
            assert served.store.replicas() == []
            await still_serves(served)

    run(main())


def test_a_caller_notices_a_store_that_does_not_know_the_secret() -> None:
    async def main() -> None:
        async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for body in (bytes([1]) + bytes(NONCE_BYTES), bytes(32)):
                size = struct.unpack(">I", await reader.readexactly(4))[0]
                request = await reader.readexactly(size)
                reply = b"\0" + request[2:6] + body
                writer.write(struct.pack(">I", len(reply)) + reply)
            assert await reader.read() == b"", "nothing is told to an impostor"
            writer.close()

        impostor = await asyncio.start_server(pretend, "127.0.0.1", 0)
        async with node() as served:
            served.address = messages.PeerAddress(*impostor.sockets[0].getsockname())
            with pytest.raises(StoreUnreachable, match="does not know the secret"):
                await served.remote().append(segment(1), 0, 1, 0, [batch(0)])
        impostor.close()
        await impostor.wait_closed()

    run(main())


def test_a_recorded_handshake_opens_nothing() -> None:
    def attack(served: Node) -> None:
        ours = CallerSide(ClusterSecrets(SECRET), b"n" * NONCE_BYTES)
        said = [frame(Call.HELLO, 0, bytes(16), ours.hello())]
        peer = RawPeer(served.address)
        peer.send(said[0])
        hello = peer.receive()
        assert hello is not None
        said.append(frame(Call.PROVE, 1, bytes(16), ours.prove(Cursor(hello, REPLY))[1]))
        peer.send(said[1])
        assert peer.receive() is not None
        peer.close()
        replay = RawPeer(served.address)
        replay.send(said[0])
        assert replay.receive() is not None
        replay.send(said[1])
        assert replay.is_closed()
        replay.close()

    against(attack)


def test_frames_of_strangers_stay_small() -> None:
    def attack(served: Node) -> None:
        for length in (65 * 1024, 2**31, 2**32 - 1):
            peer = RawPeer(served.address)
            peer.send_raw(struct.pack(">I", length))
            assert peer.is_closed()
            peer.close()
        peer = RawPeer(served.address)
        peer.send(frame(Call.HELLO, 0, bytes(16), bytes([1, 1]) + bytes(NONCE_BYTES)))
        assert peer.receive() is not None
        peer.send_raw(struct.pack(">I", MIB))
        assert peer.is_closed(), "a hello is not enough for more"
        peer.close()

    against(attack)


def test_a_stranger_that_keeps_silent_is_closed() -> None:
    def attack(served: Node) -> None:
        silent, half = RawPeer(served.address), RawPeer(served.address)
        half.send(frame(Call.HELLO, 0, bytes(16), bytes([1, 1]) + bytes(NONCE_BYTES)))
        assert half.receive() is not None
        assert silent.is_closed()
        assert half.is_closed()
        silent.close()
        half.close()

    against(attack, dataclasses.replace(LIMITS, handshake_timeout_s=0.3))


def test_a_trusted_peer_stays_beyond_the_time_for_the_handshake() -> None:
    async def main() -> None:
        async with node(limits=dataclasses.replace(LIMITS, handshake_timeout_s=0.2)) as served:
            remote = served.remote()
            await remote.ping()
            await a_while(longer_than_s=0.2)
            await remote.ping()
            assert served.traffic.opened == 1

    run(main())


def test_a_store_is_not_served_without_a_secret() -> None:
    async def main() -> None:
        async with node() as served:
            with pytest.raises(ValueError, match="at least 16 bytes"):
                StoreServer(served.store, PeerIdentity.of(b""), served.traffic)

    run(main())


def test_requests_that_make_no_sense_close_the_connection() -> None:
    def attack(served: Node) -> None:
        store_id = bytes.fromhex(served.store.store_id)
        name = bytes.fromhex(segment(1))
        for bad in (
            b"",
            b"\1\3",
            frame(99, 2, store_id),
            frame(0, 2, store_id),
            frame(Call.HELLO, 2, store_id, bytes(34)),
            frame(Call.PROVE, 2, store_id, bytes(32)),
            frame(Call.PING, 2, store_id, b"more"),
            frame(Call.PING, 2, store_id, version=0),
            frame(Call.PING, 2, store_id, version=messages.NEWEST_VERSION + 1),
            frame(Call.APPEND, 2, store_id, name),
            frame(Call.FENCE, 2, store_id, name[:-1]),
            frame(Call.FENCE, 2, store_id, name + b"x"),
            frame(Call.READ, 2, store_id, name + bytes(19)),
            frame(Call.CREATE, 2, store_id, name + bytes(12) + b"\7" + bytes(2)),
            frame(Call.CREATE, 2, store_id, name + bytes(13) + b"\xff\xff"),
            frame(Call.CREATE, 2, store_id, name + bytes(13) + b"\0\1\xff"),
            frame(Call.COPY, 2, store_id, name + bytes(60) + b"\xff"),
        ):
            peer = trusted(served)
            peer.send(bad)
            assert peer.is_closed(), bad
            peer.close()
        peer = trusted(served)
        peer.send_raw(struct.pack(">I", LIMITS.max_request_bytes + 1))
        assert peer.is_closed()
        peer.close()

    against(attack)


def test_an_announced_length_costs_nothing_until_its_bytes_arrive() -> None:
    async def main() -> None:
        async with node() as served:
            peers = [await asyncio.to_thread(trusted, served) for _ in range(5)]
            for peer in peers:
                peer.send_raw(struct.pack(">I", 100 * MIB) + b"x" * 100)
            await still_serves(served)
            assert served.server.held_bytes <= 5 * 2 * MIB
            for peer in peers:
                peer.close()

    run(main())


def test_any_bytes_behind_the_handshake_leave_the_store_as_it_is() -> None:
    async def main() -> None:
        async with node() as served:
            await create(served.store)
            await fill(served.store, segment(1), 3)
            store_id = bytes.fromhex(served.store.store_id)
            calls = st.integers(0, 255).filter(lambda call: call not in (Call.CREATE, Call.FENCE))
            bodies = st.binary(max_size=120) | st.binary(max_size=80).map(
                lambda rest: bytes.fromhex(segment(1)) + rest
            )  # fmt: skip
            whole = st.builds(lambda call, body: frame(call, 2, store_id, body), calls, bodies)

            @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
            @given(st.lists(whole | st.binary(max_size=60), min_size=1, max_size=5), st.binary(max_size=20))
            def attack(frames: list[bytes], rest: bytes) -> None:
                peer = trusted(served)
                for piece in frames:
                    peer.send(piece)
                peer.send_raw(rest)
                peer.close()

            await in_thread(attack)
            await still_serves(served)
            (state,) = served.store.replicas()
            assert (state.segment, state.is_fenced, state.in_doubt) == (segment(1), False, False)
            assert state.is_sealed or state.end == 3
            await until(lambda: served.server.held_bytes == 0)

    run(main())


def test_any_bytes_of_a_stranger_leave_the_store_as_it_is() -> None:
    def attack(served: Node) -> None:
        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.binary(max_size=200))
        def say(data: bytes) -> None:
            peer = RawPeer(served.address)
            peer.send_raw(data)
            peer.close()

        say()

    against(attack)
