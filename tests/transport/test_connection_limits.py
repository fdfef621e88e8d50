"""What strangers may do to a broker: everything, without an effect on the others. Real sockets, real broker."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.testing import Broker
from headwater.transport.ports import free_ports
from tests.support.eventually import blocks_for_a_while, eventually

MIB = 1024 * 1024
API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)
METADATA_ALL = struct.pack(">hhihi", 3, 1, 1, -1, -1)


@contextmanager
def connected(broker: Broker) -> Iterator[socket.socket]:
    with socket.create_connection((broker.host, broker.port), timeout=10) as sock:
        yield sock


def send(sock: socket.socket, body: bytes) -> None:
    sock.sendall(struct.pack(">i", len(body)) + body)


def receive(sock: socket.socket) -> bytes:
    return exactly(sock, struct.unpack(">i", exactly(sock, 4))[0])


def exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return bytes(data)


def is_closed(sock: socket.socket) -> bool:
    """Wait for the other side's end; anything it still says is read and dropped."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def serves(broker: Broker) -> bool:
    with connected(broker) as sock:
        send(sock, API_VERSIONS)
        return len(receive(sock)) > 10


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.parametrize(
    "opening",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 65 * 1024),
        struct.pack(">i", -5),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    ],
    ids=[
        "huge", "over-first-limit", "negative", "http", "tls", "no-header", "no-such-api", "no-such-version",
        "huge-array",
    ],
)  # fmt: skip
def test_a_hopeless_opening_closes_the_connection(broker: Broker, opening: bytes) -> None:
    with connected(broker) as sock:
        sock.sendall(opening)
        assert is_closed(sock)
    assert serves(broker)


def test_a_client_from_the_future_is_told_the_versions_in_version_0(broker: Broker) -> None:
    with connected(broker) as sock:
        send(sock, struct.pack(">hhih", 18, 77, 42, -1) + b"\x00\x05what\x05ever\x00")
        correlation, code, count = struct.unpack_from(">ihi", receive(sock))
        assert (correlation, code) == (42, 35)
        assert count > 20


def test_responses_come_in_the_order_of_requests_however_many_are_sent_at_once(broker: Broker) -> None:
    with connected(broker) as sock:
        frames = bytearray()
        for number in range(200):
            body = (
                struct.pack(">hhih", 18, 0, number, -1) if number % 2 else struct.pack(">hhihi", 3, 1, number, -1, -1)
            )
            frames += struct.pack(">i", len(body)) + body
        sock.sendall(frames)
        assert [struct.unpack_from(">i", receive(sock))[0] for _ in range(200)] == list(range(200))


def test_a_limit_that_was_raised_by_a_valid_request_still_is_one() -> None:
    with Broker(max_request_bytes=MIB) as broker, connected(broker) as sock:
        send(sock, API_VERSIONS)
        receive(sock)
        sock.sendall(struct.pack(">i", MIB + 1))
        assert is_closed(sock)


def test_connections_over_the_limit_are_refused_and_room_is_given_back() -> None:
    with Broker(max_connections=3) as broker:
        kept = [socket.create_connection((broker.host, broker.port), timeout=10) for _ in range(3)]
        for sock in kept:
            send(sock, API_VERSIONS)
            receive(sock)
        with connected(broker) as refused:
            assert is_closed(refused)
        for sock in kept:
            sock.close()

        def is_served() -> bool:
            with contextlib.suppress(OSError, AssertionError):
                return serves(broker)
            return False

        eventually(is_served, "room is given back")


def test_connections_of_one_address_are_limited() -> None:
    with Broker(max_connections_per_ip=1) as broker, connected(broker) as first:
        send(first, API_VERSIONS)
        receive(first)
        with connected(broker) as second:
            assert is_closed(second)


def test_a_request_that_never_ends_is_cut_off() -> None:
    with Broker(half_request_timeout_s=0.2) as broker, connected(broker) as sock:
        sock.sendall(struct.pack(">i", 1000) + b"half")
        assert is_closed(sock)


def test_a_request_that_trickles_is_cut_off_too() -> None:
    with Broker(half_request_timeout_s=0.3) as broker, connected(broker) as sock:
        sock.sendall(struct.pack(">i", MIB))

        def is_cut_off() -> bool:
            try:
                sock.sendall(b"x")
            except OSError:
                return True
            return False

        eventually(is_cut_off, "the connection is closed")


def test_a_silent_connection_is_closed() -> None:
    with Broker(idle_timeout_s=0.2) as broker, connected(broker) as sock:
        send(sock, API_VERSIONS)
        receive(sock)
        assert is_closed(sock)


def test_a_connection_over_its_rate_is_read_more_slowly_and_loses_nothing() -> None:
    with Broker(max_requests_per_second=20) as broker, connected(broker) as sock:
        started = time.monotonic()
        for _ in range(50):
            send(sock, API_VERSIONS)
        for _ in range(50):
            receive(sock)
        assert time.monotonic() - started > 0.9


def test_a_reader_that_does_not_read_stops_being_read_from(broker: Broker) -> None:
    """Responses pile up to the output limit and no further; the requests behind them stay in the sender's socket."""
    before = psutil.Process().memory_info().rss
    with connected(broker) as sock:
        sock.settimeout(1)
        request = struct.pack(">i", len(METADATA_ALL)) + METADATA_ALL
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 512 * MIB:
                sent += sock.send(request * 1000)
        assert sent < 64 * MIB
        assert serves(broker)
    assert psutil.Process().memory_info().rss - before < 64 * MIB


def test_memory_for_requests_is_bounded_whatever_is_announced() -> None:
    with Broker(request_memory_bytes=4 * MIB, half_request_timeout_s=2) as broker:
        before = psutil.Process().memory_info().rss
        socks = []
        try:
            for _ in range(30):
                sock = socket.create_connection((broker.host, broker.port), timeout=10)
                send(sock, API_VERSIONS)
                receive(sock)
                sock.sendall(struct.pack(">i", 50 * MIB))
                sock.setblocking(False)
                for _ in range(8):
                    try:
                        sock.send(bytes(MIB))
                    except BlockingIOError:
                        break
                socks.append(sock)
            blocks_for_a_while()
            assert psutil.Process().memory_info().rss - before < 150 * MIB
        finally:
            for sock in socks:
                sock.close()
        assert serves(broker)


def test_strangers_have_a_share_of_the_memory_and_others_do_not_wait_for_it() -> None:
    inside, asks = free_ports(2)
    tables = [
        {"name": "inside", "listen": f"127.0.0.1:{inside}"},
        {"name": "asks", "protocol": "SASL_PLAINTEXT", "listen": f"127.0.0.1:{asks}"},
    ]
    with (
        Broker(listener=tables, authorization="off", request_memory_bytes=MIB) as broker,
        contextlib.ExitStack() as stack,
    ):
        strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", asks))) for _ in range(20)]
        for each in strangers:
            each.sendall(struct.pack(">i", 64 * 1024) + bytes(63 * 1024))
            each.setblocking(False)
        eventually(lambda: any(map(has_ended, strangers)), "there are more than an eighth of the memory is for")
        assert serves(broker)
        assert not all(map(has_ended, strangers))


def has_ended(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    api_key=st.integers(0, 95),
    version=st.integers(0, 18),
    body=st.binary(max_size=200),
    again=st.binary(max_size=30),
)
def test_no_bytes_end_the_broker(broker: Broker, api_key: int, version: int, body: bytes, again: bytes) -> None:
    with connected(broker) as sock:
        sock.settimeout(0.05)
        send(sock, struct.pack(">hhih", api_key, version, 7, -1) + body)
        try:
            sock.sendall(again)
            sock.recv(65536)
        except OSError:
            pass
    assert serves(broker)


def test_after_all_that_a_real_client_is_served(broker: Broker) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("after", b"value", callback=lambda error, _: errors.append(error))
    producer.flush(60)
    assert errors == [None]
