"""Every field of every request that is served, with every value that makes no sense: no handler fails. What the schema
does not allow is refused by the codec, the rest is answered, and each answer is one that a client can read."""

import asyncio
import contextlib
import gc
import itertools
import logging
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.api import Api
from headwater.broker.dispatch import load_handlers
from headwater.broker.server import Broker
from headwater.logs.events import LINES_PER_SECOND
from headwater.model.errors import ErrorCode
from headwater.testing.fakes.files import MemoryFiles
from headwater.wire.api_keys import ApiKey
from headwater.wire.codec import struct_reader
from headwater.wire.cursor import Cursor, MalformedRequest
from headwater.wire.message_classes import response_class
from headwater.wire.requests import MAX_RESPONSE_ELEMENTS
from headwater.wire.schema import request_schema, response_schema
from tests.broker.handlers.hostile_scene import Scene
from tests.broker.queues.share_members import on_loop
from tests.broker.two_nodes import two_nodes
from tests.support.eventually import until
from tests.support.local_broker import Client, running
from tests.support.log_lines import own_lines
from tests.wire.hostile_messages import Good, Place, body, doubled_tags, good_message, legal_values, null_bodies, places

AT_ONCE = 40
"""Requests under way. Some wait for what never comes: a rebalance, a record."""
PATIENCE_S = 0.15
"""After that the next request is sent; what happens to this one later is in the log, too."""
FAILED = ErrorCode.UNKNOWN_SERVER_ERROR
APIS = sorted((entry.api for entry in load_handlers().values()), key=lambda api: api.key)


@dataclass(frozen=True, slots=True)
class Request:
    api: Api
    version: int
    what: str
    body: bytes
    is_legal: bool
    """The schema allows it, so it is answered."""

    def __str__(self) -> str:
        return f"{self.api.name} {self.version} with {self.what}"


def hostile_requests(api: Api, version: int, good: Good) -> Iterator[Callable[[], Request]]:
    """To be called for the request, which is not made otherwise."""
    schema = request_schema(api.key, version)
    message = good_message(api.key, version, good)

    def legal(place: Place, value: Any) -> Request:
        data = body(api.key, version, place.put(message, value))
        return Request(api, version, f"{place} = {value!r:.60}", data, True)

    for place in places(schema):
        for value in legal_values(place, place.get(message)):
            yield partial(legal, place, value)
    for place, data in null_bodies(api.key, version, good):
        yield partial(Request, api, version, f"null in {place}", data, False)
    twice = doubled_tags(api.key, version, good)
    if twice is not None:
        yield partial(Request, api, version, "a tagged field twice", twice, False)
    if schema.fields:
        yield partial(Request, api, version, "an end too early", body(api.key, version, message)[:-1], False)


async def send(broker: Broker, request: Request) -> None:
    api_key, version = request.api.key, request.version
    reader, writer = await asyncio.open_connection(*broker.address)
    schema = request_schema(api_key, version)
    frame = struct.pack(">hhih", api_key, version, 5, -1) + bytes(schema.is_flexible) + request.body
    writer.write(struct.pack(">i", len(frame)) + frame)
    try:
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
    except TimeoutError:
        return  # it waits for something, until its client goes away
    except (asyncio.IncompleteReadError, ConnectionError):
        return  # refused, or acks=0
    finally:
        writer.close()
    assert request.is_legal, f"{request} was answered"
    answered = response_schema(api_key, version)
    cursor = Cursor(answer, 5 if answered.is_flexible and api_key != ApiKey.API_VERSIONS else 4)
    cursor.elements_left = MAX_RESPONSE_ELEMENTS
    try:
        struct_reader(answered, response_class(api_key))(cursor)
    except MalformedRequest as error:
        raise AssertionError(f"the answer to {request} cannot be read: {error}") from None
    assert cursor.position == len(answer), f"the answer to {request} has bytes left over"


async def attack(broker: Broker, requests: Iterator[Request]) -> None:
    """Send them all, AT_ONCE at a time."""

    async def work() -> None:
        for each in requests:
            await send(broker, each)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


def chosen(api: Api, good: Good, part: int) -> Iterator[Request]:
    """Everything in the lowest and the highest version, and of those between every `part`th request."""
    for version in range(api.min_version, api.max_version + 1):
        step = 1 if version in (api.min_version, api.max_version) else part
        for make in itertools.islice(hostile_requests(api, version, good), version % step, None, step):
            yield make()


@asynccontextmanager
async def no_failures(caplog: pytest.LogCaptureFixture) -> AsyncIterator[list[Broker]]:
    """Brokers that are put into the list are judged at the end."""
    caplog.set_level(logging.ERROR)
    unretrieved: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unretrieved.append(context))
    judged: list[Broker] = []
    yield judged
    gc.collect()
    for broker in judged:
        assert not {api: count for (api, code), count in broker.metrics.errors.items() if code == FAILED}
    assert not own_lines(caplog)
    assert not unretrieved


async def attack_with_all(directory: Path, caplog: pytest.LogCaptureFixture, part: int) -> None:
    async with no_failures(caplog) as judged, running(directory, MemoryFiles()) as (broker, client):
        judged.append(broker)
        for api in APIS:
            scene = await Scene.arranged(broker, client, api.name)
            await attack(broker, chosen(api, scene.good, part))


@on_loop
async def test_no_handler_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await attack_with_all(tmp_path, caplog, part=10)


@on_loop
async def test_no_handler_of_a_cluster_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The controller gets one half, the other node the other."""
    async with no_failures(caplog) as judged, two_nodes(tmp_path) as nodes:
        judged += nodes
        await until(lambda: all(node.cluster_nodes.controller_id in (1, 2) for node in nodes))
        for turn, node in enumerate(nodes):
            client = await Client.connect(node)
            for api in APIS:
                scene = await Scene.bare(node, client)
                newest = hostile_requests(api, api.max_version, scene.good)
                await attack(node, (make() for make in itertools.islice(newest, turn, None, 2)))
            client.close()


@pytest.mark.slow
@on_loop
async def test_no_handler_fails_in_any_version(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await attack_with_all(tmp_path, caplog, part=1)


@on_loop
async def test_hostile_frames_are_counted_and_cost_a_few_lines_of_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headwater")
    hostile = struct.pack(">ihhihi", 14, 3, 1, 7, -1, -5)
    async with running(tmp_path, MemoryFiles()) as (broker, _):
        started = asyncio.get_running_loop().time()
        for _ in range(100):
            reader, writer = await asyncio.open_connection(*broker.address)
            writer.write(hostile)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        seconds = asyncio.get_running_loop().time() - started
        assert broker.metrics.bad_requests == {"bad_request": 100}
        lines = sum(line.startswith("bad_request") for line in own_lines(caplog))
        assert 0 < lines <= LINES_PER_SECOND * (int(seconds) + 2)
