"""Listening sockets and their connections, with the limits that they share.

Limits: connections in all and per address, bytes held by requests that are not answered, time without traffic, time
that a started request may take to arrive. A connection that passes one is closed or not read from, never served at
the cost of the others. Clients that have not proven who they are have a share of the memory alone, and make room for
others where connections are as many as there may be.
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from headwater.logs.events import RateLimitedLog
from headwater.transport.acceptor import Acceptor
from headwater.transport.connection import Answer, Connection, Promise
from headwater.transport.freed_memory import FreedMemory
from headwater.transport.listener import PLAINTEXT, Listener
from headwater.transport.strangers import Strangers

SCRATCH_BYTES = 256 * 1024
MAX_SWEEP_INTERVAL_S = 5.0
BACKLOG = 1024
STRANGERS_SHARE = 8
"""Clients that have not proven who they are may fill an eighth of the memory for requests."""

Handle: TypeAlias = "Callable[[Connection, bytearray], Answer | Promise]"
KindOf: TypeAlias = Callable[[bytearray], Hashable | None]
"""The kind of the request in a frame. Requests of one kind overlap on their connection; None overlaps with nothing."""


class TrafficCounters(Protocol):
    """Counts what crosses the sockets."""

    def connection_opened(self) -> None: ...

    def connection_closed(self) -> None: ...

    def bytes_in(self, count: int) -> None: ...

    def bytes_out(self, count: int) -> None: ...

    def bad_request(self, event: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerLimits:
    max_connections: int = 10_000
    max_connections_per_ip: int = 10_000
    max_request_bytes: int = 100 * 1024 * 1024
    request_memory_bytes: int = 512 * 1024 * 1024
    max_requests_per_second: int = 0
    max_requests_in_flight: int = 32
    """Unanswered requests of one connection."""
    idle_timeout_s: float = 600.0
    half_request_timeout_s: float = 30.0
    handshake_timeout_s: float = 10.0
    """A client that must prove who it is, and has not by then, is cut off."""


class Server:
    def __init__(self, handle: Handle, limits: ServerLimits, traffic: TrafficCounters, kind_of: KindOf) -> None:
        self.handle = handle
        self.kind_of = kind_of
        self.loop = asyncio.get_running_loop()
        self.scratch = bytearray(SCRATCH_BYTES)
        self.traffic = traffic
        self.events = RateLimitedLog(self.loop.time)
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.limit(limits)
        self._connections: set[Connection] = set()
        self._serial = 0
        self.places = 0
        """Connections that exist, and those that are being set up: what `max_connections` limits."""
        self._per_ip: Counter[str] = Counter()
        self._per_listener: Counter[Listener] = Counter()
        self._strangers: dict[Listener, Strangers] = {}
        self._freed_memory = FreedMemory()
        self._held_bytes = 0
        self._strangers_bytes = 0
        """Of the held bytes, those of clients that have not proven who they are."""
        self._short_of_memory: set[Connection] = set()
        self._acceptors: list[Acceptor] = []
        self.wait_s_of: Callable[[str], float] | None = None
        """Of an address that has just connected: how long the connection is held and then closed, or 0."""
        self.address = ("", 0)
        """The address that it listens on first, or did before it was closed."""

    def limit(self, limits: ServerLimits) -> None:
        """Change the limits. Connections that exist stay, even if they are too many now."""
        self._limits = limits
        self.max_request_bytes = limits.max_request_bytes
        self.max_requests_per_second = limits.max_requests_per_second
        self.max_requests_in_flight = limits.max_requests_in_flight
        shortest_s = min(limits.idle_timeout_s, limits.half_request_timeout_s, limits.handshake_timeout_s)
        self._sweep_interval_s = min(shortest_s / 4, MAX_SWEEP_INTERVAL_S)
        if self._sweep is not None and not self._is_closed:
            self._sweep.cancel()
            self._sweep = self.loop.call_later(self._sweep_interval_s, self._close_idle)
            self._resume_waiting()

    async def listen(
        self, host: str, port: int, bound: socket.socket | None = None, listener: Listener = PLAINTEXT
    ) -> tuple[str, int]:
        """Start to accept; return the address, with the port that the system chose if `port` is 0. `bound` is a socket
        that has the address already (`reserve`). May be called for several addresses."""
        sockets = [bound] if bound is not None else await reserve_all(host, port)
        for each in sockets:
            each.listen(BACKLOG)
        acceptors = [Acceptor(self, listener, each) for each in sockets]
        self._acceptors += acceptors
        if self._sweep is None:
            self._sweep = self.loop.call_later(self._sweep_interval_s, self._close_idle)
            self.address = acceptors[0].address
        return acceptors[0].address

    async def close(self) -> None:
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close("server_stopped")
        self.events.flush()
        await asyncio.sleep(0)

    def stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()

    def connections(self) -> list[Connection]:
        return list(self._connections)

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def is_quiet(self) -> bool:
        return all(connection.is_idle for connection in self._connections)

    # Called by connections

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def admit(self, host: str, listener: Listener) -> bool:
        """Whether one more connection from this address may exist. It has its place from here on."""
        if self._is_closed:
            return False
        if (reason := self._lack(host, listener)) is not None:
            self.events.log("connection_refused", peer=host, reason=reason)
            return False
        self.places += 1
        self._per_ip[host] += 1
        self._per_listener[listener] += 1
        return True

    def _lack(self, host: str, listener: Listener) -> str | None:
        """What one more connection would be too many for, where no stranger could make room."""
        limits, own = self._limits, self._strangers.get(listener, _NOBODY)
        everywhere = (own, *self._strangers.values())
        if self.places >= limits.max_connections and not any(each.close_one_for(host) for each in everywhere):
            return "max_connections"
        if self._per_ip[host] >= limits.max_connections_per_ip and not any(
            each.close_one_of(host) for each in everywhere
        ):
            return "max_connections_per_ip"
        if self._per_listener[listener] >= listener.max_connections and not own.close_one_for(host):
            return "max_connections of the listener"
        return None

    def expects(self, task: "asyncio.Task[None]", host: str, listener: Listener) -> None:
        """A connection is being set up by this task, which is cancelled if its place is needed."""
        self._strangers.setdefault(listener, Strangers()).add(task, host, task.cancel)

    def no_longer_expects(self, task: "asyncio.Task[None] | None", listener: Listener) -> None:
        self._strangers.get(listener, _NOBODY).discard(task)

    def release_place(self, host: str, listener: Listener) -> None:
        """A connection that was admitted is gone, or never was made."""
        self.places -= 1
        assert self.places >= 0, "no more places are given back than were taken"
        self._per_listener[listener] -= 1
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]

    def joins(self, connection: Connection) -> bool:
        """Whether a connection that was made may stay: it may have been accepted as the server was closed."""
        if self._is_closed:
            return False
        self._connections.add(connection)
        self.traffic.connection_opened()
        if not connection.is_trusted:
            strangers = self._strangers.setdefault(connection.listener, Strangers())
            strangers.add(connection, connection.peer_host, connection.make_room)
        return True

    def trusts(self, connection: Connection, held_bytes: int) -> None:
        """The client has proven who it is, and has this much memory for requests that are not complete."""
        self._strangers.get(connection.listener, _NOBODY).discard(connection)
        self._strangers_bytes -= held_bytes

    def forget(self, connection: Connection) -> None:
        self.release_place(connection.peer_host, connection.listener)
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        if connection.listener.tls is not None:
            self._freed_memory.left_by_connection()
        self._strangers.get(connection.listener, _NOBODY).discard(connection)
        self._short_of_memory.discard(connection)
        self.traffic.connection_closed()

    def hold_bytes(self, connection: Connection, size: int) -> bool:
        """Count memory of a request; True if its connection must pause until others have released memory."""
        self._held_bytes += size
        if self._held_bytes <= self._limits.request_memory_bytes:
            return False
        self._short_of_memory.add(connection)
        return True

    def hold_bytes_of_stranger(self, size: int) -> bool:
        """Count memory of a client that has not proven who it is, or give it back; False if such clients have more than
        their share."""
        self._strangers_bytes += size
        assert self._strangers_bytes >= 0, "strangers give back no more memory than they held"
        return size <= 0 or self._strangers_bytes <= self._limits.request_memory_bytes // STRANGERS_SHARE

    def release_bytes(self, size: int) -> None:
        self._held_bytes -= size
        assert self._held_bytes >= 0, "no more memory is given back than was held"
        self._resume_waiting()

    def _resume_waiting(self) -> None:
        if self._short_of_memory and self._held_bytes <= self._limits.request_memory_bytes:
            waiting, self._short_of_memory = self._short_of_memory, set()
            for connection in waiting:
                connection.resume("memory")

    def _close_idle(self) -> None:
        self._sweep = self.loop.call_later(self._sweep_interval_s, self._close_idle)
        self.events.flush()
        now = self.loop.time()
        if self._freed_memory.is_worth_it(now):
            self.loop.run_in_executor(None, self._freed_memory.give_back)
        for connection in list(self._connections):
            started = connection.frame_started
            is_late = started is not None and now - started > self._limits.half_request_timeout_s
            if is_late and not connection.is_throttled:
                connection.close("half_request", "a started request did not arrive in time")
            elif not connection.is_trusted and now - connection.opened_at > self._limits.handshake_timeout_s:
                connection.close("no_handshake")
            elif connection.is_idle and now - connection.last_active > self._limits.idle_timeout_s:
                connection.close("idle_connection")


_NOBODY: Final = Strangers()


async def reserve(host: str, port: int) -> socket.socket:
    """A socket that has the address, and refuses connections until a server listens on it. Raises OSError, which names
    the address."""
    family, address = (await _resolved(host, port))[0]
    return _bound(family, address)


async def reserve_all(host: str, port: int) -> list[socket.socket]:
    """As `reserve`, for every address that the name of the host stands for: localhost is 127.0.0.1 and ::1. An address
    that this machine does not have is left out, unless it is the only one."""
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in await _resolved(host, port):
            try:
                taken = bound[0].getsockname()[1] if bound else port
                bound.append(_bound(family, (address[0], taken, *address[2:]), leaves_ipv4=True))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
        if not bound and missing is not None:
            raise missing
    except BaseException:
        for each in bound:
            each.close()
        raise
    return bound


async def _resolved(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bound(family: socket.AddressFamily, address: tuple[Any, ...], *, leaves_ipv4: bool = False) -> socket.socket:
    """`leaves_ipv4`: a socket for all IPv6 addresses does not take those of IPv4, too."""
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if leaves_ipv4 and family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"{error.strerror} {address[:2]}") from error
    except BaseException:
        bound.close()
        raise
    return bound
