"""The store of another node: the calls of `Store`, over the network.

Two connections: one for what a leader waits for (append, create, fence), one for bulk (reads and the other calls), so
that a large read does not delay an append. Calls that can take minutes, seal and copy, have a connection of their own
for as long as they take. Nothing is retried here: StoreUnreachable means that the outcome is unknown, and that
repeating is harmless.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from headwater.model.ids import LeaderEpoch, Offset, SegmentId, StoreId
from headwater.model.replica import (
    Buffer,
    Durability,
    ReplicaState,
    SealedReplica,
    SegmentDescription,
    StoreError,
)
from headwater.peers import messages
from headwater.peers.channel import Channel, ChannelOptions
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import APPEND_HEAD_BYTES, REPLY_BYTES, Call, CreateCall, Donor, PeerAddress
from headwater.wire.cursor import MalformedRequest

T = TypeVar("T")


class _Sent(NamedTuple):
    """An append that is on its way."""

    reply: "asyncio.Future[bytearray]"

    def when_done(self, callback: Callable[[object], None]) -> None:
        self.reply.add_done_callback(callback)

    def outcome(self) -> Offset:
        return _decoded(messages.read_append_reply, self.reply.result())


class RemoteStore:
    """Implements `Store`."""

    def __init__(
        self,
        store_id: StoreId,
        address: PeerAddress,
        identity: PeerIdentity,
        *,
        options: ChannelOptions | None = None,
        on_lost: Callable[[StoreId], None] | None = None,
    ) -> None:
        """`on_lost` is called at once when the connection that carries appends is lost."""
        self.address = address
        self._store_id = store_id
        self._store_bytes = bytes.fromhex(store_id)
        self._identity = identity
        self._options = options or ChannelOptions()
        lost = None if on_lost is None else lambda: on_lost(store_id)
        self._appends = Channel(address, identity, self._options, lost)
        self._bulk = Channel(address, identity, self._options)

    @property
    def store_id(self) -> StoreId:
        return self._store_id

    @property
    def in_flight_bytes(self) -> int:
        """Bytes that were sent on the connection for appends and not answered."""
        return self._appends.in_flight_bytes

    def close(self) -> None:
        """Calls that wait fail with StoreUnreachable."""
        self._appends.close()
        self._bulk.close()

    async def ping(self) -> None:
        """Return when the store answers."""
        await self._call(self._bulk, Call.PING)

    async def create(
        self,
        segment: SegmentId,
        partition: str,
        base: Offset,
        epoch: LeaderEpoch,
        header: bytes,
        durability: Durability,
    ) -> None:
        body = messages.create_body(CreateCall(segment, partition, base, epoch, header, durability))
        await self._call(self._appends, Call.CREATE, body)

    async def append(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset:
        sent = self.append_soon(segment, first, end, lac, batches)
        return _decoded(messages.read_append_reply, await sent.reply)

    def append_now(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset | None:
        """Never done without waiting: the store is on another node."""
        return None

    def append_soon(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> "_Sent":
        size = sum(map(len, batches))

        def encode(version: int, number: int) -> Sequence[Buffer]:
            # By position: made for each append.
            head = messages.append_request(version, number, self._store_bytes, segment, first, end, lac, size)
            return [head, *batches]

        return _Sent(self._appends.call(encode, APPEND_HEAD_BYTES + size))

    async def fence(self, segment: SegmentId) -> ReplicaState:
        frame = await self._call(self._appends, Call.FENCE, messages.segment_body(segment))
        return _decoded(messages.read_state_reply, frame)

    async def read(self, segment: SegmentId, offset: Offset, limit: Offset, max_bytes: int) -> Buffer:
        body = messages.read_body(segment, offset, limit, max_bytes)
        return memoryview(await self._call(self._bulk, Call.READ, body))[REPLY_BYTES:]

    async def read_to_copy(self, segment: SegmentId, offset: Offset, limit: Offset, max_bytes: int) -> Buffer:
        """As `read`, for a copy. The other side may throttle it, and calls behind it wait: use a connection of its
        own."""
        body = messages.read_body(segment, offset, limit, max_bytes, is_copy=True)
        return memoryview(await self._call(self._bulk, Call.READ, body))[REPLY_BYTES:]

    async def find_timestamp(self, segment: SegmentId, timestamp: int) -> Offset | None:
        body = messages.segment_and_offset_body(segment, timestamp)
        return _decoded(messages.read_offset_reply, await self._call(self._bulk, Call.FIND_TIMESTAMP, body))

    async def state(self, segment: SegmentId) -> ReplicaState:
        frame = await self._call(self._bulk, Call.STATE, messages.segment_body(segment))
        return _decoded(messages.read_state_reply, frame)

    async def seal(self, segment: SegmentId, end: Offset) -> SealedReplica:
        return await self._call_apart(Call.SEAL, messages.segment_and_offset_body(segment, end))

    async def copy(self, description: SegmentDescription, donors: Sequence[Donor]) -> SealedReplica:
        """Have the store copy a sealed segment from the first donor that can give it."""
        return await self._call_apart(Call.COPY, messages.copy_body(description, donors))

    async def _call_apart(self, call: Call, body: bytes) -> SealedReplica:
        channel = Channel(self.address, self._identity, replace(self._options, call_timeout_s=None))
        try:
            return _decoded(messages.read_sealed_reply, await self._call(channel, call, body))
        finally:
            channel.close()

    def _call(self, channel: Channel, call: Call, *body: bytes) -> "asyncio.Future[bytearray]":
        def encode(version: int, number: int) -> Sequence[Buffer]:
            return [messages.request(version, call, number, self._store_bytes, *body)]

        return channel.call(encode, sum(map(len, body)))


def _decoded(decode: Callable[[bytearray], T], frame: bytearray) -> T:
    try:
        return decode(frame)
    except MalformedRequest as error:
        raise StoreError(f"the reply of a store cannot be read: {error}") from error
