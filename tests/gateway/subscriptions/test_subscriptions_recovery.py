"""Members of queues and streams when brokers are killed and come back: they join again, and what was not settled comes
again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.testing import Broker
from tests.gateway.gateways import client_of, serving
from tests.gateway.push.receivers import receiving
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash


@pytest.fixture
def http(headwater_subprocess: Broker) -> Iterator[httpx.Client]:
    with serving(headwater_subprocess.bootstrap, private_webhooks=True) as gateway, client_of(gateway) as client:
        made = client.post("/v1/topics", json={"name": "t", "partitions": 2})
        assert made.status_code == 201, made.text
        yield client


def write(http: httpx.Client, values: list[str]) -> None:
    body = {"records": [{"value": value} for value in values]}
    eventually(lambda: http.post("/v1/topics/t/records", json=body).status_code == 200, "the records are written")


def take(http: httpx.Client, name: str) -> list[dict[str, Any]]:
    """What a pull gives; nothing while nobody answers."""
    answered = http.post(f"/v1/subscriptions/{name}/pull", json={"wait_ms": 1000})
    assert answered.status_code in (200, 503), answered.text
    records: list[dict[str, Any]] = answered.json().get("records", [])
    return records


def add_taken(http: httpx.Client, name: str, records: list[dict[str, Any]]) -> int:
    """Take what there is; how many there are now."""
    records += take(http, name)
    return len(records)


@pytest.mark.headwater(durability="sync")
def test_a_queue_is_pulled_on_after_its_broker_was_killed(headwater_subprocess: Broker, http: httpx.Client) -> None:
    made = http.post("/v1/subscriptions", json={"name": "q", "topic": "t", "kind": "queue"})
    assert made.status_code == 201, made.text
    write(http, ["settled", "open"])
    records: list[dict[str, Any]] = []
    eventually(lambda: add_taken(http, "q", records) == 2, "both are taken")
    ids = {record["value"]: record["ack_id"] for record in records}
    accepted = http.post("/v1/subscriptions/q/ack", json={"accept": [ids["settled"]]})
    assert accepted.json()["results"][0]["status"] == "done"
    headwater_subprocess.kill()
    headwater_subprocess.start()
    write(http, ["new"])
    again: list[dict[str, Any]] = []
    eventually(lambda: add_taken(http, "q", again) >= 2, "they come")
    assert {record["value"] for record in again} == {"open", "new"}, "what was settled does not come again"
    late = http.post("/v1/subscriptions/q/ack", json={"accept": [ids["open"]]}).json()["results"][0]["status"]
    assert late in ("expired", "unknown"), "the lease died with the broker"


@pytest.mark.headwater(durability="sync")
@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_a_push_goes_on_after_its_broker_was_killed(
    headwater_subprocess: Broker, http: httpx.Client, tmp_path: Path, kind: str
) -> None:
    with receiving(tmp_path) as receiver:
        push = {"url": receiver.url("/ok"), "backoff_ms": 50}
        made = http.post("/v1/subscriptions", json={"name": "p", "topic": "t", "kind": kind, "push": push})
        assert made.status_code == 201, made.text
        write(http, [f"before-{number}" for number in range(50)])
        eventually(lambda: len(set(receiver.taken())) == 50, "the first are pushed")
        headwater_subprocess.kill()
        headwater_subprocess.start()
        write(http, [f"after-{number}" for number in range(50)])
        eventually(lambda: len(set(receiver.taken())) == 100, "the others, too", patience_s=90)
