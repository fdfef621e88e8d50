"""One client connection: frames in, responses out in the order of their requests.

A request sees what the requests before it did: it starts when all of them are answered. Only requests of one kind may
overlap (`Server.kind_of` names the kind): a produce that waits for the disk does not hold up the next produce, but a
ListOffsets behind it waits. Responses leave in the order of their requests, whatever is ready first.

A connection stops being read while it has too many unanswered or waiting requests, while its output waits
for a slow reader, while the server is over its memory budget, while it is over its rate, or while its client is over a
quota. All of a connection's state belongs to the event loop that runs it.
"""

import asyncio
import logging
import ssl
import struct
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headwater.model.replica import Buffer
from headwater.security.principal import ANONYMOUS, Principal
from headwater.transport.listener import Listener
from headwater.transport.sliced_output import SlicedOutput
from headwater.wire.cursor import MalformedRequest
from headwater.wire.frame import FrameReader, FrameTooLarge

if TYPE_CHECKING:
    from headwater.transport.server import Server

WRITE_HIGH_WATER_BYTES = 1024 * 1024
JOIN_BELOW_BYTES = 64 * 1024
"""Small responses that are ready at the same time leave in one write: a system call costs more than the copy."""
LINGER_S = 0.1
"""Between the last response of a connection and its end."""
DELIVERY_TIMEOUT_S = 5.0
"""For the last response of a connection that is closed behind it."""
_LENGTH = struct.Struct(">i")
BAD_REQUESTS = frozenset(
    {
        "bad_request",
        "client_certificate_refused",
        "connection_given_up",
        "frame_too_large",
        "tls_on_plaintext_listener",
    }
)
"""Log events of connections that were closed for the client's fault: they are counted, too."""
_FOR_READING_ONLY = frozenset({"memory", "backlog"})
"""Pauses that keep further bytes out. Requests that are here already go on: finishing them is what frees the memory."""

Pieces: TypeAlias = Sequence[Buffer]
Answer: TypeAlias = "Pieces | asyncio.Future[Pieces | None] | None"
"""A response, a promise of one, or nothing (acks=0). None as the promise's result means nothing too."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A response that is made from another future's outcome, without an iteration of the event loop in between."""

    outcome: "asyncio.Future[Any]"
    render: "Callable[[asyncio.Future[Any]], Pieces]"
    """Called when the outcome is known, in the order of the requests."""


class CloseConnection(Exception):
    """The request gets no answer: the connection is closed, and the reason logged."""


@dataclass(slots=True)
class _Unanswered:
    frame_bytes: int
    answer: "asyncio.Future[Any] | None"
    pieces: Pieces | None
    render: "Callable[[asyncio.Future[Any]], Pieces] | None" = None


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self, server: "Server", listener: Listener, peer_host: str, shown_certificate: bytes | None = None
    ) -> None:
        self._server = server
        self.listener = listener
        self.events = server.events
        """The rate-limited log for what this client causes."""
        self.serial = server.next_serial()
        """Later connections have larger numbers."""
        self._reader = FrameReader(server.scratch)
        self._transport: asyncio.Transport | None = None
        self._unanswered: deque[_Unanswered] = deque()
        self._unanswered_kind: Hashable | None = None
        """The kind of all unanswered requests; meaningless without any."""
        self._waiting_frames: deque[bytearray] = deque()
        self._waiting_bytes = 0
        self._output: list[Buffer] = []
        self._output_bytes = 0
        self._slices: SlicedOutput | None = None
        """How TLS output leaves: encrypting much at once would hold up every other connection."""
        self._last_words: tuple[str, str] | None = None
        """Event and reason, if the connection is closed when the output at hand was delivered."""
        self._pauses: set[str] = set()
        self._pending_bytes = 0
        self._rate_window_start = 0.0
        self._rate_window_count = 0
        self.peer_host = peer_host
        self.shown_certificate = shown_certificate
        """The server's certificate that this connection began with, in DER form; None without TLS."""
        self.was_made = False
        """Whether its transport was: the TLS handshake, if there is one, is behind it."""
        self._is_given_up = False
        self.client_software = ""
        self.last_active = 0.0
        self.frame_started: float | None = None
        self.opened_at = 0.0
        self._is_trusted = not listener.asks_who
        """Until the client has proven itself, its requests must be small and its time is limited."""
        self.principal = ANONYMOUS
        """Who the client is, as far as it was asked."""
        self.access: Any = None
        """What the client may do, which those who handle its requests know; None until they do."""
        self.limits: Any = None
        """What limits the client, likewise."""
        self._throttle: asyncio.TimerHandle | None = None
        """Ends the pause of a client that is over its quota."""
        self.when_closed: dict[Hashable, Callable[[], None]] = {}
        """Callbacks for when the client is gone, under keys by which they can be removed."""
        self.login: Any = listener.new_login(self) if listener.new_login is not None else None
        """How the client says who it is; None where it is not asked."""

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._is_given_up:
            cast(asyncio.Transport, transport).abort()
            return
        self.was_made = True
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self.last_active = self.opened_at = self._server.loop.time()
        if self.shown_certificate is not None:
            self._slices = SlicedOutput(self._server.loop, self._transport, self._sliced)
        if not self._server.joins(self):
            self._transport.abort()
        elif self.listener.examine is not None:
            try:
                self.listener.examine(self)
            except CloseConnection as error:
                self.close("client_certificate_refused", str(error))
            except Exception as error:  # ours: a client of whom nothing is known must not stay
                self.close("client_certificate_refused", str(error), error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_given_up:
            return
        self._transport = None
        self._waiting_frames.clear()
        self._waiting_bytes = 0
        if self._throttle is not None:
            self._throttle.cancel()
        self._server.forget(self)
        self.limits = None  # may refer to the connection
        for entry in self._unanswered:
            if entry.answer is not None:
                _abandon(entry.answer)
            self._server.release_bytes(entry.frame_bytes)
        self._unanswered.clear()
        self._server.release_bytes(self._pending_bytes)
        if not self._is_trusted:
            self._server.hold_bytes_of_stranger(-self._pending_bytes)
        self._pending_bytes = 0
        when_closed, self.when_closed = self.when_closed, {}
        for action in when_closed.values():
            action()
        # What refers to the connection, and the session of TLS with it, would wait for the collector of cycles, which
        # comes seldom: strangers would fill the memory with what they left behind.
        self._slices = self.login = None

    def give_up(self) -> None:
        """Its place was given back before it was made: if its transport comes late, it is closed, and not counted."""
        assert not self.was_made, "a connection that exists is closed, not given up"
        self._is_given_up = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        server = self._server
        now = server.loop.time()
        self.last_active = now
        try:
            frames = self._reader.advance(nbytes)
        except FrameTooLarge as error:
            if error.is_tls and self.listener.tls is None:
                self.close("tls_on_plaintext_listener", "a TLS handshake came in; this listener is not encrypted")
            else:
                self.close("frame_too_large", str(error))
            return
        if self._reader.is_between_frames:
            self.frame_started = None
        elif frames or self.frame_started is None:
            self.frame_started = now
        server.traffic.bytes_in(nbytes)
        self._account_pending()
        if frames:
            if server.max_requests_per_second:
                self._check_rate(now, len(frames))
            self._waiting_frames.extend(frames)
            self._waiting_bytes += len(frames[0]) if len(frames) == 1 else sum(map(len, frames))
            self._start_requests()

    def pause_writing(self) -> None:
        if self._slices is not None:
            self._slices.pause()
        self.pause("output")

    def resume_writing(self) -> None:
        if self._slices is not None:
            self._slices.resume()
        self.resume("output")

    # Called by the server and by request handling

    def pause(self, reason: str) -> None:
        if not self._pauses and self._transport is not None:
            self._transport.pause_reading()
        self._pauses.add(reason)

    def resume(self, reason: str) -> None:
        self._pauses.discard(reason)
        self._start_requests()
        self._read_on()

    def throttle(self, seconds: float) -> None:
        """The client is over its quota: for so long, or longer if it was told so before, nothing more of it is read or
        started. Answers go out (KIP-219)."""
        if self._transport is None:
            return
        loop = self._server.loop
        until = loop.time() + seconds
        if self._throttle is not None:
            if self._throttle.when() >= until:
                return
            self._throttle.cancel()
        self._throttle = loop.call_at(until, self._throttled)
        self.pause("throttle")

    @property
    def is_throttled(self) -> bool:
        return self._throttle is not None

    def identify(self, principal: Principal) -> None:
        """It is known who the client is. Requests that start from now on are the principal's."""
        self.principal = principal
        self.access = self.limits = None

    def trust(self) -> None:
        """The client has proven who it is: its next request may be large, and its time is not limited."""
        if not self._is_trusted:
            self._is_trusted = True
            self._server.trusts(self, self._pending_bytes)
        self._reader.limit_bytes = self._server.max_request_bytes

    def make_room(self) -> None:
        """Give up this connection, of which nothing is known, for another."""
        self.close("connection_given_up", "the client had not logged in, and its place was needed")

    def close(self, event: str, reason: str = "", mistake: Exception | None = None) -> None:
        """Close at once, with a log event. Unanswered requests are cancelled, nothing more is started or written,
        and a second call does nothing. `mistake` is one of ours, logged with its traceback."""
        transport = self._transport
        if transport is not None:
            level = logging.INFO if mistake is None else logging.ERROR
            self.events.log(event, level, mistake, peer=self.peer_host, reason=reason)
            if event in BAD_REQUESTS:
                self._server.traffic.bad_request(event)
            if self._output:
                self._flush()
            self._transport = None
            transport.abort()

    def close_after_output(self, event: str, reason: str = "") -> None:
        """Deliver the response that is given next, then close: `close` would throw it away. Nothing behind it is
        started."""
        self._last_words = event, reason

    @property
    def is_trusted(self) -> bool:
        """Whether the client has proven who it is, where it must: see `trust`."""
        return self._is_trusted

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the client has shown and the listener's authority has signed, in DER form."""
        tls = self._tls
        return tls.getpeercert(binary_form=True) if tls is not None else None

    @property
    def certificate_expires_at_s(self) -> float | None:
        """When the certificate of the client does, in wall-clock time."""
        tls = self._tls
        certificate = tls.getpeercert() if tls is not None else None
        return ssl.cert_time_to_seconds(str(certificate["notAfter"])) if certificate else None

    @property
    def is_idle(self) -> bool:
        return not self._unanswered and not self._waiting_frames

    @property
    def _tls(self) -> ssl.SSLObject | None:
        transport = self._transport
        return transport.get_extra_info("ssl_object") if transport is not None else None

    def _throttled(self) -> None:
        self._throttle = None
        if self.frame_started is not None:
            self.frame_started = self._server.loop.time()  # the rest of the frame was not read for our reasons
        self.resume("throttle")

    # Requests, in order

    def _start_requests(self) -> None:
        server, waiting, unanswered = self._server, self._waiting_frames, self._unanswered
        while (
            waiting
            and (not self._pauses or self._pauses <= _FOR_READING_ONLY)
            and self._transport is not None
            and self._last_words is None
        ):
            frame = waiting[0]
            if unanswered and not self._overlaps(server.kind_of(frame)):
                break
            waiting.popleft()
            self._waiting_bytes -= len(frame)
            is_only = not unanswered
            if not self._start(frame):
                break
            if unanswered:
                if is_only:
                    self._unanswered_kind = server.kind_of(frame)
                if len(unanswered) >= server.max_requests_in_flight:
                    self.pause("in_flight")
        if self._output:
            self._flush()
        if waiting or self._pending_bytes:
            self._account_waiting()

    def _overlaps(self, kind: Hashable | None) -> bool:
        """Whether a request of this kind may begin before the unanswered ones are answered."""
        return kind is not None and kind == self._unanswered_kind

    def _account_waiting(self) -> None:
        """Count the memory of requests that wait to be started, and limit their number."""
        self._account_pending()
        if len(self._waiting_frames) >= self._server.max_requests_in_flight:
            self.pause("backlog")
        elif "backlog" in self._pauses:
            self._pauses.discard("backlog")
            self._read_on()

    def _read_on(self) -> None:
        if not self._pauses and self._transport is not None:
            self._transport.resume_reading()

    def _start(self, frame: bytearray) -> bool:
        server = self._server
        try:
            answer = server.handle(self, frame)
        except (MalformedRequest, CloseConnection) as error:
            self.close("bad_request", str(error))
            return False
        if self._is_trusted:
            self._reader.limit_bytes = server.max_request_bytes
        if isinstance(answer, Promise):
            entry = _Unanswered(len(frame), answer.outcome, None, answer.render)
        elif isinstance(answer, asyncio.Future):
            entry = _Unanswered(len(frame), answer, None)
        else:
            if answer is not None and not self._unanswered:
                self._write(answer)
            elif answer is not None:
                self._unanswered.append(_Unanswered(0, None, answer))
            return True
        self._unanswered.append(entry)
        assert entry.answer is not None, "what has to be waited for is a future"
        entry.answer.add_done_callback(self._answered)
        if server.hold_bytes(self, len(frame)):
            self.pause("memory")
        return True

    def _answered(self, answer: "asyncio.Future[Any]") -> None:
        if self._transport is None:
            _abandon(answer)
            return
        unanswered = self._unanswered
        while unanswered:
            entry = unanswered[0]
            if entry.answer is not None:
                if not entry.answer.done():
                    break
                if entry.answer.cancelled():
                    self.close("request_cancelled")
                    return
                try:
                    entry.pieces = entry.answer.result() if entry.render is None else entry.render(entry.answer)
                except (MalformedRequest, CloseConnection) as error:
                    self.close("bad_request", str(error))
                    return
                except Exception as error:
                    self.close("answer_failed", str(error), error)
                    return
            unanswered.popleft()
            if entry.pieces is not None:
                self._write(entry.pieces)
            # May start requests that wait for memory, whose answers belong behind this one.
            self._server.release_bytes(entry.frame_bytes)
        if self._output:
            self._flush()
        if "in_flight" in self._pauses and len(unanswered) < self._server.max_requests_in_flight:
            self.resume("in_flight")
        elif self._waiting_frames and not unanswered:
            self._start_requests()

    def _write(self, pieces: Pieces) -> None:
        size = sum(map(len, pieces))
        self._output.append(_LENGTH.pack(size))
        self._output += pieces
        self._output_bytes += size + _LENGTH.size
        if self._output_bytes >= JOIN_BELOW_BYTES:
            self._flush()

    def _flush(self) -> None:
        output, size = self._output, self._output_bytes
        self._output, self._output_bytes = [], 0
        transport = self._transport
        if transport is None:
            return
        if size < JOIN_BELOW_BYTES and (self._slices is None or self._slices.is_empty):
            transport.write(b"".join(output))
        elif self._slices is None:
            transport.writelines(output)
        else:
            self._slices.write(output)
            if not self._slices.is_empty:
                self.pause("slices")
        self._server.traffic.bytes_out(size)
        if self._last_words is not None:
            self._finish()

    def _sliced(self) -> None:
        self.resume("slices")
        if self._last_words is not None:
            self._finish()

    def _finish(self) -> None:
        """Close soon: a client that finds the last response and the end at once may look at the end first."""
        if self._slices is None or self._slices.is_empty:
            self.pause("closing")
            self._server.loop.call_later(LINGER_S, self._close_finished)

    def _close_finished(self) -> None:
        """Close when the client has what was written, or does not take it in time."""
        transport = self._transport
        if transport is not None:
            assert self._last_words is not None, "a connection is closed for a reason"
            event, reason = self._last_words
            self.events.log(event, peer=self.peer_host, reason=reason)
            self._transport = None
            transport.close()
            self._server.loop.call_later(DELIVERY_TIMEOUT_S, transport.abort)

    def _account_pending(self) -> None:
        """Count the memory of a frame that is still arriving, and of frames that wait to be started."""
        pending = self._reader.pending_bytes + self._waiting_bytes
        change = pending - self._pending_bytes
        if change == 0:
            return
        self._pending_bytes = pending
        if not self._is_trusted and not self._server.hold_bytes_of_stranger(change):
            self.close("connection_given_up", "clients that have not logged in have sent too much")
        if change < 0:
            self._server.release_bytes(-change)
        elif self._server.hold_bytes(self, change):
            self.pause("memory")

    def _check_rate(self, now: float, requests: int) -> None:
        if now - self._rate_window_start >= 1.0:
            self._rate_window_start = now
            self._rate_window_count = 0
        self._rate_window_count += requests
        if self._rate_window_count > self._server.max_requests_per_second and "rate" not in self._pauses:
            self.pause("rate")
            self._server.loop.call_later(self._rate_window_start + 1.0 - now, self.resume, "rate")


def _abandon(answer: "asyncio.Future[Any]") -> None:
    """The client is gone: cancel the answer, or mark its exception as seen, which is no mistake of ours."""
    if not answer.done():
        answer.cancel()
    elif not answer.cancelled():
        answer.exception()  # or the event loop reports an exception that was never retrieved
