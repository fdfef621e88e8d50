"""Who is let in, and what a client that means harm can do."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import Problem
from headwater.gateway.http.security import Guard
from headwater.gateway.server import GatewayThread
from headwater.testing import Broker
from headwater.transport.token_file import BadToken, read_token
from tests.gateway.gateways import client_of, serving
from tests.support.eventually import eventually

TOKEN = "a-token-of-some-length"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def guarded(headwater_session: Broker, token_file: Path) -> Iterator[httpx.Client]:
    with serving(headwater_session.bootstrap, token_file=token_file) as gateway, client_of(gateway) as client:
        yield client


def test_without_the_token_only_health_is_told(guarded: httpx.Client) -> None:
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/readyz").status_code == 200
    for method, path in (
        ("GET", "/v1/topics"),
        ("POST", "/v1/topics"),
        ("GET", "/v1/topics/t"),
        ("PATCH", "/v1/topics/t"),
        ("DELETE", "/v1/topics/t"),
        ("GET", "/v1/topics/t/segments"),
        ("POST", "/v1/topics/t/records"),
        ("GET", "/v1/topics/t/records"),
        ("GET", "/v1/cluster"),
        ("GET", "/v1/groups"),
        ("GET", "/v1/groups/g"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/no/such/path"),
    ):
        answer = guarded.request(method, path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header", ["Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer", f"Bearer {TOKEN}x", "Bearer \xe9"]
)
def test_another_token_is_no_token(guarded: httpx.Client, header: str) -> None:
    answer = guarded.get("/v1/topics", headers={b"authorization": header.encode("latin-1")})
    assert answer.status_code == 401


def test_the_token_lets_in(guarded: httpx.Client) -> None:
    assert guarded.get("/v1/topics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_browser_logs_in_once_and_out_again(guarded: httpx.Client) -> None:
    assert guarded.get("/v1/session").json() == {"asks_for_token": True}
    assert guarded.post("/v1/session", json={"token": "guess"}).status_code == 401
    entered = guarded.post("/v1/session", json={"token": TOKEN})
    assert entered.status_code == 204
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and TOKEN not in cookie
    assert guarded.get("/v1/topics").status_code == 200
    guarded.delete("/v1/session")
    assert guarded.get("/v1/topics").status_code == 401
    forged = guarded.get("/v1/topics", headers={"Cookie": "headwater_session=x"})
    assert forged.status_code == 401


@pytest.mark.parametrize("content", ["", "short", "two words that are long enough", "x" * 5000, "ü" * 20])
def test_a_token_file_that_cannot_be_meant_stops_the_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(BadToken):
        read_token(path)
    with pytest.raises(BadToken):
        read_token(tmp_path / "absent")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_origin_changes_nothing(http: httpx.Client, topic: str, headers: dict[str, str]) -> None:
    for answer in (
        http.post(f"/v1/topics/{topic}/records", json={"value": 1}, headers=headers),
        http.delete(f"/v1/topics/{topic}", headers=headers),
    ):
        assert answer.status_code == 403
        assert not any(name.startswith("access-control") for name in answer.headers)
    assert http.get(f"/v1/topics/{topic}/records").json()["records"] == []


def test_our_own_page_may(http: httpx.Client, gateway: GatewayThread, topic: str) -> None:
    headers = {"Origin": f"http://127.0.0.1:{gateway.port}", "Sec-Fetch-Site": "same-origin"}
    assert http.post(f"/v1/topics/{topic}/records", json={"value": 1}, headers=headers).status_code == 200


def test_a_name_that_somebody_pointed_at_us_is_not_ours(http: httpx.Client) -> None:
    assert http.get("/v1/topics", headers={"Host": "evil.example"}).status_code == 403
    assert http.get("/v1/topics", headers={"Host": "localhost:1"}).status_code == 200


def test_names_can_be_allowed() -> None:
    def allows(host: str, *names: str) -> bool:
        guard = Guard(GatewayConfig("b", host="0.0.0.0", allowed_hosts=names))
        try:
            guard.check("GET", "/", {"host": host})
        except Problem:
            return False
        return True

    assert allows("10.1.2.3:8080") and allows("[::1]:8080") and allows("localhost")
    assert not allows("gateway.example.com")
    assert allows("gateway.example.com:80", "gateway.example.com")
    assert allows("anything.example", "*")


def exchange(gateway: GatewayThread, *parts: bytes) -> bytes:
    """What comes back for bytes, until the connection ends or nothing more comes."""
    received = b""
    with socket.create_connection((gateway.host, gateway.port), timeout=5) as connection, contextlib.suppress(OSError):
        for part in parts:
            connection.sendall(part)
        while b"\r\n\r\n" not in received and (chunk := connection.recv(65536)):
            received += chunk
    return received


@pytest.mark.parametrize(
    "head",
    [
        b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST /v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/topics HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(gateway: GatewayThread, http: httpx.Client, head: bytes) -> None:
    answer = exchange(gateway, head)
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert http.get("/healthz").status_code == 200


def test_a_head_without_end_is_not_kept(gateway: GatewayThread, http: httpx.Client) -> None:
    lines = [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", *(b"X-%d: %s\r\n" % (n, b"x" * 1000) for n in range(500))]
    assert exchange(gateway, *lines, b"\r\n")[:12] in (b"HTTP/1.1 400", b"")
    one_line = [b"GET /healthz HTTP/1.1\r\nX: ", *([b"x" * 10_000] * 50), b"\r\n\r\n"]
    assert exchange(gateway, *one_line)[:12] in (b"HTTP/1.1 400", b"")
    assert http.get("/healthz").status_code == 200


def test_bodies_that_are_never_finished_cost_what_was_sent(headwater_session: Broker, topic: str) -> None:
    head = (
        b"POST /v1/topics/%s/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % topic.encode()
    )
    head += b"Content-Length: 9000000\r\n\r\n"
    with serving(headwater_session.bootstrap, max_buffered_bytes=4_000_000) as gateway, contextlib.ExitStack() as held:
        for _ in range(8):
            connection = held.enter_context(socket.create_connection((gateway.host, gateway.port), timeout=5))
            connection.sendall(head + b"x" * 400_000)
        with client_of(gateway) as http:
            body = {"records": [{"value": "x" * 900_000}] * 2}
            eventually(lambda: http.post(f"/v1/topics/{topic}/records", json=body).status_code == 429, "it is refused")
            small = http.post(f"/v1/topics/{topic}/records", json={"value": "x"})
    assert small.status_code == 200


def test_a_body_that_comes_too_slowly_ends_its_connection(
    gateway: GatewayThread, http: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.gateway.http.protocol.ARRIVAL_TIMEOUT_S", 0.5)
    head = b"POST /v1/topics/%s/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n" % topic.encode()
    with socket.create_connection((gateway.host, gateway.port), timeout=20) as connection:
        connection.sendall(head)

        def is_cut_off() -> bool:
            try:
                connection.sendall(b"x")  # each byte is in time, and all of them are not
            except OSError:
                return True
            return False

        eventually(is_cut_off, "the connection is closed")
    assert http.get(f"/v1/topics/{topic}/records").json()["records"] == [], "nothing of it is written"


def test_a_request_that_came_in_time_may_wait_longer_for_its_answer(
    gateway: GatewayThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.gateway.http.protocol.ARRIVAL_TIMEOUT_S", 0.5)
    with client_of(gateway) as http:
        for _ in range(2):  # on one connection
            assert http.get(f"/v1/topics/{topic}/records", params={"wait_ms": 1000}).status_code == 200


def test_a_path_of_nonsense_is_a_404(http: httpx.Client) -> None:
    for path in (
        "/v1/topics/a%2Fb/records",
        "/v1/topics/%00/records",
        "/v1/topics/%F0%9F%98%80",
        "/v1/topics//records",
    ):
        answer = http.post(path, json={"value": 1})
        assert answer.status_code in (404, 405), path
    assert http.get("/v1/topics/" + "x" * 5000).status_code == 404
