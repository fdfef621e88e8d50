"""confluent-kafka's registry client and its (de)serializers against the registry, unchanged."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.timestamp_pb2 import Timestamp

from headwater.gateway.server import GatewayThread
from headwater.testing import Broker
from tests.gateway.registry.registry_client import ORDER, value_of

pytestmark = pytest.mark.clients

ORDER_WITH_TOTAL = ORDER.replace("]}", ', {"name": "total", "type": "double", "default": 0}]}')


@pytest.fixture
def client(gateway: GatewayThread) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"http://{gateway.host}:{gateway.port}"}) as client:
        yield client


@pytest.fixture
def carry(headwater_session: Broker, topic: str) -> Callable[[bytes], bytes]:
    """Through a topic of the broker and back."""

    def carried(value: bytes) -> bytes:
        producer = Producer({"bootstrap.servers": headwater_session.bootstrap})
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        settings = {
            "bootstrap.servers": headwater_session.bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        try:
            consumer.subscribe([topic])
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            return bytes(message.value())
        finally:
            consumer.close()

    return carried


def test_avro_goes_through_a_topic_and_is_read_with_a_later_schema(
    client: SchemaRegistryClient, carry: Callable[[bytes], bytes], topic: str, http: httpx.Client
) -> None:
    written = AvroSerializer(client, ORDER)({"id": 7, "note": "soon"}, value_of(topic))
    assert written is not None and written[0] == 0
    read = AvroDeserializer(client, ORDER_WITH_TOTAL)(carry(written), value_of(topic))
    assert read == {"id": 7, "note": "soon", "total": 0.0}
    assert client.get_latest_version(f"{topic}-value").version == 1
    (record,) = http.get(f"/v1/topics/{topic}/records", params={"partition": 0, "decode": "schema"}).json()["records"]
    assert record["value"] == {"id": 7, "note": "soon"}
    schema_id = client.get_latest_version(f"{topic}-value").schema_id
    assert record["schema"] == {"id": schema_id, "type": "AVRO", "subject": f"{topic}-value", "version": 1}


def test_avro_with_a_reference_is_read_with_it(client: SchemaRegistryClient, topic: str) -> None:
    address = '{"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}'
    client.register_schema(f"{topic}-address", Schema(address, "AVRO"))
    person = '{"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Address"}]}'
    schema = Schema(person, "AVRO", [SchemaReference("Address", f"{topic}-address", 1)])
    written = AvroSerializer(client, schema)({"home": {"city": "Bonn"}}, value_of(topic))
    assert AvroDeserializer(client)(written, value_of(topic)) == {"home": {"city": "Bonn"}}


def test_json_goes_through_a_topic(client: SchemaRegistryClient, carry: Callable[[bytes], bytes], topic: str) -> None:
    schema = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
        "properties": {"id": {"type": "integer"}}, "required": ["id"]}"""
    written = JSONSerializer(schema, client)({"id": 7}, value_of(topic))
    assert JSONDeserializer(schema, schema_registry_client=client)(carry(written), value_of(topic)) == {"id": 7}
    assert client.get_latest_version(f"{topic}-value").schema.schema_type == "JSON"


def message_class(package: str) -> Any:
    """Made at run time, as no compiler is at hand."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    order.field.add(name="id", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64, label=label)
    order.field.add(
        name="placed", number=2, type=descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, label=label,
        type_name=".google.protobuf.Timestamp",
    )  # fmt: skip
    file.message_type.add(name="Other")
    assert Timestamp.DESCRIPTOR is not None
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))


def test_protobuf_goes_through_a_topic(
    client: SchemaRegistryClient, carry: Callable[[bytes], bytes], topic: str
) -> None:
    order = message_class("p" + uuid.uuid4().hex)
    settings = {"use.deprecated.format": False}
    written = ProtobufSerializer(order, client, settings)(order(id=7, placed=Timestamp(seconds=5)), value_of(topic))
    read = ProtobufDeserializer(order, settings, client)(carry(written), value_of(topic))
    assert read == order(id=7, placed=Timestamp(seconds=5))
    kept = client.get_latest_version(f"{topic}-value").schema
    assert kept.schema_type == "PROTOBUF" and "message Order {" in kept.schema_str


def test_the_client_does_everything_it_can(client: SchemaRegistryClient, name: str) -> None:
    first = client.register_schema(name, Schema(ORDER, "AVRO"))
    second = client.register_schema(name, Schema(ORDER_WITH_TOTAL, "AVRO"))
    assert client.get_versions(name) == [1, 2]
    assert name in client.get_subjects()
    assert client.lookup_schema(name, Schema(ORDER, "AVRO")).schema_id == first
    assert client.get_version(name, 2).schema_id == second
    assert name in client.get_subjects_by_schema_id(second)
    assert any(each.subject == name for each in client.get_schema_versions(second))
    client.set_compatibility(name, "FULL")
    assert client.get_compatibility(name) == "FULL"
    assert client.test_compatibility(name, Schema(ORDER, "AVRO"))
    assert not client.test_compatibility(name, Schema('"string"', "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(name, Schema('"string"', "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
    assert client.get_contexts()[0] == "."
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode(name, "READONLY") == "READONLY"
    assert client.delete_mode(name) == "READONLY"
    assert client.delete_version(name, 1) == 1
    assert client.delete_subject(name) == [2]
    assert client.delete_subject(name, permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as gone:
        client.get_latest_version(name)
    assert gone.value.error_code == 40401
