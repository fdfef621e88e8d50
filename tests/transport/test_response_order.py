"""Responses leave in the order of their requests, whatever is ready first; and a request begins when those before it
are answered, if they are not of its kind."""

import asyncio
import contextlib
import gc
import logging
import struct
from typing import Any

import pytest

from headwater.transport.connection import CloseConnection, Promise
from headwater.transport.server import KindOf, Server, ServerLimits
from tests.support.eventually import rests, tasks_run, until
from tests.support.log_lines import own_lines
from tests.transport.scripted_protocol import NoTraffic, Scripted, one_kind


def vowels_overlap(frame: bytearray) -> str | None:
    return "vowel" if frame[:1].lower() in b"aeiou" else None


def framed(*names: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(name)) + name for name in names)


async def converse(
    script: Scripted, limits: ServerLimits, requests: list[bytes], finish: list[bytes], kind_of: KindOf = one_kind
) -> list[bytes]:
    """Send all requests; when the first `finish` have started, end them in that order; return the responses."""
    server = Server(script.handle, limits, NoTraffic(), kind_of=kind_of)
    host, port = await server.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(framed(*requests))
    async with asyncio.timeout(60):
        for name in finish:
            while name not in script.outcomes:
                await script.started.get()
            script.outcomes[name].set_result(None)
            await asyncio.sleep(0)
        responses = [
            await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0]) for _ in requests
        ]  # fmt: skip
    assert server.held_bytes == 0
    writer.close()
    await server.close()
    return responses


def test_a_response_that_is_ready_waits_for_those_before_it() -> None:
    async def main() -> None:
        requests = [b"a", b"B", b"c", b"D", b"e"]
        assert await converse(Scripted(), ServerLimits(), requests, [b"e", b"c", b"a"]) == requests

    asyncio.run(main())


def test_a_request_that_waited_for_memory_is_answered_behind_the_one_that_had_it() -> None:
    async def main() -> None:
        requests = [b"a" * 100, b"B", b"C", b"d" * 200, b"E"]
        limits = ServerLimits(request_memory_bytes=50)
        assert await converse(Scripted(), limits, requests, [b"a", b"d"]) == requests

    asyncio.run(main())


def test_requests_wait_when_too_many_are_unanswered() -> None:
    async def main() -> None:
        requests = [bytes([letter]) for letter in b"abcdefgh"]
        script = Scripted()
        names = [*requests]
        assert await converse(script, ServerLimits(max_requests_in_flight=2), requests, names) == requests

    asyncio.run(main())


def test_a_request_of_another_kind_begins_when_all_before_it_are_answered() -> None:
    async def main() -> None:
        script = Scripted()
        server = Server(script.handle, ServerLimits(), NoTraffic(), kind_of=vowels_overlap)
        reader, writer = await asyncio.open_connection(*await server.listen("127.0.0.1", 0))
        writer.write(framed(b"a", b"e", b"b", b"i", b"C", b"o"))
        seen = bytearray()

        async def start(count: int) -> bytes:
            async with asyncio.timeout(60):
                while len(seen) < count:
                    seen.extend(await script.started.get())
            await tasks_run()
            assert script.started.empty()
            return bytes(seen)

        assert await start(2) == b"ae"
        script.outcomes[b"e"].set_result(None)
        assert await start(2) == b"ae"
        script.outcomes[b"a"].set_result(None)
        assert await start(3) == b"aeb"
        script.outcomes[b"b"].set_result(None)
        assert await start(4) == b"aebi"
        script.outcomes[b"i"].set_result(None)
        assert await start(6) == b"aebiCo"
        script.outcomes[b"o"].set_result(None)
        async with asyncio.timeout(60):
            assert await reader.readexactly(30) == framed(b"a", b"e", b"b", b"i", b"C", b"o")
        assert server.held_bytes == 0
        writer.close()
        await server.close()

    asyncio.run(main())


def test_requests_that_wait_for_their_turn_are_counted_in_memory_and_number() -> None:
    async def main() -> None:
        script = Scripted()
        server = Server(script.handle, ServerLimits(max_requests_in_flight=4), NoTraffic(), kind_of=lambda _: None)
        reader, writer = await asyncio.open_connection(*await server.listen("127.0.0.1", 0))
        size, count = 60_000, 100
        writer.write(framed(*(bytes([97 + number % 26]) * size for number in range(count))))
        async with asyncio.timeout(60):
            await script.started.get()
            await until(lambda: server.held_bytes >= 5 * size)
            assert await rests(lambda: server.held_bytes) < 12 * size, (
                "what one read brings beyond the limit, and no more"
            )
            for number in range(count):
                name = bytes([97 + number % 26])
                while name not in script.outcomes:
                    await script.started.get()
                script.outcomes.pop(name).set_result(None)
                assert await reader.readexactly(4 + size) == framed(name * size)
        assert server.held_bytes == 0
        writer.close()
        await server.close()

    asyncio.run(main())


def test_a_client_that_goes_leaves_no_memory_behind() -> None:
    async def main() -> None:
        script = Scripted()
        server = Server(script.handle, ServerLimits(), NoTraffic(), kind_of=lambda _: None)
        _, writer = await asyncio.open_connection(*await server.listen("127.0.0.1", 0))
        writer.write(framed(b"a" * 100, b"b" * 100) + b"\0\0\0\x64half")
        async with asyncio.timeout(60):
            await script.started.get()
            writer.transport.abort()
            await until(lambda: server.is_quiet and not server.held_bytes)
        assert script.started.empty()
        await server.close()

    asyncio.run(main())


def test_what_is_promised_and_fails_to_render_closes_the_connection() -> None:
    async def main() -> None:
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def render(_: "asyncio.Future[None]") -> list[bytes]:
            raise ValueError("a mistake of ours")

        is_asked = asyncio.Event()

        def handle(*_: object) -> Promise:
            is_asked.set()
            return Promise(outcome, render)

        server = Server(handle, ServerLimits(), NoTraffic(), kind_of=one_kind)
        reader, writer = await asyncio.open_connection(*await server.listen("127.0.0.1", 0))
        writer.write(framed(b"a"))
        await is_asked.wait()
        outcome.set_result(None)
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        await server.close()

    asyncio.run(main())


def test_what_was_answered_before_a_bad_request_has_left() -> None:
    async def main() -> None:
        server = Server(Scripted().handle, ServerLimits(), NoTraffic(), kind_of=one_kind)
        reader, writer = await asyncio.open_connection(*await server.listen("127.0.0.1", 0))
        writer.write(framed(b"A", b"B", b"!", b"C"))
        async with asyncio.timeout(60):
            assert await reader.readexactly(10) == framed(b"A", b"B")
        writer.close()
        await server.close()

    asyncio.run(main())


def test_failures_behind_a_failure_are_neither_reported_nor_counted_again(caplog: pytest.LogCaptureFixture) -> None:
    class Counted(NoTraffic):
        refused = 0

        def bad_request(self, event: str) -> None:
            self.refused += 1

    async def refuse() -> list[bytes]:
        await asyncio.sleep(0)
        raise CloseConnection("no answer for this")

    async def fail_when_cancelled() -> list[bytes]:
        try:
            await asyncio.Event().wait()
        finally:
            raise CloseConnection("nor for this")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        unretrieved: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: unretrieved.append(context))
        traffic = Counted()
        answers = {b"a": refuse, b"b": fail_when_cancelled}
        server = Server(lambda _, frame: loop.create_task(answers[bytes(frame)]()), ServerLimits(), traffic, one_kind)
        reader, writer = await asyncio.open_connection(*await server.listen("127.0.0.1", 0))
        writer.write(framed(b"a", b"a", b"b", b"a"))
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        await until(lambda: server.is_quiet)
        await server.close()
        gc.collect()
        await asyncio.sleep(0)
        assert unretrieved == []
        assert traffic.refused == 1
        assert server.held_bytes == 0

    caplog.set_level(logging.INFO, "headwater")
    asyncio.run(main())
    assert sum(line.startswith("bad_request") for line in own_lines(caplog)) == 1
