"""Many client connections at once, each of which says something now and then.

Run as a process of its own, so that a thousand sockets do not share the measuring process: opens the connections,
prints how long that took, and keeps each of them asking for ApiVersions once a second until standard input ends."""

import argparse
import asyncio
import json
import sys
import time

from bench.process import API_VERSIONS_REQUEST

CONNECT_AT_ONCE = 50
ASK_INTERVAL_S = 1.0
LENGTH_BYTES = 4


async def converse(host: str, port: int, fraction: float, gate: asyncio.Semaphore, opened: asyncio.Event) -> None:
    async with gate:
        reader, writer = await asyncio.open_connection(host, port)
        await ask(reader, writer)
    opened.set()
    await asyncio.sleep(fraction * ASK_INTERVAL_S)  # spread over the second
    while True:
        await ask(reader, writer)
        await asyncio.sleep(ASK_INTERVAL_S)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(API_VERSIONS_REQUEST)
    length = await reader.readexactly(LENGTH_BYTES)
    await reader.readexactly(int.from_bytes(length, "big"))


async def hold(bootstrap: str, count: int) -> None:
    host, port = bootstrap.rsplit(":", 1)
    gate = asyncio.Semaphore(CONNECT_AT_ONCE)
    events = [asyncio.Event() for _ in range(count)]
    started_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        talking = [
            tasks.create_task(converse(host, int(port), at / count, gate, opened)) for at, opened in enumerate(events)
        ]
        for opened in events:
            await opened.wait()
        print(json.dumps({"open_s": time.monotonic() - started_s}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for task in talking:
            task.cancel()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("bootstrap")
    options.add_argument("count", type=int)
    chosen = options.parse_args()
    asyncio.run(hold(chosen.bootstrap, chosen.count))


if __name__ == "__main__":
    main()
