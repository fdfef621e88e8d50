"""Topics, groups, the cluster and health over HTTP."""

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from headwater.gateway.topics.descriptions import summaries
from headwater.testing import Broker
from headwater.transport.ports import free_port
from tests.gateway.gateways import client_of, reading, serving
from tests.support.eventually import eventually


def test_a_topic_is_made_shown_and_deleted(http: httpx.Client, name: str) -> None:
    made = http.post("/v1/topics", json={"name": name, "partitions": 4, "config": {"retention.ms": 60000}})
    assert made.status_code == 201
    assert made.headers["location"] == f"/v1/topics/{name}"
    shown = http.get(f"/v1/topics/{name}").json()
    assert shown == made.json()
    assert [partition["partition"] for partition in shown["partitions"]] == [0, 1, 2, 3]
    assert {partition["end_offset"] for partition in shown["partitions"]} == {0}
    assert shown["internal"] is False and len(shown["topic_id"]) == 22
    settings = {setting["name"]: setting for setting in shown["config"]}
    assert settings["retention.ms"]["value"] == "60000"
    assert settings["retention.ms"]["is_default"] is False
    assert settings["cleanup.policy"]["is_default"] is True
    assert http.delete(f"/v1/topics/{name}").status_code == 204
    assert http.get(f"/v1/topics/{name}").status_code == 404
    assert http.delete(f"/v1/topics/{name}").status_code == 404
    assert http.post(f"/v1/topics/{name}/records", json={"value": 1}).status_code == 404


def test_the_list_counts_what_topics_hold(http: httpx.Client, topic: str) -> None:
    http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": "x" * 100}] * 10})
    listed = {each["name"]: each for each in http.get("/v1/topics").json()["topics"]}
    assert listed[topic]["records"] == 10
    assert listed[topic]["partitions"] == 3
    assert listed[topic]["replication_factor"] == 1
    assert listed[topic]["size_bytes"] > 1000
    assert not any(name.startswith("__") for name in listed)


def test_internal_topics_are_listed_when_asked_for(http: httpx.Client, headwater_session: Broker, topic: str) -> None:
    http.post(f"/v1/topics/{topic}/records", json={"value": 1})
    with reading(headwater_session, topic, topic):
        listed = http.get("/v1/topics", params={"internal": "true"}).json()["topics"]
    assert any(each["internal"] and each["name"] == "__consumer_offsets" for each in listed)


def test_settings_change_and_go_back_and_partitions_grow(http: httpx.Client, topic: str) -> None:
    def setting(answer: httpx.Response, name: str) -> tuple[str, bool]:
        assert answer.status_code == 200, answer.text
        (found,) = (each for each in answer.json()["config"] if each["name"] == name)
        return found["value"], found["is_default"]

    change = {"config": {"retention.ms": 1000, "compression.type": "zstd"}, "partitions": 5}
    changed = http.patch(f"/v1/topics/{topic}", json=change)
    assert setting(changed, "retention.ms") == ("1000", False)
    assert len(changed.json()["partitions"]) == 5
    back = http.patch(f"/v1/topics/{topic}", json={"config": {"retention.ms": None}})
    assert setting(back, "retention.ms")[1] is True
    assert setting(back, "compression.type") == ("zstd", False)
    placed = http.post(f"/v1/topics/{topic}/records", json={"value": 1, "partition": 4})
    assert placed.status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "a b"}, 400),
        ({"name": ""}, 400),
        ({"name": "x" * 250}, 400),
        ({"name": "__mine"}, 400),
        ({"name": ".."}, 400),
        ({"name": "t", "partitions": 0}, 400),
        ({"name": "t", "partitions": 10**9}, 400),
        ({"name": "t", "replication_factor": 30}, 400),
        ({"name": "t", "config": {"no.such.setting": "1"}}, 400),
        ({"name": "t", "config": {"retention.ms": "soon"}}, 400),
        ({"name": "t", "colour": "red"}, 400),
        ({}, 400),
        ([], 400),
    ],
)
def test_a_topic_that_cannot_be_is_refused(http: httpx.Client, body: object, status: int) -> None:
    answer = http.post("/v1/topics", json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_topic_is_made_once(http: httpx.Client, topic: str) -> None:
    assert http.post("/v1/topics", json={"name": topic}).status_code == 409


def test_fewer_partitions_than_there_are_is_refused(http: httpx.Client, topic: str) -> None:
    assert http.patch(f"/v1/topics/{topic}", json={"partitions": 1}).status_code == 400
    assert http.patch("/v1/topics/no-such-topic", json={"partitions": 9}).status_code == 404
    assert http.delete("/v1/topics/__consumer_offsets").status_code in (403, 404)


def test_a_body_must_say_that_it_is_json(http: httpx.Client, name: str) -> None:
    content = f'{{"name": "{name}"}}'
    assert http.post("/v1/topics", content=content, headers={"content-type": "text/plain"}).status_code == 415
    assert http.get(f"/v1/topics/{name}").status_code == 404


def test_groups_show_members_and_lag(http: httpx.Client, headwater_session: Broker, topic: str) -> None:
    records = [{"value": n, "partition": 0} for n in range(10)]
    http.post(f"/v1/topics/{topic}/records", json={"records": records})
    group = f"group-of-{topic}"
    with reading(headwater_session, topic, group):
        shown = http.get(f"/v1/groups/{group}").json()
        listed = {each["name"]: each for each in http.get("/v1/groups").json()["groups"]}
    figures = {"members": 1, "lag": 9, "unknown_partitions": 2}
    assert listed[group] == {"name": group, "kind": "classic", "state": "stable", **figures}
    assert (shown["lag"], shown["unknown_partitions"]) == (9, 2)
    (member,) = shown["members"]
    assert len(member["assignment"]) == 3
    (begun,) = (each for each in shown["partitions"] if each["committed"] is not None)
    assert begun == {"topic": topic, "partition": 0, "committed": 1, "end_offset": 10, "lag": 9}
    assert http.get("/v1/groups/no-such-group").status_code == 404


def test_what_a_member_has_not_committed_lags_from_the_start_of_its_log(
    http: httpx.Client, headwater_session: Broker, topic: str
) -> None:
    records = [{"value": n, "partition": n % 3} for n in range(30)]
    http.post(f"/v1/topics/{topic}/records", json={"records": records})
    group = f"group-of-{topic}"
    with reading(headwater_session, topic, group):
        shown = http.get(f"/v1/groups/{group}").json()
        listed = {each["name"]: each for each in http.get("/v1/groups").json()["groups"]}
    assert sorted((each["committed"] or 0, each["lag"]) for each in shown["partitions"]) == [(0, 10), (0, 10), (1, 9)]
    for told in (shown, listed[group]):
        assert (told["lag"], told["unknown_partitions"]) == (29, 2)


def test_who_left_a_group_is_told_with_the_reason(name: str) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    with (
        Broker(metrics=metrics) as broker,
        serving(broker.bootstrap, broker_pages=metrics) as gateway,
        client_of(gateway) as http,
    ):
        http.post("/v1/topics", json={"name": name})
        http.post(f"/v1/topics/{name}/records", json={"value": 1})
        with reading(broker, name, "leavers"):
            pass
        left = eventually(lambda: http.get("/v1/groups/leavers").json()["departures"], "the group tells who left")
    assert "left" in left[0]["reason"]
    assert left[0]["at"] > 1_700_000_000_000


def test_the_cluster_names_its_nodes(http: httpx.Client, headwater_session: Broker, topic: str) -> None:
    shown = http.get("/v1/cluster").json()
    (node,) = shown["nodes"]
    assert (node["host"], node["port"]) == (headwater_session.host, headwater_session.port)
    assert node["node_id"] == shown["controller"]
    listed = http.get("/v1/topics").json()["topics"]
    made = sum(topic["partitions"] for topic in listed)
    assert node["leads"] == made >= 3 and node["replicas"] == made, "of what /v1/topics lists"
    everything = sum(topic["partitions"] for topic in http.get("/v1/topics?internal=true").json()["topics"])
    assert node["internal_leads"] == everything - made
    assert shown["under_replicated"] == shown["offline"] == 0
    assert shown["cluster_id"]


def test_health_and_metrics(http: httpx.Client, topic: str) -> None:
    assert http.get("/healthz").text == "ok\n"
    assert http.get("/readyz").status_code == 200
    http.post(f"/v1/topics/{topic}/records", json={"value": 1})
    page = http.get("/metrics").text
    assert 'headwater_http_requests_total{method="POST",route="/v1/topics/{topic}/records",status="200"}' in page
    assert "headwater_http_request_seconds_bucket" in page
    assert topic not in page, "paths of clients are no labels"


def test_unknown_paths_and_methods_are_problems(http: httpx.Client) -> None:
    for answer, status in ((http.get("/v1/nothing"), 404), (http.put("/v1/topics"), 405)):
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"


def test_segments_need_a_broker_that_tells(http: httpx.Client, topic: str) -> None:
    assert "metrics" in http.get(f"/v1/topics/{topic}/segments").json()["detail"]
    assert http.get("/v1/topics/no-such-topic/segments").status_code == 404


def test_a_cluster_that_is_gone_is_a_503_and_no_hang(headwater_subprocess: Broker, name: str) -> None:
    with serving(headwater_subprocess.bootstrap, request_timeout_ms=2000) as gateway, client_of(gateway) as http:
        assert http.post("/v1/topics", json={"name": name}).status_code == 201
        assert http.post(f"/v1/topics/{name}/records", json={"value": 1}).status_code == 200
        headwater_subprocess.kill()
        for answer in (
            http.post(f"/v1/topics/{name}/records", json={"value": 2}),
            http.post(f"/v1/topics/{name}/records", json={"value": 2}, headers={"Idempotency-Key": name}),
            http.get(f"/v1/topics/{name}/records"),
            http.get("/v1/topics"),
            http.get("/v1/cluster"),
            http.get("/v1/groups"),
            http.post("/v1/topics", json={"name": f"{name}-2"}),
            http.get("/readyz"),
        ):
            assert answer.status_code == 503, (str(answer.request.url), answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
        assert "No broker answers this gateway" in http.get("/v1/topics").json()["detail"]
        assert http.get("/healthz").status_code == 200
        headwater_subprocess.restart()
        for _ in range(20):
            again = http.post(f"/v1/topics/{name}/records", json={"value": 3})
            if again.status_code == 200:
                break
        assert again.status_code == 200, "it is found again when it is back"


def test_partitions_that_no_node_leads_are_told_and_not_counted() -> None:
    """The cluster is one that answers from memory: a node of a real one would take the lead again."""

    class Cluster:
        async def metadata(self) -> Any:
            partition = SimpleNamespace(replicas=[1])
            topic = SimpleNamespace(topic="orders", partitions={0: partition, 1: partition, 2: partition})
            return SimpleNamespace(topics={"orders": topic}, brokers={})

        async def offset_range(self, _: Any) -> dict[tuple[str, int], tuple[int, int]]:
            return {("orders", 0): (2, 10)}

        async def sizes(self, _: Any) -> dict[tuple[str, int], int]:
            return {}

    admin: Any = Cluster()
    (summary,) = asyncio.run(summaries(admin, internal=False))
    assert (summary.records, summary.unknown_partitions, summary.size_bytes) == (8, 2, None)
