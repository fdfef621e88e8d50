"""Pushed subscriptions whose partitions go to other members, and come back: every record is pushed, and what a receiver
has taken is not pushed again."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from headwater.client.address import parse_bootstrap
from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.gateway.config import GatewayConfig
from headwater.gateway.kafka.settings import connection_settings
from headwater.gateway.push.source import StreamSource
from headwater.gateway.server import GatewayThread
from headwater.gateway.subscriptions.members.deliveries import Delivery
from headwater.gateway.subscriptions.members.pending_acks import AckType
from headwater.gateway.subscriptions.members.queue_member import QueueMember
from headwater.gateway.subscriptions.members.stream_member import StreamMember
from headwater.testing import Broker
from tests.gateway.gateways import client_of, serving
from tests.gateway.push.receivers import receiving
from tests.support.eventually import eventually, until
from tests.support.tasks import running

MANY, MANY_BYTES = 1_000, 1_000_000


@pytest.fixture
def http(pushing_gateway: GatewayThread) -> Iterator[httpx.Client]:
    with client_of(pushing_gateway) as client:
        yield client


def write(http: httpx.Client, topic: str, count: int) -> None:
    records = [{"value": f"v{number}", "partition": number % 3} for number in range(count)]
    answered = http.post(f"/v1/topics/{topic}/records", json={"records": records})
    assert answered.status_code == 200, answered.text


def subscribe(http: httpx.Client, topic: str, kind: str, **more: Any) -> str:
    body = {"name": f"{topic}-{kind}", "topic": topic, "kind": kind, "from": "beginning", **more}
    answered = http.post("/v1/subscriptions", json=body)
    assert answered.status_code == 201, answered.text
    return f"{topic}-{kind}"


def record(topic: str, offset: int) -> Delivery:
    return Delivery(topic, 0, offset, 0, None, b"value", ())


async def kept(source: StreamSource, member: StreamMember, deliveries: list[Delivery]) -> list[Delivery]:
    """What `keep` says, with the calls made that the member's thread would make between two polls."""
    keeping = asyncio.create_task(source.keep(deliveries))
    await until(lambda: keeping.done() or not member._calls.empty())
    await asyncio.to_thread(member._make_calls)
    return list(await keeping)


def test_a_partition_of_a_stream_that_came_back_is_pushed_and_committed(
    headwater_session: Broker, http: httpx.Client, topic: str
) -> None:
    write(http, topic, 6)

    async def scenario() -> None:
        member = StreamMember(GatewayConfig(bootstrap=headwater_session.bootstrap, port=0), f"{topic}-group", topic)
        source = StreamSource(member)
        member._gained({0})
        member._arrived([record(topic, 0)])
        before = await source.take(MANY, MANY_BYTES, 1_000)
        member._gone({0})
        member._gained({0})
        member._arrived([record(topic, 0), record(topic, 1)])
        after = await source.take(MANY, MANY_BYTES, 1_000)
        assert await kept(source, member, [*before, *after]) == before, "those of the assignment that it has are held"
        source.accept(before)
        source.accept(after)
        assert await kept(source, member, []) == []
        (place,) = await asyncio.to_thread(member._consumer.committed, [TopicPartition(topic, 0)])
        assert place.offset == 2
        await asyncio.to_thread(member._consumer.close)

    asyncio.run(scenario())


def test_what_a_stream_has_pushed_is_committed_before_its_partitions_go_to_another_member(
    headwater_session: Broker, http: httpx.Client, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamSource, "KEEP_EVERY_S", 3600.0)
    with receiving(tmp_path) as receiver:
        name = subscribe(http, topic, "stream", push={"url": receiver.url("/ok")})
        write(http, topic, 30)
        eventually(lambda: len(receiver.taken()) >= 30, "all are pushed")
        settings = {"bootstrap.servers": headwater_session.bootstrap, "group.id": name}
        other = Consumer({**settings, "auto.offset.reset": "earliest"})
        try:
            other.subscribe([topic])
            received: list[Any] = []

            def is_assigned() -> bool:
                received.extend(other.consume(100, 0.1))
                return bool(other.assignment())

            eventually(is_assigned, "the other member has partitions")
            write(http, topic, 30)
            eventually(lambda: is_assigned() and len(received) + len(receiver.taken()) >= 60, "all are read")
        finally:
            other.close()
            http.delete(f"/v1/subscriptions/{name}")
        assert len(received) + len(receiver.taken()) == 60


@pytest.mark.headwater(share_heartbeat_interval_ms=200)
def test_records_of_a_queue_are_acknowledged_though_their_partition_went_to_another_member(headwater: Broker) -> None:
    with serving(headwater.bootstrap) as gateway, client_of(gateway) as http:
        assert http.post("/v1/topics", json={"name": "t", "partitions": 3}).status_code == 201
        name = subscribe(http, "t", "queue")
        write(http, "t", 30)
    asyncio.run(acknowledged_late(headwater.bootstrap, name))


async def acknowledged_late(bootstrap: str, name: str) -> None:
    cluster = AsyncioCluster(parse_bootstrap(bootstrap), connection_settings(GatewayConfig(bootstrap=bootstrap)))
    first, second = (QueueMember(cluster, name, "t") for _ in range(2))
    async with running(first.run()):
        taken: list[Delivery] = []
        while len(taken) < 30:
            taken += await first.take(MANY, MANY_BYTES, 1_000)
        assert {each.partition for each in taken} == {0, 1, 2}
        async with running(second.run()):
            await until(lambda: sum(len(link.partitions) for link, _ in first._links.values()) < 3)
            answers = await first.acknowledge([(first.ack_id(each), AckType.ACCEPT) for each in taken])
            assert {answer.status for answer in answers} == {"done"}
            assert await second.take(MANY, MANY_BYTES, 100) == []
    cluster.close()
