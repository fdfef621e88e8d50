"""Which addresses a server has when it listens under a name."""

import asyncio
import socket

import pytest

from headwater.transport import server as server_module
from headwater.transport.ports import free_port
from headwater.transport.server import Server, ServerLimits, reserve_all
from tests.transport.scripted_protocol import NoTraffic, one_kind


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("port", [0, None])
def test_a_name_with_several_addresses_is_served_on_all_of_them(
    port: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolved(host: str, port: int) -> object:
        return [(socket.AF_INET, (address, port)) for address in ("127.0.0.1", "127.0.0.2")]

    monkeypatch.setattr(server_module, "_resolved", resolved)

    async def main() -> None:
        server = Server(lambda connection, frame: [frame], ServerLimits(), NoTraffic(), one_kind)
        _, taken = await server.listen("both.example.com", free_port() if port is None else port)
        for address in ("127.0.0.1", "127.0.0.2"):
            reader, writer = await asyncio.open_connection(address, taken)
            writer.write(b"\x00\x00\x00\x01x")
            assert await reader.readexactly(5) == b"\x00\x00\x00\x01x"
            writer.close()
        await server.close()

    asyncio.run(main())


def test_an_address_that_the_machine_does_not_have_is_left_out_unless_it_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = ["192.0.2.1", "127.0.0.1"]

    async def resolved(host: str, port: int) -> object:
        return [(socket.AF_INET, (address, port)) for address in addresses]

    monkeypatch.setattr(server_module, "_resolved", resolved)

    async def main() -> None:
        (bound,) = await reserve_all("example.com", 0)
        assert bound.getsockname()[0] == "127.0.0.1"
        bound.close()
        addresses.pop()
        with pytest.raises(OSError, match=r"192\.0\.2\.1"):
            await reserve_all("example.com", 0)

    asyncio.run(main())


def test_a_taken_address_is_named() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match=r"\('127\.0\.0\.1', \d+\)"):
            await reserve_all(*other.getsockname())

    asyncio.run(main())


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_localhost_is_served_on_both_kinds_of_addresses() -> None:
    async def main() -> None:
        bound = await reserve_all("localhost", 0)
        assert {each.family for each in bound} <= {socket.AF_INET, socket.AF_INET6}
        assert len({each.getsockname()[1] for each in bound}) == 1
        for each in bound:
            each.close()

    asyncio.run(main())
