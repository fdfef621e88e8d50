"""One ZooKeeper session, asked from the event loop.

kazoo works in its own threads. Here its answers come back to the event loop, at most MAX_IN_FLIGHT exchanges are under
way at a time, and a request is given to kazoo only while there is a connection, so that these differ:

    Unavailable     no connection came in time; nothing was sent
    Interrupted     the connection broke while the request was out; ZooKeeper may have carried it out

Nothing is repeated here. kazoo connects again by itself, to one server after the other.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from headwater.logs.events import log_event
from headwater.metadata.store import Unavailable
from headwater.metadata.zookeeper.requests import Request
from headwater.metadata.zookeeper.url import ZookeeperAddress

MAX_IN_FLIGHT: Final = 50
MAX_TOGETHER: Final = 2
"""Requests in one exchange, of which MAX_IN_FLIGHT are under way. kazoo puts a byte for each request into a socket pair
that holds 278 on Linux, and blocks when it is full. Bytes of requests that a lost connection cancelled may still be
in it."""
MAX_WAITING: Final = 20_000
CONNECT_S: Final = 10.0
"""How long a call waits for a connection."""
RECONNECT_DELAYS_S: Final = (0.05, 1.0)
MIN_TIMEOUT_S: Final = 1.0

_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # what kazoo says of each lost connection is said here, once


class Interrupted(Exception):
    """The connection broke, and it is not known whether ZooKeeper carried the request out."""


class ZookeeperClient:
    """`on_change` of a subscriber is called on the event loop after each change of the connection's state."""

    def __init__(self, address: ZookeeperAddress, timeout_s: float) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._timeout_s = max(timeout_s, MIN_TIMEOUT_S)
        self._granted_s = self._timeout_s
        self._warnings = _LastWarning(_kazoo_log, {})
        self._kazoo = _kazoo_client(address, self._timeout_s, self._warnings)
        self._learn_what_is_granted()
        self._kazoo.add_listener(self._state_changed)
        self._in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._waiting = 0
        self._connected = asyncio.Event()
        self._is_expired = False
        self._is_closed = False
        self._subscribers: set[Callable[[], None]] = set()

    @classmethod
    async def open(cls, address: ZookeeperAddress, timeout_s: float) -> "ZookeeperClient":
        """Raises Unavailable when no server answers in time."""
        client = cls(address, timeout_s)
        try:
            await asyncio.to_thread(client._kazoo.start_async)
            await client._await_connection(client._loop.time() + CONNECT_S)
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def session_number(self) -> int:
        """What ZooKeeper calls the session, and writes on the nodes that belong to it."""
        number: int = self._kazoo.client_id[0] if self._kazoo.client_id is not None else 0
        return number

    @property
    def granted_timeout_s(self) -> float:
        """After how long a silence the server ends the session; it may grant less, or more, than was asked for."""
        return self._granted_s

    @property
    def is_expired(self) -> bool:
        """ZooKeeper has said that the session it began with has ended."""
        return self._is_expired

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self._subscribers.add(on_change)

    def unsubscribe(self, on_change: Callable[[], None]) -> None:
        self._subscribers.discard(on_change)

    async def ask(self, *requests: Request) -> list[Any]:
        """The answers to requests that are sent in this order, one after the other, without waiting between them.

        An answer may be a KazooException that says how things are, such as NoNodeError."""
        assert len(requests) <= MAX_TOGETHER, "an exchange is small"
        if self._waiting >= MAX_WAITING:
            raise Unavailable(f"{self._address}: {MAX_WAITING} requests are waiting already")
        self._waiting += 1
        connect_by = self._loop.time() + CONNECT_S
        try:
            async with self._in_flight:
                await self._await_connection(connect_by)
                answers = [self._send(request) for request in requests]
                # kazoo notices a dead connection within the session's time, and then answers all that it was given.
                # What it is given in that moment goes out with the next one, and is not waited for without end.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2 * self._granted_s + CONNECT_S):
                        return [_answer(answer) for answer in await asyncio.gather(*answers, return_exceptions=True)]
                raise Interrupted(f"{self._address} did not answer in time")
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the session, and its nodes with it, if ZooKeeper can be reached."""
        if self._is_closed:
            return
        self._is_closed = True
        self._connected.set()  # calls that wait for a connection find out that there will be none
        self._changed()
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        try:
            self._kazoo.stop()
            self._kazoo.close()
        except Exception as error:  # its thread is stuck in a connection attempt, and ends by itself
            log_event(
                "metadata_connection_not_closed", logging.WARNING, servers=self._address.servers, error=repr(error)
            )

    async def _await_connection(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._connected.wait()
                # kazoo's thread knows first.
                while not (self._kazoo.connected or self._is_closed):
                    self._connected.clear()
                    await self._connected.wait()
        except TimeoutError:
            reason = self._warnings.last or "no server answered"
            raise Unavailable(f"{self._address} cannot be reached within {CONNECT_S:g} s: {reason}") from None
        if self._is_closed:
            raise Unavailable(f"the connection to {self._address} is closed")

    def _send(self, request: Request) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = self._loop.create_future()

        def arrived(result: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop was closed before the store
                self._loop.call_soon_threadsafe(_resolve, answer, result)

        request(self._kazoo).rawlink(arrived)
        return answer

    def _state_changed(self, state: str) -> None:
        """Called by kazoo's thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._note_state, state, self._kazoo.client_state)

    def _note_state(self, state: str, reason: str) -> None:
        if self._is_closed:
            return
        if state == KazooState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
            log_event(
                "metadata_connection_lost", logging.WARNING, servers=",".join(self._address.servers), state=reason
            )
        if reason == KeeperState.EXPIRED_SESSION:
            self._is_expired = True
        self._changed()

    def _changed(self) -> None:
        for on_change in tuple(self._subscribers):
            on_change()

    def _learn_what_is_granted(self) -> None:
        """kazoo keeps the granted time to itself: a connection attempt returns two thirds of it, in milliseconds."""
        connection = self._kazoo._connection
        connect = connection._connect

        def connect_and_note(*arguments: Any) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = connect(*arguments)
            self._granted_s = read_timeout_ms * 1.5 / 1000
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connect_and_note


class _LastWarning(logging.LoggerAdapter[logging.Logger]):
    """kazoo tells only its log why there is no connection."""

    last = ""

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.last = str(msg) % args
        super().warning(msg, *args, **kwargs)


def _kazoo_client(address: ZookeeperAddress, timeout_s: float, log: _LastWarning) -> KazooClient:
    first_s, most_s = RECONNECT_DELAYS_S
    tls = address.tls
    return KazooClient(
        hosts=",".join(address.servers),
        timeout=timeout_s,
        logger=log,
        connection_retry=KazooRetry(max_tries=-1, delay=first_s, max_delay=most_s),
        auth_data=[("digest", address.login)] if address.login else None,
        default_acl=CREATOR_ALL_ACL if address.login else OPEN_ACL_UNSAFE,
        use_ssl=tls is not None,
        verify_certs=True,
        check_hostname=tls is not None,
        ca=str(tls.ca) if tls is not None and tls.ca is not None else None,
        certfile=str(tls.certificate) if tls is not None and tls.certificate is not None else None,
        keyfile=str(tls.key) if tls is not None and tls.key is not None else None,
    )


def _resolve(answer: "asyncio.Future[Any]", result: Any) -> None:
    if answer.done():
        return
    if result.exception is not None:
        answer.set_exception(result.exception)
    else:
        answer.set_result(result.value)


def _answer(answer: Any) -> Any:
    if isinstance(answer, ConnectionLoss | SessionExpiredError | OperationTimeoutError | SessionMovedError):
        raise Interrupted(type(answer).__name__) from answer
    if isinstance(answer, BaseException) and not isinstance(answer, KazooException):
        raise answer
    return answer
