"""The broker refuses records whose schema is not the topic's, with the record's index and the reason."""

import uuid
from contextlib import closing
from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaError, Producer

from headwater.client.address import parse_bootstrap
from headwater.client.blocking_cluster import BlockingCluster
from headwater.client.settings import ConnectionSettings
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing import Broker
from headwater.wire.typed.produce import PartitionProduceData, ProduceRequest, TopicProduceData

VALIDATION = "headwater.schema.validation"


@pytest.fixture
def validated(http: httpx.Client, name: str) -> str:
    made = http.post("/v1/topics", json={"name": name, "partitions": 1, "config": {VALIDATION: "true"}})
    assert made.status_code == 201, made.text
    return name


def register(http: httpx.Client, subject: str, schema: str = '"string"') -> int:
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": schema})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def framed(schema_id: int, value: bytes = b"\x02a") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + value


def produce(broker: Broker, topic: str, *values: bytes | None, key: bytes | None = None, **config: Any) -> list[Any]:
    """The error of each record, in one batch."""
    errors: list[Any] = [None] * len(values)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 200, **config})
    for index, value in enumerate(values):
        producer.produce(topic, value, key, 0, on_delivery=lambda error, _, at=index: errors.__setitem__(at, error))
    assert producer.flush(60) == 0
    return errors


def test_a_record_with_the_topics_schema_is_taken_at_once_when_it_was_registered(
    http: httpx.Client, headwater_session: Broker, validated: str
) -> None:
    for index in range(5):
        unique = f'{{"type": "fixed", "size": 2, "name": "F_{uuid.uuid4().hex}"}}'
        http.put(f"/config/{validated}-value", json={"compatibility": "NONE"})
        schema_id = register(http, f"{validated}-value", unique)
        assert produce(headwater_session, validated, framed(schema_id)) == [None], index


@pytest.mark.parametrize("settings", [{}, {"enable.idempotence": True}, {"compression.type": "zstd"}])
def test_an_unknown_schema_is_refused_and_the_next_record_is_taken(
    http: httpx.Client, headwater_session: Broker, validated: str, settings: dict[str, Any]
) -> None:
    schema_id = register(http, f"{validated}-value")
    (error,) = produce(headwater_session, validated, framed(2_000_000_000), **settings)
    assert error.code() == KafkaError.INVALID_RECORD
    assert produce(headwater_session, validated, framed(schema_id), None, **settings) == [None, None]


def test_the_schema_of_another_subject_is_refused(
    http: httpx.Client, headwater_session: Broker, validated: str, name: str
) -> None:
    other = register(http, f"{name}-another-value")
    assert produce(headwater_session, validated, framed(other))[0].code() == KafkaError.INVALID_RECORD
    assert produce(headwater_session, validated, b"no schema")[0].code() == KafkaError.INVALID_RECORD
    assert produce(headwater_session, validated, b"")[0].code() == KafkaError.INVALID_RECORD
    register(http, f"{validated}-value")
    assert produce(headwater_session, validated, framed(other)) == [None], "the same schema has the same id"


def test_the_answer_names_each_record_and_its_reason(
    http: httpx.Client, headwater_session: Broker, validated: str
) -> None:
    schema_id = register(http, f"{validated}-value")
    values = [framed(schema_id), b"none", framed(schema_id), framed(1_999_999_999)]
    batch = build_batch([Record(None, value) for value in values])
    partition = PartitionProduceData(index=0, records=bytes(batch))
    topic = TopicProduceData(name=validated, partition_data=(partition,))
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=(topic,))
    cluster = BlockingCluster(parse_bootstrap(headwater_session.bootstrap), ConnectionSettings(client_id="test"))
    with closing(cluster):
        answer = cluster.ask(request)
    (result,) = answer.responses[0].partition_responses
    assert result.error_code == 87
    assert [(each.batch_index, each.batch_index_error_message) for each in result.record_errors] == [
        (1, "The value has no schema: it has 4 bytes, too few for a schema id."),
        (3, "Schema 1999999999 of the value is unknown."),
    ]
    assert "record 1" in (result.error_message or "")


def test_keys_are_validated_where_that_is_asked_for_by_either_name(
    http: httpx.Client, headwater_session: Broker, name: str
) -> None:
    made = http.post(
        "/v1/topics", json={"name": name, "partitions": 1, "config": {"confluent.key.schema.validation": "true"}}
    )
    assert made.status_code == 201, made.text
    schema_id = register(http, f"{name}-key")
    assert produce(headwater_session, name, b"anything", key=framed(schema_id)) == [None]
    assert produce(headwater_session, name, b"anything", key=b"k")[0].code() == KafkaError.INVALID_RECORD


def test_batches_keep_their_order_while_the_registry_is_asked(
    http: httpx.Client, headwater_session: Broker, validated: str
) -> None:
    schema_id = register(http, f"{validated}-value")
    config: dict[str, Any] = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 10}
    values = [framed(schema_id, b"%06d" % index) for index in range(2_000)]
    errors = produce(headwater_session, validated, *values, **config)
    assert errors == [None] * 2_000
    told = http.get(f"/v1/topics/{validated}/records", params={"partition": 0, "offset": 0, "limit": 2_000}).json()
    assert len(told["records"]) == 2_000


def test_turning_it_off_takes_everything(http: httpx.Client, headwater_session: Broker, validated: str) -> None:
    assert produce(headwater_session, validated, b"plain")[0].code() == KafkaError.INVALID_RECORD
    assert http.patch(f"/v1/topics/{validated}", json={"config": {VALIDATION: None}}).status_code == 200
    assert produce(headwater_session, validated, b"plain") == [None]
