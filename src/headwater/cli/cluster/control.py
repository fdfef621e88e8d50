"""Orders from other commands to the process that runs a local cluster: one line of JSON each way, over a socket in the
cluster's directory that only its owner may use.

    {"do": "add", "roles": "broker", "rack": null}      ->  {"said": "Added node 4 at 127.0.0.1:9095."}
    {"do": "restart", "name": "2"}                      ->  {"problem": "..."}
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from headwater.cli.output import CommandFailed

SOCKET: Final = "control.sock"
ANSWER_WITHIN_S: Final = 90.0
MAX_LINE_BYTES: Final = 4096

Carry = Callable[[Mapping[str, Any]], Awaitable[str]]
"""Carries out an order; returns a sentence that says what was done. Raises CommandFailed."""


@asynccontextmanager
async def taking_orders(directory: Path, carry: Carry) -> AsyncIterator[None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):
            answer = await _answer(await reader.readline(), carry)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    with _reachable(directory) as path:
        Path(path).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        earlier = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(earlier)
        server = await asyncio.start_unix_server(serve, sock=listener, limit=MAX_LINE_BYTES)
        try:
            yield
        finally:
            server.close()
            Path(path).unlink(missing_ok=True)


def order(directory: Path, **what: Any) -> str:
    """Send an order; returns a sentence about what was done. Raises CommandFailed, also if no cluster runs there."""
    with _reachable(directory) as path, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_WITHIN_S)
        try:
            connection.connect(path)
            connection.sendall(json.dumps(what).encode() + b"\n")
            line = connection.makefile("rb").readline(MAX_LINE_BYTES)
            answer = json.loads(line)
        except (OSError, ValueError) as error:
            raise CommandFailed(
                f"The cluster in {directory} does not run.", f"Start it with `headwater cluster up --data {directory}`."
            ) from error
    if "problem" in answer:
        raise CommandFailed(str(answer["problem"]))
    return str(answer["said"])


async def _answer(line: bytes, carry: Carry) -> dict[str, str]:
    try:
        what = json.loads(line)
        if not isinstance(what, dict):
            raise ValueError("an order is an object")
        return {"said": await carry(what)}
    except CommandFailed as problem:
        return {"problem": str(problem)}
    except ValueError as error:
        return {"problem": f"The order cannot be read: {error}."}


@contextmanager
def _reachable(directory: Path) -> Iterator[str]:
    """A path to the socket that is short enough for an address, however deep the directory is."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CommandFailed(f"There is no cluster in {directory}: {error.strerror}.") from error
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)
