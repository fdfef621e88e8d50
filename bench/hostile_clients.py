"""Clients that mean no good, as a process of its own: connections that are held open half-done, and floods.

Attacks go to loopback alone, are bounded in number and time, and end when standard input does. Options come as one line
of JSON on standard input. Says `ready` when what is to be held is held; at the end, what became of it, in JSON."""

import asyncio
import contextlib
import ipaddress
import itertools
import json
import socket
import ssl
import struct
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import uvloop

from headwater.wire.requests import write_request
from headwater.wire.typed.sasl_authenticate import SaslAuthenticateRequest
from headwater.wire.typed.sasl_handshake import SaslHandshakeRequest

OPEN_AT_ONCE = 200
FLOOD_AT_ONCE = 100
FAILED_LOGINS_PER_S = 1_000
FIRST_FRAME_BYTES = 64 * 1024
MOST_SECONDS = 120.0
PATIENCE_S = 20.0
"""For one step of an attacker."""
SENDS_S = 1.0


@dataclass(frozen=True, slots=True)
class Target:
    tls: tuple[str, int]
    """SASL_SSL."""
    plain: tuple[str, int]
    """SASL_PLAINTEXT."""
    count: int
    addresses: int
    """How many addresses of 127.0.0.0/8 the connections come from."""


class Attack:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.seen: Counter[str] = Counter()
        self._sources = itertools.cycle(str(ipaddress.IPv4Address("127.1.0.1") + at) for at in range(target.addresses))
        self._context = careless_context()
        self._hello = client_hello(self._context)

    async def connected(self, address: tuple[str, int]) -> socket.socket | None:
        sock = socket.socket()
        sock.setblocking(False)
        try:
            sock.bind((next(self._sources), 0))
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.get_running_loop().sock_connect(sock, address)
        except (OSError, TimeoutError) as error:
            self.seen[f"not connected: {type(error).__name__}"] += 1
            sock.close()
            return None
        self.seen["connected"] += 1
        return sock

    # Held open, half done

    async def silent(self) -> socket.socket | None:
        return await self.connected(self.target.tls)

    async def half_hello(self) -> socket.socket | None:
        return await self._opened(self.target.tls, self._hello[:100])

    async def whole_hello(self) -> socket.socket | None:
        """And nothing after it: the broker has done the expensive part."""
        return await self._opened(self.target.tls, self._hello)

    async def byte_a_second(self) -> socket.socket | None:
        return await self._opened(self.target.tls, self._hello[:1])

    async def silent_behind_handshake(self) -> socket.socket | None:
        """TLS is done, and no login follows. The client's own half of the session is kept, as small as it can be."""
        sock = await self.connected(self.target.tls)
        if sock is not None and await self._shakes_hands(sock) is None:
            self.seen["handshake refused"] += 1
        return sock

    async def announced_frame(self) -> socket.socket | None:
        return await self._opened(self.target.plain, struct.pack(">i", FIRST_FRAME_BYTES) + b"x")

    async def half_frame(self) -> socket.socket | None:
        frame = struct.pack(">i", FIRST_FRAME_BYTES) + bytes(FIRST_FRAME_BYTES - 1)
        return await self._opened(self.target.plain, frame)

    async def _opened(self, address: tuple[str, int], opening: bytes) -> socket.socket | None:
        sock = await self.connected(address)
        if sock is not None:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.get_running_loop().sock_sendall(sock, opening)
        return sock

    async def hold(self, open_one: Callable[[], Awaitable[socket.socket | None]], until: asyncio.Event) -> None:
        left, held = iter(range(self.target.count)), list[socket.socket]()

        async def open_some() -> None:
            for _ in left:
                sock = await open_one()
                if sock is not None:
                    held.append(sock)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(OPEN_AT_ONCE):
                tasks.create_task(open_some())
        print("ready", flush=True)
        position = 1
        while not until.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SENDS_S):
                    await until.wait()
            if open_one == self.byte_a_second:
                for sock in held:
                    with contextlib.suppress(OSError):
                        sock.send(self._hello[position : position + 1])
                position += 1
        self.seen["still open"] = sum(not is_closed(sock) for sock in held)
        for sock in held:
            sock.close()

    # Floods

    async def hello_flood(self) -> None:
        """Hellos, each of which costs the broker a signature, and the attacker nothing."""
        sock = await self._opened(self.target.tls, self._hello)
        if sock is not None:
            self.seen["answered" if await self._answers(sock) else "cut off"] += 1
            sock.close()

    async def oversized(self) -> None:
        await self._refused(self.target.plain, struct.pack(">i", 2**31 - 1) + bytes(1024))

    async def tls_on_plain(self) -> None:
        await self._refused(self.target.plain, self._hello)

    async def plain_on_tls(self) -> None:
        await self._refused(self.target.tls, write_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "x"))

    async def _refused(self, address: tuple[str, int], opening: bytes) -> None:
        sock = await self._opened(address, opening)
        if sock is not None:
            while await self._answers(sock):
                self.seen["answered"] += 1
            self.seen["cut off"] += 1
            sock.close()

    async def failed_plain_login(self) -> None:
        await self._failed_login("PLAIN", [b"\0bench\0not the password"])

    async def failed_scram_login(self) -> None:
        first = b"n,,n=bench,r=" + b"x" * 24
        await self._failed_login("SCRAM-SHA-512", [first, b"c=biws,r=" + b"x" * 24 + b",p=AAAA"])

    async def _failed_login(self, mechanism: str, tokens: list[bytes]) -> None:
        sock = await self.connected(self.target.plain)
        if sock is None:
            return
        requests: list[tuple[Any, int]] = [(SaslHandshakeRequest(mechanism=mechanism), 1)]
        requests += [(SaslAuthenticateRequest(auth_bytes=token), 1) for token in tokens]
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, TimeoutError):
            for request, version in requests:
                async with asyncio.timeout(PATIENCE_S):
                    await loop.sock_sendall(sock, write_request(request, version, 1, "x"))
                if not await self._answers(sock):
                    self.seen["cut off"] += 1
                    break
            else:
                self.seen["refused with an answer"] += 1
        sock.close()

    async def flood(self, one: Callable[[], Awaitable[None]], until: asyncio.Event, per_s: int | None) -> None:
        """As many as can be at once, or a number a second."""
        print("ready", flush=True)
        started_s, begun, limit = time.monotonic(), 0, asyncio.Semaphore(self.target.count)
        ended_s = started_s + MOST_SECONDS

        async def run() -> None:
            try:
                await one()
            finally:
                limit.release()

        async with asyncio.TaskGroup() as tasks:
            while not until.is_set() and time.monotonic() < ended_s:
                await limit.acquire()
                tasks.create_task(run())
                begun += 1
                due_s = started_s + begun / per_s if per_s else 0.0
                if (early_s := due_s - time.monotonic()) > 0 or begun % FLOOD_AT_ONCE == 0:
                    await asyncio.sleep(max(0.0, early_s))
        self.seen["a second"] = round(begun / (time.monotonic() - started_s))

    async def _answers(self, sock: socket.socket) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return bool(await asyncio.get_running_loop().sock_recv(sock, 4096))
        except (OSError, TimeoutError):
            return False

    async def _shakes_hands(self, sock: socket.socket) -> ssl.SSLObject | None:
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = self._context.wrap_bio(received, sent, server_hostname="localhost")
        loop = asyncio.get_running_loop()
        while True:
            try:
                with contextlib.suppress(ssl.SSLWantReadError):
                    session.do_handshake()
                    await loop.sock_sendall(sock, sent.read())
                    return session
                await loop.sock_sendall(sock, sent.read())
                async with asyncio.timeout(PATIENCE_S):
                    data = await loop.sock_recv(sock, 16_384)
            except (OSError, TimeoutError):
                return None
            if not data:
                return None
            received.write(data)


HELD = (
    "silent",
    "half_hello",
    "byte_a_second",
    "whole_hello",
    "silent_behind_handshake",
    "announced_frame",
    "half_frame",
)
FLOODS: dict[str, int | None] = {
    "hello_flood": None,
    "oversized": None,
    "tls_on_plain": None,
    "plain_on_tls": None,
    "failed_plain_login": FAILED_LOGINS_PER_S,
    "failed_scram_login": FAILED_LOGINS_PER_S,
}
"""With how many a second, if that is bounded."""


def careless_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def client_hello(context: ssl.SSLContext) -> bytes:
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(received, sent, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return sent.read()


def is_closed(sock: socket.socket) -> bool:
    """Whether the other side has closed it; what it said before is dropped."""
    try:
        while sock.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextlib.asynccontextmanager
async def until_standard_input_ends() -> AsyncIterator[asyncio.Event]:
    ended = asyncio.Event()

    async def read() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MOST_SECONDS):
                await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        ended.set()

    task = asyncio.create_task(read())
    yield ended
    await task


async def main(options: dict[str, Any]) -> None:
    name = options.pop("attack")
    target = Target(**{key: tuple(value) if isinstance(value, list) else value for key, value in options.items()})
    for host, _ in (target.tls, target.plain):
        assert ipaddress.ip_address(host).is_loopback, "attacks stay on this machine"
    attack = Attack(target)
    async with until_standard_input_ends() as ended:
        if name in HELD:
            await attack.hold(getattr(attack, name), ended)
        else:
            await attack.flood(getattr(attack, name), ended, FLOODS[name])
    print(json.dumps(attack.seen), flush=True)


if __name__ == "__main__":
    uvloop.run(main(json.loads(sys.stdin.readline())))
