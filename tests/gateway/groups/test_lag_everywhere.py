"""The lag of a group that is stopped: everything that it would read when it comes back, the same number everywhere."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from headwater.cli.group import app as group_app
from headwater.cli.subscription import app as subscription_app
from headwater.testing import Broker
from headwater.transport.ports import free_port
from tests.gateway.gateways import client_of, serving
from tests.support.eventually import eventually

TOPIC = "orders"
HELD = (10, 20, 30)
"""Records in each partition."""


@pytest.fixture(scope="module")
def metrics() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def broker(metrics: str) -> Iterator[Broker]:
    with Broker(metrics=metrics) as broker:
        yield broker


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with serving(broker.bootstrap) as gateway, client_of(gateway) as client:
        client.post("/v1/topics", json={"name": TOPIC, "partitions": len(HELD)})
        records = [{"value": n, "partition": index} for index, count in enumerate(HELD) for n in range(count)]
        assert client.post(f"/v1/topics/{TOPIC}/records", json={"records": records}).status_code == 200
        yield client


def consumer(broker: Broker, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})


def run(app: object, *arguments: str) -> object:
    answered = CliRunner().invoke(app, arguments)  # type: ignore[arg-type]
    assert answered.exit_code == 0, answered.output
    return json.loads(answered.stdout)


def told(http: httpx.Client, broker: Broker, metrics: str, group: str) -> set[tuple[int | None, int]]:
    """Lag and partitions without a known position, as each of those says that tells them; the metrics' sum agrees."""
    places = ["--json", "-b", broker.bootstrap]
    groups = {each["name"]: each for each in http.get("/v1/groups").json()["groups"]}
    listed = {each["subscription"]: each for each in run(subscription_app, "list", *places)}  # type: ignore[attr-defined]
    every = [
        groups[group],
        http.get(f"/v1/groups/{group}").json(),
        http.get(f"/v1/subscriptions/{group}").json(),
        listed[group],
        run(subscription_app, "describe", group, *places),
        run(group_app, "describe", group, *places),
    ]
    found = {(each["lag"], each["unknown_partitions"]) for each in every}
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    series = [line for line in lines if line.startswith(f'headwater_group_lag{{group="{group}"')]
    assert {sum(float(line.rpartition(" ")[2]) for line in series)} == {lag for lag, _ in found}
    return found


def test_a_stopped_group_lacks_what_it_has_never_committed_too(
    http: httpx.Client, broker: Broker, metrics: str
) -> None:
    with closing(consumer(broker, "stopped")) as reader:
        reader.subscribe([TOPIC])
        eventually(lambda: reader.poll(0.1) is None and bool(reader.assignment()), "it has joined")
        reader.commit(offsets=[TopicPartition(TOPIC, 0, 4)], asynchronous=False)
        assert told(http, broker, metrics, "stopped") == {(6 + 20 + 30, 2)}, "running or not"
    eventually(lambda: http.get("/v1/groups/stopped").json()["state"] == "empty", "it has left")
    assert told(http, broker, metrics, "stopped") == {(6 + 20 + 30, 2)}
    shown = CliRunner().invoke(group_app, ["describe", "stopped", "-b", broker.bootstrap]).stdout
    assert "lag 56 (2 partitions without a known position)" in shown


def test_a_group_that_only_keeps_offsets_lacks_nothing_elsewhere(
    http: httpx.Client, broker: Broker, metrics: str
) -> None:
    with closing(consumer(broker, "simple")) as reader:
        reader.assign([TopicPartition(TOPIC, 1)])
        reader.commit(offsets=[TopicPartition(TOPIC, 1, 5)], asynchronous=False)
    assert told(http, broker, metrics, "simple") == {(15, 0)}


def test_a_subscription_lacks_what_is_in_partitions_that_came_later(
    http: httpx.Client, broker: Broker, metrics: str
) -> None:
    http.post("/v1/topics", json={"name": "growing", "partitions": 1})
    for kind in ("stream", "queue"):
        body = {"name": f"of-{kind}", "topic": "growing", "kind": kind, "from": "beginning"}
        assert http.post("/v1/subscriptions", json=body).status_code == 201
    http.patch("/v1/topics/growing", json={"partitions": 2})
    records = [{"value": n, "partition": n % 2} for n in range(8)]
    assert http.post("/v1/topics/growing/records", json={"records": records}).status_code == 200
    assert told(http, broker, metrics, "of-stream") == {(8, 1)}
    queue = http.get("/v1/subscriptions/of-queue").json()
    (listed,) = (each for each in run(subscription_app, "list", "growing", "--json", "-b", broker.bootstrap)  # type: ignore[attr-defined]
                 if each["subscription"] == "of-queue")  # fmt: skip
    for each in (queue, listed, http.get("/v1/groups/of-queue").json()):
        assert (each["lag"], each["unknown_partitions"]) == (8, 1)
