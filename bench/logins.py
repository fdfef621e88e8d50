"""Many clients that log in and stay: how long that takes, and what they cost while they say nothing.

Run as a process of its own: opens the connections, prints how long that took, and holds them until standard input ends.
Each proves its password anew; what a client derives from it is kept, as clients keep it, because it would measure the
client. Options come as one line of JSON on standard input."""

import asyncio
import functools
import json
import os
import ssl
import struct
import sys
import time
from collections.abc import Mapping
from typing import Any

import uvloop

from headwater.client.exchange import Exchange
from headwater.security.sasl_client import PasswordLogin, SaslClient
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.scram import HASHING, ScramHashing

CONNECT_AT_ONCE = 16
NONCE_BYTES = 24
LENGTH = struct.Struct(">i")

derived = functools.lru_cache(maxsize=16)(HASHING.derive)


class Client:
    def __init__(self, bootstrap: str, settings: Mapping[str, str]) -> None:
        self._host, port = bootstrap.rsplit(":", 1)
        self._port = int(port)
        self._context: ssl.SSLContext | None = None
        self._login: SaslClient | None = None
        if settings:
            self._context = ssl.create_default_context(cafile=settings["ssl.ca.location"])
            login = PasswordLogin(settings["sasl.username"], settings["sasl.password"])
            mechanism = SaslMechanism(settings["sasl.mechanism"])
            self._login = SaslClient(mechanism, login, ScramHashing(derive=derived))

    async def connect(self) -> asyncio.StreamWriter:
        """A connection that has logged in. Raises OSError, NotLoggedIn."""
        host, context = self._host, self._context
        name = host if context is not None else None
        reader, writer = await asyncio.open_connection(host, self._port, ssl=context, server_hostname=name, limit=4096)
        steps = Exchange("logins", self._login, os.urandom(NONCE_BYTES)).handshake()
        frame: bytes | None = None
        try:
            while True:
                writer.write(next(steps) if frame is None else steps.send(frame))
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                frame = await reader.readexactly(length)
        except StopIteration:
            return writer


async def hold(options: Mapping[str, Any]) -> None:
    client = Client(options["bootstrap"], options["settings"])
    left = iter(range(options["count"]))
    writers: list[asyncio.StreamWriter] = []

    async def open_some() -> None:
        for _ in left:
            writers.append(await client.connect())  # noqa: PERF401

    started_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CONNECT_AT_ONCE):
            tasks.create_task(open_some())
    print(json.dumps({"seconds": time.monotonic() - started_s, "count": len(writers)}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for writer in writers:
        writer.transport.abort()


if __name__ == "__main__":
    uvloop.run(hold(json.loads(sys.stdin.readline())))
