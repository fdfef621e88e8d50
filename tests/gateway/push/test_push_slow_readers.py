"""Readers of events and of sockets that do not read: they are cut off, what they held goes to others, and nobody else
notices."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from headwater.gateway.server import GatewayThread
from tests.support.eventually import eventually

RECORDS = 24
RECORD_BYTES = 500_000
"""Together more than the buffers between two sockets take."""


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("events", "sockets"):
        monkeypatch.setattr(f"headwater.gateway.push.{module}.SEND_S", 1.0)


@pytest.fixture
def queue(http: httpx.Client, topic: str) -> str:
    """With more than a reader takes who does not read."""
    name = f"{topic}-slow"
    made = http.post("/v1/subscriptions", json={"name": name, "topic": topic, "kind": "queue", "from": "beginning"})
    assert made.status_code == 201, made.text
    for _ in range(RECORDS // 4):
        body = {"records": [{"value": "x" * RECORD_BYTES}] * 4}
        assert http.post(f"/v1/topics/{topic}/records", json=body).status_code == 200
    return name


def in_flight(http: httpx.Client, name: str) -> int:
    found: int = http.get(f"/v1/subscriptions/{name}").json()["in_flight"]
    return found


def take_all(http: httpx.Client, name: str) -> int:
    """Pull and accept everything, and count it."""
    taken = 0
    while records := http.post(f"/v1/subscriptions/{name}/pull", json={"wait_ms": 1000}).json()["records"]:
        accepted = http.post(f"/v1/subscriptions/{name}/ack", json={"accept": [each["ack_id"] for each in records]})
        taken += sum(each["status"] == "done" for each in accepted.json()["results"])
    return taken


@contextmanager
def another_reader(http: httpx.Client, topic: str) -> Iterator[list[str]]:
    """Of events of another subscription; what it has got."""
    name = f"{topic}-quick"
    http.post("/v1/topics", json={"name": name})
    http.post("/v1/subscriptions", json={"name": name, "topic": name, "kind": "stream", "from": "beginning"})
    got: list[str] = []

    def read(response: httpx.Response) -> None:
        with suppress(httpx.HTTPError):  # it is closed in the end
            data = (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))
            got.extend(json.loads(each)["value"] for each in data)

    with (
        httpx.Client(base_url=http.base_url, timeout=None, trust_env=False) as client,
        client.stream("GET", f"/v1/subscriptions/{name}/events") as response,
    ):
        reading = threading.Thread(target=read, args=(response,), daemon=True)
        reading.start()
        yield got


def check_that_nobody_else_notices(http: httpx.Client, topic: str, got: list[str]) -> None:
    for value in ("a", "b", "c"):
        assert http.post(f"/v1/topics/{topic}-quick/records", json={"value": value}).status_code == 200
        eventually(lambda value=value: got[-1:] == [value], "others get what is written")  # type: ignore[misc]


def test_a_reader_of_events_that_does_not_read_is_cut_off(
    gateway: GatewayThread, http: httpx.Client, topic: str, queue: str
) -> None:
    request = f"GET /v1/subscriptions/{queue}/events?max_in_flight=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with another_reader(http, topic) as got, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(20)
        slow.connect((gateway.host, gateway.port))
        slow.sendall(request.encode())
        eventually(lambda: in_flight(http, queue) > 0, "it is sent to")
        check_that_nobody_else_notices(http, topic, got)
        eventually(lambda: in_flight(http, queue) == 0, "what it held goes back")
        received = 0
        with suppress(ConnectionResetError):
            while chunk := slow.recv(1 << 20):
                received += len(chunk)
        assert received < RECORDS * RECORD_BYTES
        assert take_all(http, queue) == RECORDS


def test_a_reader_of_a_socket_that_does_not_read_is_cut_off(
    gateway: GatewayThread, http: httpx.Client, topic: str, queue: str
) -> None:
    address = f"ws://{gateway.host}:{gateway.port}/v1/subscriptions/{queue}/socket?credit=1000"
    options: dict[str, Any] = {"max_size": None, "max_queue": 1, "ping_interval": None, "compression": None}
    with another_reader(http, topic) as got, connect(address, proxy=None, close_timeout=1, **options) as slow:
        eventually(lambda: in_flight(http, queue) > 0, "it is sent to")
        check_that_nobody_else_notices(http, topic, got)
        eventually(lambda: in_flight(http, queue) == 0, "what it held goes back")
        received = 0
        with pytest.raises(ConnectionClosed):
            while True:
                received += len(slow.recv(timeout=20))
        assert received < RECORDS * RECORD_BYTES
        assert take_all(http, queue) == RECORDS
