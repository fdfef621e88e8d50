"""Subscriptions over HTTP: made, pulled from, acknowledged and ended."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.eventually import eventually


@pytest.fixture
def write(http: httpx.Client, topic: str) -> Callable[..., None]:
    def write(*values: str, **more: Any) -> None:
        records = [{"value": value, **more} for value in values]
        answered = http.post(f"/v1/topics/{topic}/records", json={"records": records})
        assert answered.status_code == 200, answered.text

    return write


def subscribe(http: httpx.Client, topic: str, name: str, **more: Any) -> dict[str, Any]:
    made = http.post("/v1/subscriptions", json={"name": name, "topic": topic, **more})
    assert made.status_code == 201, made.text
    answer: dict[str, Any] = made.json()
    return answer


def pull(http: httpx.Client, name: str, **more: Any) -> list[dict[str, Any]]:
    answered = http.post(f"/v1/subscriptions/{name}/pull", json={"wait_ms": 5000, **more})
    assert answered.status_code == 200, answered.text
    records: list[dict[str, Any]] = answered.json()["records"]
    return records


def pull_all(http: httpx.Client, name: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def has_all() -> bool:
        found.extend(pull(http, name))
        return len(found) >= count

    eventually(has_all, lambda: f"{len(found)} of {count} records came")
    assert len(found) == count
    return found


def acknowledge(http: httpx.Client, name: str, **verdicts: list[str]) -> list[str]:
    answered = http.post(f"/v1/subscriptions/{name}/ack", json=verdicts)
    assert answered.status_code == 200, answered.text
    return [result["status"] for result in answered.json()["results"]]


def test_a_queue_gives_each_record_once_until_it_is_settled(
    http: httpx.Client, topic: str, write: Callable[..., None]
) -> None:
    made = subscribe(http, topic, f"{topic}-q", kind="queue")
    assert (made["kind"], made["topic"], made["lag"], made["push"]) == ("queue", topic, 0, None)
    write("a", "b", "c")
    records = pull_all(http, f"{topic}-q", 3)
    assert sorted(record["value"] for record in records) == ["a", "b", "c"]
    assert all(record["delivery_count"] == 1 and record["topic"] == topic for record in records)
    ids = [record["ack_id"] for record in records]
    assert acknowledge(http, f"{topic}-q", accept=ids) == ["done"] * 3
    assert acknowledge(http, f"{topic}-q", accept=ids[:1]) == ["settled"]
    assert acknowledge(http, f"{topic}-q", accept=["nonsense"]) == ["unknown"]
    assert pull(http, f"{topic}-q", wait_ms=200) == []
    described = http.get(f"/v1/subscriptions/{topic}-q").json()
    assert (described["lag"], described["in_flight"], described["members"]) == (0, 0, 1)


def test_a_released_record_comes_again_and_a_rejected_one_is_a_dead_letter(
    http: httpx.Client, topic: str, write: Callable[..., None]
) -> None:
    name = f"{topic}-q"
    subscribe(http, topic, name, kind="queue", dead_letter_topic=f"{topic}-failed")
    write("x")
    (first,) = pull(http, name)
    assert acknowledge(http, name, release=[first["ack_id"]]) == ["done"]
    (second,) = pull(http, name)
    assert second["delivery_count"] == 2
    assert acknowledge(http, name, extend=[second["ack_id"]]) == ["done"]
    assert acknowledge(http, name, reject=[second["ack_id"]], accept=[first["ack_id"]]) == ["settled", "done"]
    (letter,) = eventually(lambda: http.get(f"/v1/subscriptions/{name}/dead-letters").json()["letters"], "it is there")
    assert letter["record"]["value"] == "x" and letter["reason"] == "rejected" and letter["group"] == name
    assert letter["origin"] == f"{topic}/{second['partition']}/{second['offset']}"
    redriven = http.post(f"/v1/subscriptions/{name}/redrive", json={"limit": 10}, timeout=60)
    assert redriven.status_code == 200, redriven.text
    assert redriven.json()["redriven"] == 1 and redriven.json()["targets"] == {topic: 1}
    (again,) = pull(http, name)
    assert again["value"] == "x"
    assert acknowledge(http, name, accept=[again["ack_id"]]) == ["done"]
    assert http.post(f"/v1/subscriptions/{name}/redrive", timeout=60).json()["redriven"] == 0


def test_a_pull_that_waits_gets_a_record_when_it_comes(
    http: httpx.Client, topic: str, write: Callable[..., None]
) -> None:
    subscribe(http, topic, f"{topic}-q", kind="queue")
    pull(http, f"{topic}-q", wait_ms=0)
    timer = threading.Timer(0.3, write, ["late"])
    timer.start()
    (record,) = pull(http, f"{topic}-q", wait_ms=20_000)
    timer.join()
    assert record["value"] == "late"


def test_pulls_of_one_queue_share_its_records(http: httpx.Client, topic: str, write: Callable[..., None]) -> None:
    name = f"{topic}-q"
    subscribe(http, topic, name, kind="queue")
    write(*(str(number) for number in range(40)))
    found: list[str] = []

    def work() -> None:
        with httpx.Client(base_url=http.base_url, trust_env=False, timeout=30) as client:
            while records := pull(client, name, max_records=3, wait_ms=1000):
                found.extend(record["value"] for record in records)
                acknowledge(client, name, accept=[record["ack_id"] for record in records])

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(found, key=int) == [str(number) for number in range(40)]


def test_a_stream_goes_on_after_what_was_pulled_and_comes_back_to_what_was_committed(
    http: httpx.Client, topic: str, write: Callable[..., None]
) -> None:
    name = f"{topic}-s"
    write("a", "b", "c", partition=1)
    subscribe(http, topic, name, **{"from": "beginning"})
    records = pull_all(http, name, 3)
    assert [(record["value"], record["offset"]) for record in records] == [("a", 0), ("b", 1), ("c", 2)]
    assert "ack_id" not in records[0]
    committed = http.post(f"/v1/subscriptions/{name}/commit", json={"offsets": [{"partition": 1, "offset": 2}]})
    assert committed.status_code == 204, committed.text
    assert http.get(f"/v1/subscriptions/{name}").json()["lag"] == 1
    (again,) = pull(http, name, rewind=True)
    assert again["value"] == "c"


def test_a_subscription_is_listed_changed_and_deleted(http: httpx.Client, topic: str) -> None:
    name = f"{topic}-q"
    subscribe(http, topic, name, kind="queue", order="key", retention_ms=3_600_000)
    listed = {each["name"]: each for each in http.get("/v1/subscriptions").json()["subscriptions"]}
    assert listed[name]["kind"] == "queue"
    changed = http.patch(
        f"/v1/subscriptions/{name}", json={"paused": True, "config": {"share.delivery.count.limit": "7"}}
    )
    assert changed.status_code == 200, changed.text
    assert changed.json()["state"] == "paused" and changed.json()["config"]["share.delivery.count.limit"] == "7"
    assert changed.json()["config"]["headwater.share.order"] == "key"
    back = http.patch(
        f"/v1/subscriptions/{name}", json={"paused": False, "config": {"share.delivery.count.limit": None}}
    )
    assert back.json()["state"] != "paused" and "share.delivery.count.limit" not in back.json()["config"]
    assert http.delete(f"/v1/subscriptions/{name}").status_code == 204
    assert http.get(f"/v1/subscriptions/{name}").status_code == 404
    assert subscribe(http, topic, name, kind="queue")["config"].get("headwater.share.order") is None


def test_a_subscription_that_was_read_can_be_deleted(
    http: httpx.Client, topic: str, write: Callable[..., None]
) -> None:
    for kind in ("queue", "stream"):
        subscribe(http, topic, f"{topic}-{kind}", kind=kind)
        write("x")
        assert pull(http, f"{topic}-{kind}", wait_ms=10_000)
        deleted = http.delete(f"/v1/subscriptions/{topic}-{kind}")
        assert deleted.status_code == 204, deleted.text


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/subscriptions", {"name": "n"}, 400),
        ("/v1/subscriptions", {"name": "a/b", "topic": "t"}, 400),
        ("/v1/subscriptions", {"name": "n", "topic": "no-such-topic-there-is"}, 404),
        ("/v1/subscriptions", {"name": "n", "topic": "t", "filter": "key = 'x'"}, 400),
        ("/v1/subscriptions", {"name": "n", "topic": "t", "surprise": 1}, 400),
        ("/v1/subscriptions", {"name": "n", "topic": "t", "config": {"headwater.push.url": "http://x/"}}, 400),
        ("/v1/subscriptions/nobody/pull", {}, 404),
        ("/v1/subscriptions/nobody/pull", {"max_records": 0}, 400),
        ("/v1/subscriptions/nobody/ack", {"accept": ["x"]}, 404),
        ("/v1/subscriptions/nobody/commit", {"offsets": []}, 400),
        ("/v1/subscriptions/nobody/redrive", {}, 404),
    ],
)
def test_what_cannot_be_done_is_told(http: httpx.Client, path: str, body: dict[str, Any], status: int) -> None:
    answered = http.post(path, json=body)
    assert answered.status_code == status, answered.text
    assert answered.headers["content-type"] == "application/problem+json"
    assert answered.json()["detail"]


def test_a_queue_is_not_committed_and_a_stream_not_acknowledged(http: httpx.Client, topic: str) -> None:
    subscribe(http, topic, f"{topic}-q", kind="queue")
    subscribe(http, topic, f"{topic}-s")
    committed = http.post(f"/v1/subscriptions/{topic}-q/commit", json={"offsets": [{"partition": 0, "offset": 0}]})
    assert committed.status_code == 409
    assert http.post(f"/v1/subscriptions/{topic}-s/ack", json={"accept": ["x"]}).status_code == 409
    again = http.post("/v1/subscriptions", json={"name": f"{topic}-q", "topic": topic, "kind": "queue"})
    assert again.status_code == 409


def test_what_a_client_held_that_went_away_comes_again(
    http: httpx.Client, topic: str, write: Callable[..., None]
) -> None:
    name = f"{topic}-q"
    subscribe(http, topic, name, kind="queue")
    pull(http, name, wait_ms=0)
    with httpx.Client(base_url=http.base_url, trust_env=False, timeout=0.3) as hasty, pytest.raises(httpx.ReadTimeout):
        hasty.post(f"/v1/subscriptions/{name}/pull", json={"wait_ms": 20_000})
    write("kept")
    (record,) = pull(http, name)
    assert record["value"] == "kept"
