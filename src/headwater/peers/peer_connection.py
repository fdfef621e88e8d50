"""One connection to a remote store, from the caller's side: requests out, replies in, in the same order.

When it is lost, for whatever reason, everything that waits for a reply fails at once. A store that leaves the oldest
request without an answer for longer than the time-out counts as lost, because everything behind it waits as well. All
state belongs to the event loop that made the connection.
"""

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

from headwater.model.replica import Buffer, StoreError, StoreUnreachable
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.peers.handshake import NONCE_BYTES, CallerSide
from headwater.peers.identity import binding
from headwater.peers.messages import NO_STORE, OLDEST_VERSION, REPLY_BYTES, Call, PeerAddress, check_reply, request
from headwater.transport.sliced_output import SlicedOutput
from headwater.transport.tls_errors import handshake_problem
from headwater.wire.cursor import Cursor, MalformedRequest
from headwater.wire.frame import FrameReader, FrameTooLarge

SCRATCH_BYTES: Final = 128 * 1024
MAX_REPLY_BYTES: Final = 128 * 1024 * 1024
"""The largest reply is that of a read: its `max_bytes`, or one larger batch. Memory grows only as bytes arrive."""
WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024
JOIN_BELOW_BYTES: Final = 64 * 1024
"""Small requests of one loop iteration leave in one write: a system call costs more than the copy."""


class NotProven(StoreUnreachable):
    """The other side has not proven that it belongs to the cluster."""


class EndedUnproven(NotProven):
    """The connection ended before both sides were proven. The other side does not trust this one, or it stops."""


class _Waiting(NamedTuple):
    number: int
    reply: "asyncio.Future[bytearray]"
    size_bytes: int
    sent_at: float


class PeerConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        address: PeerAddress,
        timeout_s: float | None,
        replied: Callable[[int], None],
        lost: Callable[["PeerConnection", StoreUnreachable], None],
    ) -> None:
        """`replied` is called with the size of each request when its reply has come; `lost` once, when the connection
        is lost."""
        self._address = address
        self._timeout_s = timeout_s
        self._replied = replied
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(bytearray(SCRATCH_BYTES))
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Waiting] = deque()
        self._output: list[Buffer] = []
        self._output_bytes = 0
        self._slices: SlicedOutput | None = None
        """How TLS output leaves: encrypting much at once would hold up everything else."""
        self._watch: asyncio.TimerHandle | None = None
        self._reason = "the connection was closed"
        self._is_distrusted = False
        """Whether TLS has ended it."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def send(self, number: int, pieces: Sequence[Buffer], size_bytes: int, reply: "asyncio.Future[bytearray]") -> None:
        """Send a request; the future gets the frame of its reply, or StoreUnreachable. It leaves at once if it is the
        only one on its way, else together with the others of the same loop iteration."""
        assert self._transport is not None, "a lost connection is not used any more"
        now = self._loop.time()
        waiting, output = self._waiting, self._output
        waiting.append(_Waiting(number, reply, size_bytes, now))
        if not output and len(waiting) > 1:
            self._loop.call_soon(self._flush)
        output += pieces
        self._output_bytes += size_bytes
        if len(waiting) == 1 or self._output_bytes >= JOIN_BELOW_BYTES:
            self._flush()
        if self._watch is None and self._timeout_s is not None:
            self._watch = self._loop.call_at(now + self._timeout_s, self._look_at_the_time)

    async def shake_hands(self, secrets: ClusterSecrets, own_certificate: bytes | None = None) -> int:
        """Prove to each other that both know the secret; return the version to speak. `own_certificate` is what this
        side has shown; None without TLS."""
        bound = binding(self._their_certificate(), own_certificate) if own_certificate is not None else b""
        ours = CallerSide(secrets, os.urandom(NONCE_BYTES), bound)
        unwilling = (
            "it does not take the certificate of this node, and its log says why"
            if bound
            else "it asks for TLS, which this node has no [peer_tls] for, or it was ended"
        )
        hello = await self._ask(0, Call.HELLO, ours.hello(), unwilling)
        version, proof = ours.prove(Cursor(hello, REPLY_BYTES))
        unwilling = "it has another secret of the cluster, or a proxy is between the two"
        proven = await self._ask(1, Call.PROVE, proof, unwilling)
        if not ours.is_proven(Cursor(proven, REPLY_BYTES)):
            raise NotProven(f"{self._name} does not know the secret of the cluster")
        self._reader.limit_bytes = MAX_REPLY_BYTES
        return version

    def close(self, reason: str) -> None:
        if self._transport is not None:
            self._reason = reason
            self._transport.abort()
            self._fail()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if transport.get_extra_info("ssl_object") is not None:
            self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
            self._slices = SlicedOutput(self._loop, self._transport, lambda: None)

    def pause_writing(self) -> None:
        if self._slices is not None:
            self._slices.pause()

    def resume_writing(self) -> None:
        if self._slices is not None:
            self._slices.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._is_distrusted = isinstance(exc, ssl.SSLError)
            self._reason = handshake_problem(exc)
        self._fail()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._reader.advance(nbytes)
        except FrameTooLarge as error:
            self.close(str(error))
            return
        for frame in frames:
            if not self._take(frame):
                return

    # Inside

    @property
    def _name(self) -> str:
        return f"store at {self._address.host}:{self._address.port}"

    def _their_certificate(self) -> bytes:
        """What the other side has shown, and TLS has found good."""
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if not certificate:
            raise StoreUnreachable(f"{self._name}: {self._reason}")
        return cast(bytes, certificate)

    def _flush(self) -> None:
        output, size = self._output, self._output_bytes
        transport = self._transport
        if transport is None or not output:
            return
        self._output, self._output_bytes = [], 0
        if self._slices is not None and (size >= JOIN_BELOW_BYTES or not self._slices.is_empty):
            self._slices.write(output)
        elif len(output) > 1 and size >= JOIN_BELOW_BYTES:
            transport.writelines(output)
        else:
            transport.write(output[0] if len(output) == 1 else b"".join(output))

    def _take(self, frame: bytearray) -> bool:
        """Resolve the future of the oldest request with a reply; False if the connection was closed instead."""
        if not self._waiting:
            self.close("a reply without a request")
            return False
        number, reply, size_bytes, _ = self._waiting[0]
        try:
            check_reply(frame, number)
        except MalformedRequest as error:
            self.close(str(error))
            return False
        except StoreError as error:
            if not reply.done():
                reply.set_exception(error)
        else:
            if not reply.done():  # or the caller gave up
                reply.set_result(frame)
        self._waiting.popleft()
        self._replied(size_bytes)
        return True

    def _fail(self) -> None:
        if self._transport is None:
            return
        self._transport = None
        if self._watch is not None:
            self._watch.cancel()
        error = (NotProven if self._is_distrusted else StoreUnreachable)(f"{self._name}: {self._reason}")
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            fail(entry.reply, error)
        self._lost(self, error)

    def _look_at_the_time(self) -> None:
        assert self._timeout_s is not None, "there is a time-out where one is watched"
        self._watch = None
        if not self._waiting:
            return
        due = self._waiting[0].sent_at + self._timeout_s
        if due <= self._loop.time():
            self.close(f"no answer for {self._timeout_s} s")
        else:
            self._watch = self._loop.call_at(due, self._look_at_the_time)

    async def _ask(self, number: int, call: Call, body: bytes, unwilling: str) -> bytearray:
        """A call of the handshake; `unwilling` says why the other side would end the connection instead."""
        if self._transport is None:
            raise StoreUnreachable(f"{self._name}: {self._reason}")
        reply: asyncio.Future[bytearray] = self._loop.create_future()
        frame = request(OLDEST_VERSION, call, number, bytes.fromhex(NO_STORE), body)
        self.send(number, [frame], 0, reply)
        try:
            return await reply
        except StoreUnreachable as error:
            raise EndedUnproven(f"{error}: {unwilling}") from error


def fail(reply: "asyncio.Future[bytearray]", error: StoreUnreachable) -> None:
    if not reply.done():
        reply.set_exception(type(error)(str(error)))
        reply.exception()  # marked as seen, in case the caller gives up
