"""Serves the store of this node to its peers, on the peer listener, and answers their calls to its broker.

A peer proves first that it knows the secret of the cluster; until then nothing else is answered, and requests are
small. With TLS it has shown a certificate before that, and its proof is about this connection. Calls of one connection
reach the store in the order in which they came, many at a time, and are answered in that order. Appends go to the store
without a task; everything else gets one. There is no call that deletes.

All state belongs to the event loop.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, ParamSpec

from headwater.model.ids import Offset, SegmentId
from headwater.model.replica import Buffer, CorruptReplica, SegmentDescription, StoreError, WrongStore
from headwater.peers import messages
from headwater.peers.calls import CallHandler, answer_call, refuse_calls
from headwater.peers.channel import ChannelOptions
from headwater.peers.donors import CHANNELS as DONOR_CHANNELS
from headwater.peers.donors import DonorSource
from headwater.peers.handshake import NONCE_BYTES, NoCommonVersion, StoreSide
from headwater.peers.identity import PeerIdentity, binding
from headwater.peers.messages import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    AppendCall,
    Call,
    CreateCall,
    Donor,
    ReadCall,
    Request,
)
from headwater.peers.pace import AT_ONCE, CopyPace
from headwater.storage.segment_store import SegmentStore
from headwater.transport.connection import Answer, CloseConnection, Connection, Pieces, Promise
from headwater.transport.listener import Listener
from headwater.transport.server import Server, ServerLimits, TrafficCounters
from headwater.wire.cursor import Cursor, MalformedRequest

P = ParamSpec("P")

MAX_READ_BYTES: Final = 8 * 1024 * 1024
"""The most that one read returns, unless a single batch is larger."""
MAX_READS: Final = 4
"""Reads of one connection at a time: bounds what a peer costs that sends reads and takes no replies."""
MAX_COPIES: Final = 8
"""Copies of all connections at a time: as many as the controller has under way, throttled and not."""

LIMITS: Final = ServerLimits(
    max_connections=1_000,
    max_connections_per_ip=1_000,
    max_request_bytes=101 * 1024 * 1024,
    request_memory_bytes=256 * 1024 * 1024,
    max_requests_in_flight=1_000,
    idle_timeout_s=3_600.0,
    handshake_timeout_s=10.0,
)
"""The largest batch that a client may send fits into an append."""


@dataclass(slots=True)
class _Session:
    """The state of one connection."""

    handshake: StoreSide | None = None
    unstarted: int = 0
    """Calls whose tasks have not run yet. An append behind them gets a task, too: it must not overtake them."""
    reads: int = 0


class StoreServer:
    def __init__(
        self,
        store: SegmentStore | None,
        identity: PeerIdentity,
        traffic: TrafficCounters,
        *,
        on_call: CallHandler = refuse_calls,
        giving: CopyPace = AT_ONCE,
        getting: CopyPace = AT_ONCE,
        limits: ServerLimits = LIMITS,
        donor_options: ChannelOptions | None = None,
    ) -> None:
        """`store` is None on a node without one: it still answers calls to its broker, by `on_call`. `giving` limits
        the copies that other stores make of this one's segments, `getting` those that this store makes."""
        self._own = store
        self._store_bytes = bytes.fromhex(store.store_id) if store is not None else b""
        self._on_call = on_call
        self._identity = identity
        self._donor_options = donor_options or DONOR_CHANNELS
        self._giving = giving
        self._getting = getting
        self._server = Server(self._handle, limits, traffic, kind_of=lambda _: "call")  # calls are independent
        self._loop = self._server.loop
        self._sessions: dict[Connection, _Session] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._copies = asyncio.Semaphore(MAX_COPIES)
        identity.secrets.watchers.append(self._secrets_replaced)

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        tls = self._identity.tls
        listener = Listener(
            name="peers",
            tls=tls.files if tls is not None else None,
            takes_plain=tls is not None and not tls.is_required,
            asks_who=True,
        )
        return await self._server.listen(host, port, listener=listener)

    async def close(self) -> None:
        """Close all connections; the store finishes the calls that it has begun."""
        with contextlib.suppress(ValueError):
            self._identity.secrets.watchers.remove(self._secrets_replaced)
        await self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def held_bytes(self) -> int:
        """Memory of requests that are not answered."""
        return self._server.held_bytes

    # One request

    def _handle(self, connection: Connection, frame: bytearray) -> "Answer | Promise":
        request = messages.read_request(frame)
        session = self._sessions.get(connection)
        if session is None:
            session = self._sessions[connection] = _Session()
            connection.when_closed[self] = lambda: self._forget(connection)
        if not connection.is_trusted:
            return self._shake_hands(connection, session, request, messages.body_of(frame))
        if not OLDEST_VERSION <= request.version <= NEWEST_VERSION:
            raise CloseConnection(f"version {request.version} was not agreed upon")
        if request.call == Call.ASK:
            return self._spawn(session, request.number, answer_call, self._on_call, messages.body_of(frame))
        if request.store_id != self._store_bytes:
            which = "no store is here" if self._own is None else f"this is store {self._own.store_id}"
            return messages.error_reply(request.number, WrongStore(which))
        if request.call == Call.APPEND:
            return self._append(session, request, messages.read_append(frame))
        return self._start_call(connection, session, request, messages.body_of(frame))

    @property
    def _store(self) -> SegmentStore:
        assert self._own is not None, "calls to a store that is not here are refused before"
        return self._own

    def _forget(self, connection: Connection) -> None:
        self._sessions.pop(connection, None)

    def _secrets_replaced(self) -> None:
        """What was proven by a secret that is gone counts no more: the peer connects anew, if it knows another."""
        accepted = self._identity.secrets.accepted
        for connection, session in list(self._sessions.items()):
            proven = session.handshake.proven if session.handshake is not None else None
            if proven is not None and proven not in accepted:
                connection.close("peer_secret_replaced", "the secret that the peer has proven is not the cluster's now")

    def _shake_hands(self, connection: Connection, session: _Session, request: Request, body: Cursor) -> Pieces:
        if request.call == Call.HELLO and session.handshake is None:
            session.handshake = StoreSide(self._identity.secrets, os.urandom(NONCE_BYTES), _binding_of(connection))
            try:
                return messages.reply(request.number, session.handshake.answer(body))
            except NoCommonVersion as error:
                return messages.error_reply(request.number, error)
        if request.call == Call.PROVE and session.handshake is not None:
            proof = session.handshake.verify(body)
            if proof is not None:
                connection.trust()
                return messages.reply(request.number, proof)
            raise CloseConnection("a peer does not know the secret of the cluster, or a proxy passes on its proof")
        raise CloseConnection("a stranger, who does not begin as a peer does")

    def _append(self, session: _Session, request: Request, append: AppendCall) -> "Answer | Promise":
        number = request.number
        segment, first, end, lac, batches = append
        pieces: Sequence[Buffer] = (batches,) if batches else ()
        try:
            started = None if session.unstarted else self._store.append_soon(segment, first, end, lac, pieces)
        except StoreError as error:
            return messages.error_reply(number, error)
        if started is None:
            return self._spawn(session, number, self._store_append, segment, first, end, lac, pieces)
        if isinstance(started, int):
            return messages.append_reply(number, started)
        replica, written = started

        def render(outcome: "asyncio.Future[None]") -> Pieces:
            try:
                outcome.result()
            except StoreError as error:
                return messages.error_reply(number, error)
            return messages.append_reply(number, replica.end)

        return Promise(written, render)

    def _start_call(self, connection: Connection, session: _Session, request: Request, body: Cursor) -> Answer:
        match request.call:
            case Call.PING:
                messages.check_end(body)
                return messages.reply(request.number)
            case Call.READ:
                answer = self._spawn(session, request.number, self._read, messages.read_read(body))
                self._count_read(connection, session, answer)
                return answer
            case Call.CREATE:
                return self._spawn(session, request.number, self._create, messages.read_create(body))
            case Call.FENCE:
                return self._spawn(session, request.number, self._fence, messages.read_segment(body))
            case Call.STATE:
                return self._spawn(session, request.number, self._state, messages.read_segment(body))
            case Call.FIND_TIMESTAMP:
                return self._spawn(
                    session, request.number, self._find_timestamp, *messages.read_segment_and_offset(body)
                )
            case Call.SEAL:
                return self._spawn(session, request.number, self._seal, *messages.read_segment_and_offset(body))
            case Call.COPY:
                return self._spawn(session, request.number, self._copy, *messages.read_copy(body))
        raise MalformedRequest(f"there is no call {request.call}")

    def _spawn(
        self,
        session: _Session,
        number: int,
        function: Callable[P, Coroutine[Any, Any, Buffer]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> "asyncio.Task[Pieces | None]":
        """Run a call in a task. Tasks start in the order in which they are made, so the store sees the calls in
        order."""

        async def run() -> Pieces:
            session.unstarted -= 1
            try:
                return messages.reply(number, await function(*args, **kwargs))
            except StoreError as error:
                return messages.error_reply(number, error)

        session.unstarted += 1
        task: asyncio.Task[Pieces | None] = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _count_read(self, connection: Connection, session: _Session, answer: "asyncio.Task[Any]") -> None:
        """Stop reading requests while MAX_READS reads are under way."""
        session.reads += 1
        if session.reads >= MAX_READS:
            connection.pause("reads")

        def done(_: object) -> None:
            session.reads -= 1
            connection.resume("reads")

        answer.add_done_callback(done)

    # What the store answers

    async def _store_append(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, pieces: Sequence[Buffer]
    ) -> Buffer:
        return messages.offset_body(await self._store.append(segment, first, end, lac, pieces))

    async def _create(self, create: CreateCall) -> Buffer:
        await self._store.create(*create)
        return b""

    async def _fence(self, segment: SegmentId) -> Buffer:
        return messages.state_body(await self._store.fence(segment))

    async def _state(self, segment: SegmentId) -> Buffer:
        return messages.state_body(await self._store.state(segment))

    async def _read(self, read: ReadCall) -> Buffer:
        most_bytes = min(read.max_bytes, MAX_READ_BYTES)
        if not read.is_copy:
            return await self._store.read(read.segment, read.offset, read.limit, most_bytes)
        partition = (await self._store.state(read.segment)).partition
        most_bytes = await self._giving.admit(partition, most_bytes)
        batches = await self._store.read(read.segment, read.offset, read.limit, most_bytes)
        self._giving.passed(partition, len(batches))
        return batches

    async def _find_timestamp(self, segment: SegmentId, timestamp: int) -> Buffer:
        return messages.offset_body(await self._store.find_timestamp(segment, timestamp))

    async def _seal(self, segment: SegmentId, end: Offset) -> Buffer:
        return messages.sealed_body(await self._store.seal(segment, end))

    async def _copy(self, description: SegmentDescription, donors: Sequence[Donor]) -> Buffer:
        others = [donor for donor in donors if donor.store_id != self._store.store_id]
        async with self._copies:
            while True:
                source = DonorSource(description, others, self._identity, self._donor_options, self._getting)
                try:
                    return messages.sealed_body(await self._store.copy(description, source))
                except CorruptReplica:
                    others = others[1:]  # the first donor has other bytes
                    if not others:
                        raise
                finally:
                    source.close()


def _binding_of(connection: Connection) -> bytes:
    """Empty without TLS."""
    shown = connection.shown_certificate
    if shown is None:
        return b""
    theirs = connection.peer_certificate
    if theirs is None:
        raise CloseConnection("a peer without a certificate")
    return binding(shown, theirs)
