"""The producer that requests share, without HTTP."""

import asyncio
import uuid

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.gateway.config import GatewayConfig
from headwater.gateway.kafka.producer import Delivered, OutgoingRecord, RecordProducer
from headwater.testing import Broker
from tests.support.eventually import PATIENCE_S


def topic_at(broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (made,) = admin.create_topics([NewTopic(name, 1)]).values()
    made.result()
    return name


def test_what_waits_when_the_producer_closes_is_told(headwater_session: Broker) -> None:
    topic = topic_at(headwater_session)

    async def run() -> list[object]:
        producer = RecordProducer(GatewayConfig(headwater_session.bootstrap), asyncio.get_running_loop())
        waiting = producer.send(topic, [OutgoingRecord(b"x")] * 100, 100)
        await producer.close()
        return list(await asyncio.wait_for(waiting, PATIENCE_S))

    outcomes = asyncio.run(run())
    assert len(outcomes) == 100
    assert all(isinstance(outcome, Delivered) for outcome in outcomes)


def test_without_a_cluster_every_record_has_its_outcome() -> None:
    async def run() -> list[object]:
        config = GatewayConfig("127.0.0.1:1", request_timeout_ms=1000)
        producer = RecordProducer(config, asyncio.get_running_loop())
        outcomes = await asyncio.wait_for(producer.send("t", [OutgoingRecord(b"x")] * 10, 10), PATIENCE_S)
        assert producer.in_flight == producer.in_flight_bytes == 0
        await producer.close()
        return list(outcomes)

    outcomes = asyncio.run(run())
    assert len(outcomes) == 10
    assert all(isinstance(outcome, KafkaError) for outcome in outcomes)


def test_after_a_fatal_error_another_producer_takes_over(headwater_session: Broker) -> None:
    topic = topic_at(headwater_session)

    async def run() -> tuple[list[object], list[object]]:
        producer = RecordProducer(GatewayConfig(headwater_session.bootstrap), asyncio.get_running_loop())
        first = producer.send(topic, [OutgoingRecord(b"x")] * 5, 5)
        producer._replace()  # librdkafka's fatal errors cannot be had for the asking
        outcomes = await asyncio.wait_for(first, PATIENCE_S)
        again = await asyncio.wait_for(producer.send(topic, [OutgoingRecord(b"y")], 1), PATIENCE_S)
        assert producer.in_flight == 0
        await producer.close()
        return list(outcomes), list(again)

    outcomes, again = asyncio.run(run())
    assert len(outcomes) == 5
    assert all(isinstance(outcome, Delivered | KafkaError) for outcome in outcomes), "each was told what became of it"
    assert isinstance(again[0], Delivered)
