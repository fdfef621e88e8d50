"""A server with TLS on the test's event loop, which says after its clients, and clients of it."""

import asyncio
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from headwater.transport.connection import Answer, Connection
from headwater.transport.listener import Listener
from headwater.transport.server import Server, ServerLimits
from headwater.transport.tls import ClientCertificates
from headwater.transport.tls_reload import ReloadedTls
from tests.support.certificates import Authority
from tests.transport.scripted_protocol import one_kind

LARGE_BYTES = 8 * 1024 * 1024
RUNNERS = [asyncio.run, uvloop.run]
Run = Callable[[Coroutine[Any, Any, None]], None]


class Traffic:
    def __init__(self) -> None:
        self.open = 0
        self.bad: Counter[str] = Counter()

    def connection_opened(self) -> None:
        self.open += 1

    def connection_closed(self) -> None:
        self.open -= 1

    def bytes_in(self, count: int) -> None: ...

    def bytes_out(self, count: int) -> None: ...

    def bad_request(self, event: str) -> None:
        self.bad[event] += 1


class Served:
    """A server that says after the client, closes behind `bye`, and answers `large` with many pieces."""

    def __init__(self, authority: Authority, limits: ServerLimits) -> None:
        self.authority = authority
        self.traffic = Traffic()
        self.server = Server(self.handle, limits, self.traffic, one_kind)
        self.certificates: list[bytes | None] = []

    def handle(self, connection: Connection, frame: bytearray) -> Answer:
        self.certificates.append(connection.peer_certificate)
        if frame == b"bye":
            connection.close_after_output("said_good_bye")
        if frame == b"large":
            return [memoryview(bytes([number]) * (LARGE_BYTES // 8)) for number in range(8)]
        return [frame]

    def context(self, *, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.file)
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context

    async def connect(self, context: ssl.SSLContext | None = None) -> "Talk":
        host, port = self.server.address
        context = context or self.context()
        return Talk(*await asyncio.open_connection(host, port, ssl=context, server_hostname="localhost"))


class Talk:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, text: bytes) -> bytes:
        self.writer.write(struct.pack(">i", len(text)) + text)
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def close(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def served(
    directory: Path,
    *,
    clients: ClientCertificates = ClientCertificates.NONE,
    limits: ServerLimits | None = None,
    examine: Callable[[Connection], None] | None = None,
) -> AsyncIterator[tuple[Served, ReloadedTls]]:
    authority = Authority.create(directory)
    tls = await ReloadedTls.open("clients", authority.server_files(clients=clients))
    serving = Served(authority, limits or ServerLimits())
    await serving.server.listen("127.0.0.1", 0, listener=Listener(name="clients", tls=tls, examine=examine))
    async with asyncio.timeout(60):
        try:
            yield serving, tls
        finally:
            await serving.server.close()
