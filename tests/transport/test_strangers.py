"""Who is given up for a new connection, and whose turn it is."""

import asyncio

from headwater.transport.connection import Answer, Connection
from headwater.transport.listener import Listener
from headwater.transport.server import Server, ServerLimits
from headwater.transport.strangers import Strangers
from headwater.transport.turnstile import Turnstile
from tests.support.eventually import until
from tests.transport.scripted_protocol import NoTraffic, one_kind


class Gate:
    """Connections by the names of their addresses and a number: a1, a2, b1."""

    def __init__(self, *names: str) -> None:
        self.strangers = Strangers()
        self.closed: list[str] = []
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        self.strangers.add(name, name[0], lambda: self.closed.append(name))


def test_the_oldest_is_given_up() -> None:
    gate = Gate("a1", "b1", "c1")
    assert gate.strangers.close_one_for("d") and gate.strangers.close_one_for("d")
    assert gate.closed == ["a1", "b1"] and len(gate.strangers) == 1


def test_an_address_with_more_than_its_share_gives_up_its_own() -> None:
    gate = Gate("a1", "b1", "b2", "b3", "b4")
    for number in range(5, 9):
        assert gate.strangers.close_one_for("b")
        gate.add(f"b{number}")
    assert gate.closed == ["b1", "b2", "b3", "b4"]


def test_a_flood_from_a_few_addresses_closes_no_other_that_is_quick() -> None:
    """A client is a stranger for a moment, while a hundred others come."""
    gate = Gate(*(f"{host}{number}" for number in range(100) for host in "abc"))
    gate.add("g1")
    for number in range(100, 200):
        for host in "abc":
            assert gate.strangers.close_one_for(host)
            gate.add(f"{host}{number}")
    assert "g1" not in gate.closed and len(gate.strangers) == 301


def test_a_client_that_has_proven_itself_is_not_given_up() -> None:
    gate = Gate("a1")
    gate.strangers.discard("a1")
    gate.strangers.discard("a1")
    assert not gate.strangers.close_one_for("a") and not gate.strangers.close_one_of("a")
    assert gate.closed == []


def test_addresses_take_turns_and_one_passes_at_each_turn_of_the_loop() -> None:
    async def main() -> None:
        turnstile, passed, turns = Turnstile(asyncio.get_running_loop()), list[str](), list[int]()

        async def pass_through(host: str) -> None:
            await turnstile.passed(host)
            passed.append(host)
            turns.append(turn)

        tasks = [asyncio.create_task(pass_through(host)) for host in "aaaabac"]
        tasks[1].cancel()
        turn = 0
        while not all(task.done() for task in tasks):
            turn += 1
            await asyncio.sleep(0)
        assert passed == ["a", "b", "c", "a", "a", "a"]
        assert len(set(turns)) == len(turns)
        tasks = [asyncio.create_task(pass_through(host)) for host in "aaad"]
        await asyncio.gather(*tasks)
        assert passed[6:] == ["d", "a", "a", "a"], "one that was not seen yet goes first"

    asyncio.run(main())


def test_a_client_that_has_not_logged_in_makes_room_and_one_that_has_does_not() -> None:
    def handle(connection: Connection, frame: bytearray) -> Answer:
        connection.trust()
        return [frame]

    async def main() -> None:
        server = Server(handle, ServerLimits(max_connections=2), NoTraffic(), one_kind)
        address = await server.listen("127.0.0.1", 0, listener=Listener(name="asks", asks_who=True))
        client, silent = [await asyncio.open_connection(*address) for _ in range(2)]
        client[1].write(b"\0\0\0\1x")
        assert await client[0].readexactly(5) == b"\0\0\0\1x"
        other = await asyncio.open_connection(*address)
        other[1].write(b"\0\0\0\1y")
        assert await silent[0].read() == b"", "it has made room"
        assert await other[0].readexactly(5) == b"\0\0\0\1y"
        refused = await asyncio.open_connection(*address)
        assert await refused[0].read() == b"", "there is no stranger left"
        client[1].write(b"\0\0\0\1z")
        assert await client[0].readexactly(5) == b"\0\0\0\1z"
        for _, writer in (client, silent, other, refused):
            writer.close()
        await until(lambda: server.places == 0)
        await server.close()

    asyncio.run(main())
