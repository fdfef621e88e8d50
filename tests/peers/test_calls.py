"""Calls to the broker of another node: which nodes may call, what comes back, and what waits for what."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import StoreId
from headwater.model.replica import WrongStore
from headwater.peers import messages
from headwater.peers.calls import LateCalls
from headwater.peers.channel import ChannelOptions
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import NO_STORE, Call, PeerAddress
from headwater.peers.remote_node import RemoteNode
from headwater.peers.remote_store import RemoteStore
from headwater.peers.store_server import StoreServer
from headwater.wire.cursor import Cursor, MalformedRequest
from tests.peers.peer_nodes import IDENTITY, QUICK, SECRET, Counting, RawPeer, in_thread

ECHO, REFUSE, GARBLE, WAIT = range(1, 5)


class Broker:
    """The broker that is called."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()

    async def answer(self, kind: int, body: Cursor) -> bytes:
        if kind == REFUSE:
            raise RequestError(ErrorCode.NOT_COORDINATOR, "ask somebody else")
        if kind == GARBLE:
            raise MalformedRequest("what is that?")
        if kind == WAIT:
            await self.may_go_on.wait()
        return bytes(body.take(body.end - body.position))


@asynccontextmanager
async def served(answers: bool = True) -> AsyncIterator[tuple[Broker, PeerAddress]]:
    """A node without a store."""
    broker, calls = Broker(), LateCalls()
    server = StoreServer(None, IDENTITY, Counting(), on_call=calls)
    if answers:
        calls.begin(broker.answer)
    try:
        yield broker, PeerAddress(*await server.listen("127.0.0.1", 0))
    finally:
        await server.close()


@asynccontextmanager
async def remote(
    address: PeerAddress, secret: bytes = SECRET, options: ChannelOptions = QUICK
) -> AsyncIterator[RemoteNode]:
    node = RemoteNode(address, PeerIdentity.of(secret), options)
    try:
        yield node
    finally:
        node.close()


async def said(node: RemoteNode, kind: int, body: bytes = b"", connection_class: int = 0) -> bytes:
    answer = await node.call(kind, body, connection_class)
    return bytes(answer.take(answer.end - answer.position))


async def refused(node: RemoteNode, kind: int) -> RequestError:
    with pytest.raises(RequestError) as error:
        await node.call(kind, b"", 0)
    return error.value


def test_an_answer_is_bytes_or_an_error_of_the_other_node() -> None:
    async def scenario() -> None:
        async with served() as (_, address), remote(address) as node:
            assert await said(node, ECHO, b"hello") == b"hello"
            error = await refused(node, REFUSE)
            assert (error.code, error.message) == (ErrorCode.NOT_COORDINATOR, "ask somebody else")
            assert (await refused(node, GARBLE)).code is ErrorCode.INVALID_REQUEST
            assert await said(node, ECHO) == b"", "the connection goes on"

    asyncio.run(scenario())


def test_a_call_of_another_connection_class_does_not_wait() -> None:
    async def scenario() -> None:
        async with served() as (broker, address), remote(address) as node:
            waiting = asyncio.create_task(said(node, WAIT, b"slow", connection_class=1))
            behind = asyncio.create_task(said(node, ECHO, b"behind", connection_class=1))
            for _ in range(3):
                assert await said(node, ECHO, b"fast", connection_class=2) == b"fast"
            assert not waiting.done() and not behind.done()
            broker.may_go_on.set()
            assert (await waiting, await behind) == (b"slow", b"behind")

    asyncio.run(scenario())


def test_who_does_not_know_the_secret_is_not_answered() -> None:
    async def scenario() -> None:
        async with served() as (_, address), remote(address, b"another secret of a cluster") as node:
            assert (await refused(node, ECHO)).code is ErrorCode.NETWORK_EXCEPTION

            def stranger() -> None:
                peer = RawPeer(address)
                peer.send(messages.request(1, Call.ASK, 1, bytes.fromhex(NO_STORE), bytes([ECHO]))[4:])
                assert peer.is_closed()
                peer.close()

            await in_thread(stranger)

    asyncio.run(scenario())


def test_a_node_that_does_not_answer_fails_the_call_in_time() -> None:
    async def scenario() -> None:
        options = ChannelOptions(connect_timeout_s=5.0, call_timeout_s=0.1)
        async with served() as (broker, address), remote(address, options=options) as node:
            assert (await refused(node, WAIT)).code is ErrorCode.NETWORK_EXCEPTION
            broker.may_go_on.set()
            assert await said(node, WAIT, b"again") == b"again"

    asyncio.run(scenario())


def test_a_node_that_is_starting_says_so() -> None:
    async def scenario() -> None:
        async with served(answers=False) as (_, address), remote(address) as node:
            assert (await refused(node, ECHO)).code is ErrorCode.BROKER_NOT_AVAILABLE

    asyncio.run(scenario())


def test_a_node_without_a_store_has_none_to_call() -> None:
    async def scenario() -> None:
        async with served() as (_, address):
            store = RemoteStore(StoreId("1" * 32), address, IDENTITY, options=QUICK)
            with pytest.raises(WrongStore):
                await store.ping()
            store.close()

    asyncio.run(scenario())
