"""A server that is closed leaves no connection behind, not even one that is accepted in that very turn of the loop."""

import asyncio
import socket

from headwater.transport.connection import Connection
from headwater.transport.listener import PLAINTEXT
from headwater.transport.server import Server, ServerLimits
from tests.transport.scripted_protocol import NoTraffic, Scripted, one_kind


def test_a_connection_that_comes_as_the_server_closes_is_cut_off() -> None:
    async def scenario() -> None:
        server = Server(Scripted().handle, ServerLimits(), NoTraffic(), kind_of=one_kind)
        await server.listen("127.0.0.1", 0)
        client, accepted = socket.socketpair()
        await server.close()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(lambda: Connection(server, PLAINTEXT, "local"), accepted)
        assert transport.is_closing()
        client.setblocking(False)
        async with asyncio.timeout(60):
            assert await loop.sock_recv(client, 1) == b""
        client.close()

    asyncio.run(scenario())
