"""The registry beside a cluster: every node validates, wherever the registry's topic is led."""

from collections.abc import Iterator
from functools import partial

import httpx
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.cluster.small_cluster import SmallCluster
from tests.gateway.gateways import client_of, serving
from tests.support.eventually import eventually

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    with SmallCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.add_all(1, 2, 3)


@pytest.fixture(scope="module")
def http(cluster: SmallCluster) -> Iterator[httpx.Client]:
    with serving(cluster.bootstrap) as gateway, client_of(gateway) as http:
        yield http


def produce(cluster: SmallCluster, topic: str, value: bytes) -> list[int | None]:
    """The error of each partition."""
    codes: list[int | None] = [None] * PARTITIONS
    producer = Producer({"bootstrap.servers": cluster.bootstrap})

    def delivered(error: KafkaError | None, message: object) -> None:
        codes[message.partition()] = error.code() if error is not None else None  # type: ignore[attr-defined]

    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(60) == 0
    return codes


def alter(http: httpx.Client, config: dict[str, str]) -> httpx.Response | None:
    """None while the registry says that it cannot be done now."""
    answer = http.put("/config/orders-value", json=config)
    return answer if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE else None


def test_every_leader_knows_what_was_registered_and_what_was_not(cluster: SmallCluster, http: httpx.Client) -> None:
    config = {"headwater.schema.validation": "true"}
    made = http.post("/v1/topics", json={"name": "orders", "partitions": PARTITIONS, "config": config})
    assert made.status_code == 201, made.text
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def leaders() -> set[int]:
        partitions = admin.list_topics("orders", timeout=30).topics["orders"].partitions
        return {partition.leader for partition in partitions.values()}

    eventually(lambda: leaders() == {1, 2, 3}, "every node leads, and every partition is led")
    for name in ("First", "Second"):
        schema = f'{{"type": "fixed", "name": "{name}", "size": 1}}'
        # The topic of the schemas was just made: its leader may still move.
        changed = eventually(partial(alter, http, {"compatibility": "NONE"}), "the registry's topic is led")
        assert changed.status_code == 200, changed.text
        registered = http.post("/subjects/orders-value/versions", json={"schema": schema})
        assert registered.status_code == 200, registered.text
        value = b"\0" + registered.json()["id"].to_bytes(4, "big") + b"x"
        assert produce(cluster, "orders", value) == [None] * PARTITIONS
    assert produce(cluster, "orders", b"\0\x7f\0\0\0x") == [KafkaError.INVALID_RECORD] * PARTITIONS
    topic = http.get("/v1/topics/_schemas").json()
    assert [len(partition["replicas"]) for partition in topic["partitions"]] == [3]
