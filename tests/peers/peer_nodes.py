"""Stores that are served on loopback, and raw connections to them."""

import asyncio
import contextlib
import dataclasses
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from headwater.model.ids import StoreId
from headwater.model.replica import Durability, ReplicaState, SegmentDescription
from headwater.peers.channel import ChannelOptions
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import Donor, PeerAddress
from headwater.peers.pace import AT_ONCE, CopyPace
from headwater.peers.remote_store import RemoteStore
from headwater.peers.store_server import LIMITS, StoreServer
from headwater.storage.files import Files
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.testing.fakes.files import MemoryFiles
from headwater.transport.server import ServerLimits
from tests.storage.storage_samples import SMALL, segment

SECRET = b"the secret of the cluster in tests"
IDENTITY = PeerIdentity.of(SECRET)
THREADED = dataclasses.replace(SMALL, runs_inline=False)
MIB = 1024 * 1024
ROOMY = dataclasses.replace(THREADED, journal_file_bytes=16 * MIB, block_bytes=64 * 1024)
QUICK = ChannelOptions(connect_timeout_s=5.0)


class Counting:
    """What crossed the sockets."""

    def __init__(self) -> None:
        self.opened = self.closed = self.read_bytes = self.written_bytes = self.refused = 0

    def connection_opened(self) -> None:
        self.opened += 1

    def connection_closed(self) -> None:
        self.closed += 1

    def bytes_in(self, count: int) -> None:
        self.read_bytes += count

    def bytes_out(self, count: int) -> None:
        self.written_bytes += count

    def bad_request(self, fact: str) -> None:
        self.refused += 1


class Node:
    """A store and its server."""

    def __init__(self, store: SegmentStore, server: StoreServer, address: PeerAddress, traffic: Counting) -> None:
        self.store = store
        self.server = server
        self.address = address
        self.traffic = traffic
        self._remotes: list[RemoteStore] = []

    @property
    def donor(self) -> Donor:
        return Donor(self.store.store_id, self.address)

    def remote(
        self,
        *,
        store_id: StoreId | None = None,
        identity: PeerIdentity = IDENTITY,
        options: ChannelOptions = QUICK,
        on_lost: Callable[[StoreId], None] | None = None,
    ) -> RemoteStore:
        remote = RemoteStore(
            store_id or self.store.store_id, self.address, identity, options=options, on_lost=on_lost
        )  # fmt: skip
        self._remotes.append(remote)
        return remote

    async def close(self) -> None:
        for remote in self._remotes:
            remote.close()
        await self.server.close()
        await self.store.close()


@contextlib.asynccontextmanager
async def node(
    files: Files | None = None,
    options: StoreOptions = THREADED,
    limits: ServerLimits = LIMITS,
    donor_options: ChannelOptions | None = None,
    giving: CopyPace = AT_ONCE,
    getting: CopyPace = AT_ONCE,
    identity: PeerIdentity = IDENTITY,
) -> AsyncIterator[Node]:
    store = await SegmentStore.open(Path("/data"), files=files or MemoryFiles(), options=options)
    traffic = Counting()
    server = StoreServer(
        store, identity, traffic, giving=giving, getting=getting, limits=limits, donor_options=donor_options
    )
    served = Node(store, server, PeerAddress(*await server.listen("127.0.0.1", 0)), traffic)
    try:
        yield served
    finally:
        await served.close()


async def description_of(store: SegmentStore, number: int = 1) -> SegmentDescription:
    """Of a segment that is sealed here."""
    state = store.replica(segment(number))
    assert state is not None
    sealed = await store.seal(segment(number), state.end)
    return SegmentDescription(
        segment=segment(number),
        partition=state.partition,
        base=state.base,
        end=state.end,
        epoch=state.epoch,
        header=state.header,
        durability=Durability.SYNC,
        crc32c=sealed.crc32c,
        size_bytes=sealed.size_bytes,
    )


def here(store: SegmentStore, number: int = 1) -> ReplicaState:
    state = store.replica(segment(number))
    assert state is not None
    return state


class RawPeer:
    """A connection that says what a test wants it to say."""

    def __init__(self, address: PeerAddress, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(address, timeout=10)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address.host)

    def send(self, frame: bytes) -> None:
        self.send_raw(struct.pack(">I", len(frame)) + frame)

    def send_raw(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(data)

    def receive(self) -> bytes | None:
        """A frame, or None when the other side has closed."""
        head = self._exactly(4)
        return None if head is None else self._exactly(struct.unpack(">I", head)[0])

    def is_closed(self) -> bool:
        return self.receive() is None

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        try:
            while len(data) < size:
                piece = self._socket.recv(size - len(data))
                if not piece:
                    return None
                data += piece
        except ConnectionResetError:
            return None
        return data


async def in_thread(function: Callable[[], None]) -> None:
    """A raw peer waits for answers without an event loop."""
    await asyncio.to_thread(function)
