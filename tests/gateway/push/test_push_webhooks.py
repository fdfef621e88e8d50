"""Webhooks, with a receiver that is a process: it crashes, hangs, fails and is slow. Every record arrives, and what was
acknowledged arrives no more."""

import hashlib
import hmac
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from headwater.gateway.server import GatewayThread
from headwater.testing import Broker
from tests.gateway.gateways import client_of, serving
from tests.gateway.push.receivers import Receiver, receiving
from tests.support.eventually import eventually


@pytest.fixture
def http(pushing_gateway: GatewayThread) -> Iterator[httpx.Client]:
    with client_of(pushing_gateway) as client:
        yield client


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as running:
        yield running


@pytest.fixture
def push(http: httpx.Client, topic: str) -> Iterator[Any]:
    """Makes subscriptions that are pushed, and ends them: a pump must not outlive its test."""
    made: list[str] = []

    def subscribe(url: str, kind: str = "queue", name: str = "", **push: Any) -> str:
        name = name or f"{topic}-push-{len(made)}"
        body = {"name": name, "topic": topic, "kind": kind, "from": "beginning", "push": {"url": url, **push}}
        answered = http.post("/v1/subscriptions", json=body)
        assert answered.status_code == 201, answered.text
        made.append(name)
        return name

    yield subscribe
    for name in made:
        http.delete(f"/v1/subscriptions/{name}")


def write(http: httpx.Client, topic: str, records: list[dict[str, Any]]) -> None:
    answered = http.post(f"/v1/topics/{topic}/records", json={"records": records})
    assert answered.status_code == 200, answered.text


def values(count: int) -> list[dict[str, Any]]:
    return [{"value": f"v{number}", "key": f"k{number % 5}"} for number in range(count)]


def lag(http: httpx.Client, name: str) -> int:
    found: int = http.get(f"/v1/subscriptions/{name}").json()["lag"]
    return found


def failures(http: httpx.Client) -> float:
    (line,) = (
        each for each in http.get("/metrics").text.splitlines() if each.startswith("headwater_push_failed_total")
    )
    return float(line.split()[-1])


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_every_record_is_posted_once_and_signed(
    http: httpx.Client, topic: str, receiver: Receiver, push: Any, kind: str
) -> None:
    name = push(receiver.url("/ok"), kind, secret="hush")
    write(http, topic, values(200))
    eventually(lambda: len(receiver.taken()) >= 200, "all are posted")
    eventually(lambda: lag(http, name) == 0, "all are settled")
    assert sorted(receiver.taken()) == sorted(record["value"] for record in values(200))
    for line in receiver.got():
        headers = line["headers"]
        at, _, signed = headers["Headwater-Signature"].partition(",v1=")
        content = f"{headers['Headwater-Id']}.{at.removeprefix('t=')}.{line['body']}".encode()
        assert signed == hmac.new(b"hush", content, hashlib.sha256).hexdigest()
        assert headers["Headwater-Attempt"] == "1"


def test_the_secret_is_never_shown(http: httpx.Client, receiver: Receiver, push: Any) -> None:
    name = push(receiver.url("/ok"), secret="not-to-be-seen")
    described = http.get(f"/v1/subscriptions/{name}")
    listed = http.get("/v1/subscriptions")
    assert described.json()["push"]["is_signed"] is True
    assert "not-to-be-seen" not in described.text + listed.text


def test_a_receiver_that_fails_gets_records_again_with_a_higher_attempt(
    http: httpx.Client, topic: str, receiver: Receiver, push: Any
) -> None:
    name = push(receiver.url("/flaky"), backoff_ms=20)
    write(http, topic, values(20))
    eventually(lambda: len(receiver.taken()) >= 20, "all are taken in the end")
    eventually(lambda: lag(http, name) == 0, "all are settled")
    attempts = Counter((line["body"], line["headers"]["Headwater-Attempt"]) for line in receiver.got())
    assert attempts == Counter({(f"v{n}", a): 1 for n in range(20) for a in ("1", "2")})


def test_a_receiver_that_crashes_loses_nothing(http: httpx.Client, topic: str, receiver: Receiver, push: Any) -> None:
    name = push(receiver.url("/ok"), backoff_ms=50, max_backoff_ms=200, attempts=1000)
    written = [f"v{number}" for number in range(300)]

    def produce() -> None:
        with httpx.Client(base_url=http.base_url, trust_env=False) as client:
            for value in written:
                write(client, topic, [{"value": value}])

    producing = threading.Thread(target=produce)
    producing.start()
    for _ in range(2):
        before = len(receiver.taken())
        eventually(lambda before=before: len(receiver.taken()) > before + 20, "it is being pushed")  # type: ignore[misc]
        receiver.kill()
        failed = failures(http)
        eventually(lambda failed=failed: failures(http) > failed, "it is missed")  # type: ignore[misc]
        receiver.start()
    producing.join()
    eventually(lambda: set(receiver.taken()) >= set(written), "everything arrives")
    eventually(lambda: lag(http, name) == 0, "all are settled")
    twice = {value: count for value, count in Counter(receiver.taken()).items() if count > 1}
    # Only what was under way when it was killed can come twice: it was in its log, and the answer was not sent.
    assert len(twice) <= 2 * 32


def test_a_receiver_that_hangs_is_given_up_on_and_the_record_becomes_a_dead_letter(
    http: httpx.Client, topic: str, receiver: Receiver, push: Any
) -> None:
    name = push(receiver.url("/hang"), timeout_ms=200, attempts=2, backoff_ms=10)
    write(http, topic, [{"value": "x"}])

    def letters() -> list[Any]:
        answer = http.get(f"/v1/subscriptions/{name}/dead-letters")
        found: list[Any] = answer.json()["letters"] if answer.status_code == 200 else []
        return found

    eventually(lambda: len(letters()) == 1, "it is a dead letter")
    assert letters()[0]["reason"] == "rejected" and letters()[0]["record"]["value"] == "x"
    assert "in time" in http.get(f"/v1/subscriptions/{name}").json()["pushing"]["last_failure"]


def test_one_record_that_always_fails_holds_up_no_other(
    http: httpx.Client, topic: str, receiver: Receiver, push: Any
) -> None:
    name = push(receiver.url("/poison"), attempts=3, backoff_ms=20)
    write(http, topic, [{"value": "poison"}, *values(30)])
    eventually(lambda: len(receiver.taken()) >= 30, "the others are taken")
    eventually(lambda: lag(http, name) == 0, "and the poison is given up")
    assert sum(line["body"] == "poison" for line in receiver.got()) == 3


def test_a_slow_receiver_slows_no_other_subscription(
    http: httpx.Client, topic: str, receiver: Receiver, push: Any
) -> None:
    push(receiver.url("/slow?s=5"), concurrency=4)
    quick = push(receiver.url("/ok"))
    began_s = time.monotonic()
    write(http, topic, values(200))
    eventually(lambda: sum(line["path"] == "/ok" for line in receiver.got()) >= 200, "the quick one has all")
    eventually(lambda: lag(http, quick) == 0, "and has settled all")
    took_s = time.monotonic() - began_s
    slow = sum(line["path"] == "/slow" for line in receiver.got())
    assert slow <= 4 * (1 + took_s // 5), "no more than its concurrency in each of its five seconds"


def test_a_receiver_that_is_gone_ends_the_push_for_good(
    http: httpx.Client, topic: str, receiver: Receiver, push: Any
) -> None:
    name = push(receiver.url("/status/410"), concurrency=1)
    write(http, topic, values(5))
    eventually(lambda: bool(http.get(f"/v1/subscriptions/{name}").json()["push"]["stopped"]), "it is stopped")
    count = len(receiver.got())
    changed = http.patch(f"/v1/subscriptions/{name}", json={"push": {"url": receiver.url("/ok")}})
    assert changed.json()["push"]["stopped"] is None
    eventually(lambda: len(receiver.taken()) == 5, "with another receiver it goes on, and nothing is lost")
    assert sum(line["path"] == "/status/410" for line in receiver.got()) == count <= 5


def test_retry_after_is_heeded(http: httpx.Client, topic: str, receiver: Receiver, push: Any) -> None:
    push(receiver.url("/busy"), backoff_ms=1, max_backoff_ms=1)
    write(http, topic, [{"value": "x"}])
    eventually(lambda: receiver.taken() == ["x"], "it is taken the second time")
    first, second = receiver.got()
    assert second["at"] - first["at"] >= 0.95


def test_redirects_are_not_followed(http: httpx.Client, topic: str, receiver: Receiver, push: Any) -> None:
    push(receiver.url("/redirect"), attempts=2, backoff_ms=10)
    write(http, topic, [{"value": "x"}])
    eventually(lambda: len(receiver.got()) == 2, "it is tried twice")
    assert {line["path"] for line in receiver.got()} == {"/redirect"}


@pytest.mark.parametrize(("kind", "order"), [("queue", "key"), ("stream", "key"), ("stream", "partition")])
def test_order_is_kept_though_the_receiver_fails(
    http: httpx.Client, topic: str, receiver: Receiver, push: Any, kind: str, order: str
) -> None:
    name = push(receiver.url("/flaky"), kind, order=order, backoff_ms=5, max_backoff_ms=10)
    write(http, topic, values(60))
    eventually(lambda: len(receiver.taken()) >= 60, "all are taken")
    eventually(lambda: lag(http, name) == 0, "all are settled")
    taken = [line for line in receiver.got() if line["status"] < 300]
    lanes: dict[str, list[int]] = {}
    for line in taken:
        lane = line["headers"]["Headwater-Key" if order == "key" else "Headwater-Partition"]
        lanes.setdefault(lane, []).append(int(line["headers"]["Headwater-Offset"]))
    assert len(lanes) > 1
    assert all(offsets == sorted(offsets) for offsets in lanes.values())


def test_a_gateway_that_may_not_reach_the_receiver_leaves_it_to_the_others(
    headwater_session: Broker,
    http: httpx.Client,
    topic: str,
    receiver: Receiver,
    push: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(headwater_session.bootstrap, private_webhooks=False):
        name = push(receiver.url("/ok"))
        eventually(lambda: f"push_refused subscription={name} " in caplog.text, "the other gateway has looked")
        for number in range(5):
            write(http, topic, [{"value": f"v{number}"}])
        eventually(lambda: len(receiver.taken()) >= 5, "all arrive")
        assert http.get(f"/v1/subscriptions/{name}").json()["push"]["stopped"] is None


def is_shared_out(broker: Broker, group: str) -> bool:
    """A request that is under way while its partition goes to another member is repeated by that."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (described,) = admin.describe_consumer_groups([group]).values()
    found = described.result(60)
    return found.state is ConsumerGroupState.STABLE and all(each.assignment.topic_partitions for each in found.members)


def test_two_gateways_push_each_record_once(
    headwater_session: Broker, http: httpx.Client, topic: str, receiver: Receiver, push: Any
) -> None:
    with serving(headwater_session.bootstrap, private_webhooks=True):
        for kind in ("queue", "stream"):
            name = push(receiver.url(f"/ok?{kind}"), kind, name=f"{topic}-{kind}")
            eventually(lambda name=name: http.get(f"/v1/subscriptions/{name}").json()["members"] == 2, "both are there")  # type: ignore[misc]
        eventually(lambda: is_shared_out(headwater_session, f"{topic}-stream"), "both have their partitions")
        write(http, topic, values(100))
        eventually(lambda: len(receiver.taken()) >= 200, "both subscriptions have all")
        for kind in ("queue", "stream"):
            eventually(lambda kind=kind: lag(http, f"{topic}-{kind}") == 0, "all are settled")  # type: ignore[misc]
    assert len(receiver.taken()) == 200


def test_a_private_address_is_refused_by_a_gateway_that_was_not_told_to_allow_it(
    gateway: GatewayThread, topic: str
) -> None:
    with client_of(gateway) as client:
        body = {"name": f"{topic}-x", "topic": topic, "kind": "queue", "push": {"url": "http://127.0.0.1:1/"}}
        refused = client.post("/v1/subscriptions", json=body)
        assert refused.status_code == 400 and "not a public address" in refused.json()["detail"]
        assert "http_private_webhooks = true" in refused.json()["detail"]
        assert "`headwater gateway --private-webhooks`" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("queue", {"url": "ftp://x.example/"}),
        ("queue", {"order": "key"}),
        ("queue", {"url": "http://127.0.0.1:1/", "order": "partition"}),
        ("stream", {"url": "http://127.0.0.1:1/", "attempts": 3}),
        ("queue", {"url": "http://127.0.0.1:1/", "format": "cloudevents-binary", "batch_records": 2}),
    ],
)
def test_a_push_that_makes_no_sense_is_refused(
    http: httpx.Client, topic: str, kind: str, given: dict[str, Any]
) -> None:
    refused = http.post("/v1/subscriptions", json={"name": f"{topic}-x", "topic": topic, "kind": kind, "push": given})
    assert refused.status_code == 400, refused.text
