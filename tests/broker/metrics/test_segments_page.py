"""GET /segments on the metrics address: where the segments of a topic lie."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.testing.broker import Broker
from headwater.transport.ports import free_port
from tests.cluster.small_cluster import SmallCluster


def page(port: int, query: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/segments{query}", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        return json.load(answer)


def write(bootstrap: str, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for number in range(60):
        producer.produce(topic, b"x" * 30_000, partition=number % partitions, timestamp=1_700_000_000_000 + number)
    assert producer.flush(60) == 0


def test_segments_are_told_in_order_and_the_last_is_open() -> None:
    port = free_port()
    with Broker(metrics=f"127.0.0.1:{port}") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {"segment.bytes": str(1024 * 1024)}
        admin.create_topics([NewTopic("orders", 1, 1, config=config)])["orders"].result()
        write(broker.bootstrap, "orders", 1)
        found = page(port, "?topic=orders")
        sealed, opened = found["segments"]
        assert (sealed["state"], opened["state"]) == ("sealed", "open")
        assert (sealed["start_offset"], opened["end_offset"]) == (0, 60)
        assert sealed["end_offset"] == opened["start_offset"]
        assert sealed["last_timestamp"] == 1_700_000_000_000 + sealed["end_offset"] - 1
        assert sealed["size_bytes"] + opened["size_bytes"] > 60 * 30_000
        assert sealed["nodes"] == opened["nodes"] != []
        assert found["left_out"] == found["partitions_left_out"] == 0


def test_what_cannot_be_told_is_said() -> None:
    port = free_port()
    with Broker(metrics=f"127.0.0.1:{port}"):
        for query, status in (("?topic=nosuch", 404), ("", 400), ("?topic=a&" + "x=1&" * 50, 400)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                page(port, query)
            assert refused.value.code == status
            refused.value.close()


def test_a_page_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.broker.metrics.segments_page.MAX_SHOWN", 2)
    port = free_port()
    with Broker(metrics=f"127.0.0.1:{port}") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 5, 1)])["t"].result()
        found = page(port, "?topic=t")
        assert (len(found["segments"]), found["left_out"]) == (2, 3)


def test_any_node_tells_of_partitions_that_others_lead(tmp_path: Path) -> None:
    port = free_port()
    with SmallCluster(tmp_path) as cluster:
        cluster.add(1, metrics=f"127.0.0.1:{port}")
        cluster.add(2)
        cluster.create("orders", 4, 2)
        write(cluster.bootstrap, "orders", 4)
        found = page(port, "?topic=orders")["segments"]
        assert {each["partition"] for each in found} == {0, 1, 2, 3}
        assert all(each["nodes"] == [1, 2] for each in found)
        assert None in {each["end_offset"] for each in found}, "node 2 leads some, and only it knows their ends"
