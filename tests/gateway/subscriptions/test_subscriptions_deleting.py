"""Subscriptions that are deleted, or not pushed any more, while gateways read them: nothing of them comes back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from headwater.cli.brokers import Brokers
from headwater.cli.client import clients, cluster
from headwater.cli.subscription_deletion import delete_subscription
from headwater.cli.subscription_status import readers
from headwater.gateway.server import GatewayThread
from headwater.gateway.subscriptions import ending
from headwater.testing import Broker
from tests.gateway.gateways import client_of, serving
from tests.gateway.push.receivers import receiving
from tests.support.eventually import eventually

NOBODY = "http://127.0.0.1:1/"
"""Where no receiver is: a push that tries again and again."""
KINDS = pytest.mark.parametrize("kind", ["queue", "stream"])


@pytest.fixture
def http(pushing_gateway: GatewayThread) -> Iterator[httpx.Client]:
    with client_of(pushing_gateway) as client:
        yield client


def subscribe(http: httpx.Client, name: str, topic: str, kind: str, url: str | None = None) -> None:
    body: dict[str, Any] = {"name": name, "topic": topic, "kind": kind, "from": "beginning"}
    if url is not None:
        body["push"] = {"url": url}
    made = http.post("/v1/subscriptions", json=body)
    assert made.status_code == 201, made.text


def members(http: httpx.Client, name: str) -> int:
    found: int = http.get(f"/v1/subscriptions/{name}").json()["members"]
    return found


def delete(http: httpx.Client, name: str) -> None:
    answered = http.delete(f"/v1/subscriptions/{name}")
    assert answered.status_code == 204, answered.text


def look_again(http: httpx.Client, topic: str) -> None:
    """Have the gateway look at the settings of all subscriptions, as a change of any of them does."""
    subscribe(http, f"{topic}-other", topic, "queue", NOBODY)
    eventually(lambda: members(http, f"{topic}-other") > 0, "the push of another one has begun")
    delete(http, f"{topic}-other")


def listed(http: httpx.Client, broker: Broker) -> set[str]:
    """The names that the console, HTTP and the command line know."""
    groups = {each["name"] for each in http.get("/v1/groups").json()["groups"]}
    subscriptions = {each["name"] for each in http.get("/v1/subscriptions").json()["subscriptions"]}
    with clients(Brokers(broker.bootstrap)) as client:
        told = {facts.name for facts, _ in readers(client, None)}
    assert groups <= subscriptions == told
    return told


@KINDS
def test_a_deleted_subscription_that_was_pushed_does_not_come_back(
    headwater_session: Broker, http: httpx.Client, topic: str, kind: str
) -> None:
    name = f"{topic}-ghost"
    subscribe(http, name, topic, kind, NOBODY)
    eventually(lambda: members(http, name) == 1, "the push has joined")
    delete(http, name)
    look_again(http, topic)
    assert name not in listed(http, headwater_session)
    assert http.get(f"/v1/subscriptions/{name}").status_code == 404


@KINDS
def test_a_subscription_that_several_gateways_push_is_deleted_through_one(
    headwater_session: Broker, http: httpx.Client, topic: str, kind: str
) -> None:
    name = f"{topic}-two"
    with serving(headwater_session.bootstrap, private_webhooks=True):
        subscribe(http, name, topic, kind, NOBODY)
        eventually(lambda: members(http, name) == 2, "both have joined")
        delete(http, name)
        look_again(http, topic)
        assert name not in listed(http, headwater_session)


@KINDS
def test_readers_that_connect_again_at_once_do_not_bring_a_deleted_subscription_back(
    headwater_session: Broker, pushing_gateway: GatewayThread, http: httpx.Client, topic: str, kind: str
) -> None:
    name = f"{topic}-read"
    subscribe(http, name, topic, kind)
    path = f"/v1/subscriptions/{name}"
    ended: list[str] = []

    def events() -> bool:
        with client_of(pushing_gateway) as client, client.stream("GET", f"{path}/events") as response:
            for _ in response.iter_lines():
                pass
            return response.status_code == 404

    def pull() -> bool:
        with client_of(pushing_gateway) as client:
            return client.post(f"{path}/pull", json={"wait_ms": 5_000}).status_code == 404

    def socket() -> bool:
        with connect(f"ws://{pushing_gateway.host}:{pushing_gateway.port}{path}/socket", proxy=None) as connected:
            told = ""
            with suppress(ConnectionClosed):
                while True:
                    told = str(connected.recv())
            return "Unknown subscription" in told

    def again_and_again(read: Callable[[], bool]) -> None:
        while not read():
            pass
        ended.append(read.__name__)

    readers = [threading.Thread(target=again_and_again, args=(read,), daemon=True) for read in (events, pull, socket)]
    for reader in readers:
        reader.start()
    eventually(lambda: members(http, name) == 1, "the gateway has joined")
    delete(http, name)
    for reader in readers:
        reader.join(60)
    assert sorted(ended) == ["events", "pull", "socket"]
    assert name not in listed(http, headwater_session)


def test_a_command_deletes_a_subscription_that_is_pushed(
    headwater_session: Broker, http: httpx.Client, topic: str
) -> None:
    name = f"{topic}-commanded"
    subscribe(http, name, topic, "queue", NOBODY)
    eventually(lambda: members(http, name) == 1, "the push has joined")
    with cluster(Brokers(headwater_session.bootstrap)) as client:
        delete_subscription(client, name)
    look_again(http, topic)
    assert name not in listed(http, headwater_session)


def test_a_group_that_has_read_nothing_is_listed_by_the_command_too(
    headwater_session: Broker, http: httpx.Client, topic: str
) -> None:
    name = f"{topic}-idle"
    consumer = Consumer({"bootstrap.servers": headwater_session.bootstrap, "group.id": name})
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "it has joined")
        assert name in listed(http, headwater_session)
    finally:
        consumer.close()


def test_a_push_goes_on_if_the_subscription_cannot_be_deleted(
    headwater_session: Broker, http: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "OTHERS_S", 0.2)
    name = f"{topic}-used"
    subscribe(http, name, topic, "stream", NOBODY)
    consumer = Consumer({"bootstrap.servers": headwater_session.bootstrap, "group.id": name})
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "a consumer of its own reads it")
        refused = http.delete(f"/v1/subscriptions/{name}")
        assert refused.status_code == 409 and "Stop its members" in refused.json()["detail"]
        assert http.get(f"/v1/subscriptions/{name}").json()["push"]["stopped"] is None
        eventually(lambda: consumer.poll(0.1) is None and members(http, name) == 2, "the push has joined again")
    finally:
        consumer.close()
    delete(http, name)


def test_what_is_under_way_when_a_push_ends_is_settled_though_settings_are_looked_at_meanwhile(
    http: httpx.Client, topic: str, tmp_path: Path
) -> None:
    name = f"{topic}-slow"
    with receiving(tmp_path) as receiver:
        subscribe(http, name, topic, "queue", receiver.url("/slow?s=2"))
        http.post(f"/v1/topics/{topic}/records", json={"value": "x"})
        eventually(lambda: (http.get(f"/v1/subscriptions/{name}").json()["pushing"] or {})["in_flight"] == 1, "sent")
        http.patch(f"/v1/subscriptions/{name}", json={"push": None})
        look_again(http, topic)
        eventually(lambda: members(http, name) == 0, "the push has ended")
        assert http.get(f"/v1/subscriptions/{name}").json()["lag"] == 0
        assert receiver.taken() == ["x"]
    delete(http, name)
