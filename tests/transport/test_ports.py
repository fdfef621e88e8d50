"""Ports of servers that come back: nobody else is given them meanwhile."""

import socket

import pytest

from headwater.transport import ports


def test_a_port_can_be_listened_on_and_is_not_one_that_connections_are_given() -> None:
    drawn = ports.free_ports(20)
    assert len(set(drawn)) == 20
    with socket.create_server((ports.HOST, drawn[0])) as server:
        given = set()
        for _ in range(50):
            with socket.create_connection(server.getsockname()) as client:
                given.add(client.getsockname()[1])
    assert max(drawn) < min(given)


def test_ports_in_a_row_are_all_free() -> None:
    first = ports.free_ports_in_a_row(5)
    assert all(ports.is_free(port) for port in range(first, first + 5))


def test_a_port_is_free_as_soon_as_its_server_is_gone_and_not_before() -> None:
    port = ports.free_port()
    with socket.create_server((ports.HOST, port)) as server:
        assert not ports.is_free(port)
        with socket.create_connection(server.getsockname()):
            ended, _ = server.accept()
            ended.close()
    assert ports.is_free(port)
    assert not ports.is_free(99_999)


def test_a_machine_without_a_free_port_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(port: int) -> socket.socket:
        raise OSError("taken")

    monkeypatch.setattr(ports, "_listener", taken)
    with pytest.raises(OSError, match="No 1 free ports"):
        ports.free_port()
