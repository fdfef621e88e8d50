"""Server-sent events and WebSockets: records as they come, settled by their readers."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from headwater.gateway.http.problems import Problem
from headwater.gateway.push.events import parse_event_id
from headwater.gateway.server import GatewayThread
from tests.support.eventually import blocks_for_a_while, eventually


@pytest.fixture
def write(http: httpx.Client, topic: str) -> Callable[..., None]:
    def write(*values: str, **more: Any) -> None:
        records = [{"value": value, **more} for value in values]
        answered = http.post(f"/v1/topics/{topic}/records", json={"records": records})
        assert answered.status_code == 200, answered.text

    return write


@pytest.fixture
def subscribe(http: httpx.Client, topic: str) -> Callable[..., str]:
    def subscribe(kind: str) -> str:
        body = {"name": f"{topic}-{kind}", "topic": topic, "kind": kind, "from": "beginning"}
        made = http.post("/v1/subscriptions", json=body)
        assert made.status_code == 201, made.text
        return f"{topic}-{kind}"

    return subscribe


@contextmanager
def events(http: httpx.Client, name: str, last: str = "", **query: Any) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a subscription, each with its id."""
    headers = {"Last-Event-ID": last} if last else {}
    with http.stream("GET", f"/v1/subscriptions/{name}/events", params=query, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        yield _parsed(response.iter_lines())


def _parsed(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(": ")
        if not line and "data" in fields:
            yield {"id": fields.get("id"), **json.loads(fields["data"])}
            fields = {}
        elif colon and name:
            fields[name] = value


def test_events_of_a_queue_are_acknowledged_by_post(
    http: httpx.Client, subscribe: Callable[..., str], write: Callable[..., None]
) -> None:
    name = subscribe("queue")
    write("a", "b", partition=0)
    with events(http, name) as coming:
        found = [next(coming), next(coming)]
        assert [each["value"] for each in found] == ["a", "b"]
        accepted = http.post(f"/v1/subscriptions/{name}/ack", json={"accept": [each["ack_id"] for each in found]})
        assert [each["status"] for each in accepted.json()["results"]] == ["done", "done"]
        write("c", partition=0)
        assert next(coming)["value"] == "c"


def test_no_more_events_of_a_queue_come_than_may_be_open(
    http: httpx.Client, subscribe: Callable[..., str], write: Callable[..., None]
) -> None:
    name = subscribe("queue")
    write("a", "b", "c", partition=0)
    with events(http, name, max_in_flight=1) as coming:
        for value in ("a", "b", "c"):
            event = next(coming)
            assert event["value"] == value
            assert http.get(f"/v1/subscriptions/{name}").json()["in_flight"] == 1
            http.post(f"/v1/subscriptions/{name}/ack", json={"accept": [event["ack_id"]]})


def test_what_a_reader_of_events_did_not_settle_goes_to_another(
    http: httpx.Client, subscribe: Callable[..., str], write: Callable[..., None]
) -> None:
    name = subscribe("queue")
    write("a", partition=0)
    with events(http, name) as coming:
        assert next(coming)["delivery_count"] == 1
    pulled = http.post(f"/v1/subscriptions/{name}/pull", json={"wait_ms": 10_000}).json()["records"]
    assert [(each["value"], each["delivery_count"]) for each in pulled] == [("a", 2)]


def test_events_of_a_stream_go_on_after_the_last_one_that_was_seen(
    http: httpx.Client, subscribe: Callable[..., str], write: Callable[..., None]
) -> None:
    name = subscribe("stream")
    write("a", "b", "c", partition=1)
    with events(http, name) as coming:
        found = [next(coming), next(coming), next(coming)]
    assert [(each["id"], each["value"]) for each in found] == [("1:1", "a"), ("1:2", "b"), ("1:3", "c")]
    with events(http, name, last=found[0]["id"]) as coming:
        assert [next(coming)["value"], next(coming)["value"]] == ["b", "c"]


def test_a_stream_has_one_reader_of_events_at_a_time(http: httpx.Client, subscribe: Callable[..., str]) -> None:
    name = subscribe("stream")
    with events(http, name):
        second = http.get(f"/v1/subscriptions/{name}/events")
        assert second.status_code == 409, second.text


@pytest.mark.parametrize("text", ["x", "1", "1:", ":1", "1:2;3:4", "1:-2", "1:2,", "9" * 30 + ":1"])
def test_an_event_id_that_is_none_of_ours_is_refused(text: str) -> None:
    with pytest.raises(Problem):
        parse_event_id(text)


@contextmanager
def socket_to(gateway: GatewayThread, name: str, **query: Any) -> Iterator[ClientConnection]:
    address = f"ws://{gateway.host}:{gateway.port}/v1/subscriptions/{name}/socket"
    parameters = "&".join(f"{key}={value}" for key, value in query.items())
    with connect(f"{address}?{parameters}", proxy=None) as socket:
        yield socket


def heard(socket: ClientConnection, field: str) -> Any:
    frame = json.loads(socket.recv(timeout=20))
    assert field in frame, frame
    return frame[field]


def test_a_socket_gives_records_and_takes_acknowledgements(
    gateway: GatewayThread, http: httpx.Client, subscribe: Callable[..., str], write: Callable[..., None]
) -> None:
    name = subscribe("queue")
    write("a", partition=0)
    with socket_to(gateway, name) as socket:
        (record,) = heard(socket, "records")
        assert record["value"] == "a"
        socket.send(json.dumps({"ack": [record["ack_id"], "nonsense"]}))
        assert [each["status"] for each in heard(socket, "results")] == ["done", "unknown"]
    eventually(lambda: http.get(f"/v1/subscriptions/{name}").json()["lag"] == 0, "it is settled")


def test_a_socket_sends_no_more_than_it_has_credit_for(
    gateway: GatewayThread, subscribe: Callable[..., str], write: Callable[..., None]
) -> None:
    name = subscribe("queue")
    write(*map(str, range(10)), partition=0)
    with socket_to(gateway, name, credit=0) as socket:
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.5)
        found: list[str] = []
        for credit in (2, 3):
            socket.send(json.dumps({"credit": credit}))
            wanted = len(found) + credit
            while len(found) < wanted:
                found += [each["value"] for each in heard(socket, "records")]
            assert len(found) == wanted
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.5)
    assert found == ["0", "1", "2", "3", "4"]


def test_what_a_socket_held_comes_again_when_it_is_gone(
    gateway: GatewayThread, http: httpx.Client, subscribe: Callable[..., str], write: Callable[..., None]
) -> None:
    name = subscribe("queue")
    write("a", partition=0)
    with socket_to(gateway, name) as socket:
        heard(socket, "records")
    pulled = http.post(f"/v1/subscriptions/{name}/pull", json={"wait_ms": 10_000}).json()["records"]
    assert [(each["value"], each["delivery_count"]) for each in pulled] == [("a", 2)]


def test_a_socket_commits_a_stream(
    gateway: GatewayThread, http: httpx.Client, subscribe: Callable[..., str], write: Callable[..., None]
) -> None:
    name = subscribe("stream")
    write("a", "b", partition=2)
    with socket_to(gateway, name) as socket:
        records: list[Any] = []
        while len(records) < 2:
            records += heard(socket, "records")
        socket.send(json.dumps({"commit": [{"partition": 2, "offset": 2}]}))
        assert heard(socket, "committed")
    assert http.get(f"/v1/subscriptions/{name}").json()["lag"] == 0


@pytest.mark.parametrize("frame", ["nonsense", "[]", '{"credit": -1}', '{"ack": "x"}', '{"surprise": 1}', "[" * 5000])
def test_a_frame_that_cannot_be_read_ends_the_socket_with_a_reason(
    gateway: GatewayThread, subscribe: Callable[..., str], frame: str
) -> None:
    with socket_to(gateway, subscribe("queue")) as socket:
        socket.send(frame)
        assert "read" in heard(socket, "problem")["detail"] or "nested" in frame
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=10)


def test_a_parameter_that_no_socket_knows_is_refused(gateway: GatewayThread) -> None:
    with socket_to(gateway, "nobody-there", kredit=5) as socket:
        assert heard(socket, "problem")["detail"] == "There is no parameter 'kredit' here; there are credit."


def test_a_socket_to_nobody_is_told_so(gateway: GatewayThread) -> None:
    with socket_to(gateway, "nobody-there") as socket:
        assert heard(socket, "problem")["title"] == "Unknown subscription"


def test_a_reader_that_does_not_read_is_sent_no_more_than_its_credit(
    gateway: GatewayThread, http: httpx.Client, subscribe: Callable[..., str], write: Callable[..., None]
) -> None:
    name = subscribe("queue")
    write(*("x" * 1000 for _ in range(300)), partition=0)
    with socket_to(gateway, name, credit=50):
        eventually(lambda: http.get(f"/v1/subscriptions/{name}").json()["in_flight"] >= 50, "the credit is used")
        blocks_for_a_while()
        assert http.get(f"/v1/subscriptions/{name}").json()["in_flight"] == 50
