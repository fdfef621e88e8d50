"""Subscriptions beside a cluster whose nodes are killed: a pull and a webhook go on with the next leader."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.testing.processes.cluster import ProcessCluster
from tests.gateway.gateways import client_of, serving
from tests.gateway.push.receivers import receiving
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

PATIENCE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def http(cluster: ProcessCluster) -> Iterator[httpx.Client]:
    with serving(cluster.bootstrap, private_webhooks=True) as gateway, client_of(gateway) as client:
        made = client.post("/v1/topics", json={"name": "t", "partitions": 1, "replication_factor": 3})
        assert made.status_code == 201, made.text
        yield client


def subscribe(http: httpx.Client, name: str, kind: str, **more: Any) -> None:
    body = {"name": name, "topic": "t", "kind": kind, "from": "beginning", **more}
    made = http.post("/v1/subscriptions", json=body)
    assert made.status_code == 201, made.text


def write(http: httpx.Client, *values: str) -> None:
    body = {"records": [{"value": value} for value in values]}

    def is_written() -> bool:
        answered = http.post("/v1/topics/t/records", json=body)
        assert answered.status_code in (200, 207, 503), answered.text
        return answered.status_code == 200

    eventually(is_written, "the cluster takes records", patience_s=PATIENCE_S)


def take(http: httpx.Client, name: str) -> list[str]:
    """What a pull gives, settled; nothing while nobody leads."""
    answered = http.post(f"/v1/subscriptions/{name}/pull", json={"wait_ms": 500})
    assert answered.status_code in (200, 503), answered.text
    records = answered.json().get("records", [])
    ids = [record["ack_id"] for record in records if "ack_id" in record]
    if ids:
        settled = http.post(f"/v1/subscriptions/{name}/ack", json={"accept": ids})
        assert settled.status_code in (200, 503), settled.text
    return [record["value"] for record in records]


def test_pulls_and_webhooks_go_on_when_the_leader_is_killed(
    cluster: ProcessCluster, http: httpx.Client, tmp_path: Path
) -> None:
    before, after = ([f"{when}-{number}" for number in range(20)] for when in ("before", "after"))
    with receiving(tmp_path) as receiver:
        push = {"url": receiver.url("/ok"), "backoff_ms": 50}
        subscribe(http, "pulled-queue", "queue")
        subscribe(http, "pulled-stream", "stream")
        subscribe(http, "pushed-queue", "queue", push=push)
        pulled: dict[str, set[str]] = {"pulled-queue": set(), "pulled-stream": set()}

        def have_come(values: list[str]) -> bool:
            for name, got in pulled.items():
                got.update(take(http, name))
            return all(got >= set(values) for got in (*pulled.values(), set(receiver.taken())))

        write(http, *before)
        eventually(lambda: have_come(before), "the first arrive", patience_s=PATIENCE_S)
        leader = cluster.find("leader of t-0")
        cluster.kill(leader)
        write(http, *after)
        eventually(lambda: have_come(before + after), "the others, too", patience_s=PATIENCE_S)
        assert cluster.find("leader of t-0") != leader
