"""Configurations as Kafka's admin clients describe and alter them, on a running broker."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import admin as confluent
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from headwater.broker.settings.topic_keys import TOPIC_KEYS
from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from tests.support.messages import nested
from tests.support.wire import ask

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
DESCRIBABLE = ((TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (GROUP, "g"))


@pytest.fixture
def admin(headwater: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=headwater.bootstrap)
    yield client
    client.close()


@pytest.fixture
def librdkafka(headwater: Broker) -> confluent.AdminClient:
    return confluent.AdminClient({"bootstrap.servers": headwater.bootstrap})


def create(admin: KafkaAdminClient, name: str, **configs: str) -> None:
    options = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1, "configs": options}})


def described(admin: KafkaAdminClient, kind: ConfigResourceType, name: str) -> dict[str, Any]:
    found = admin.describe_configs([ConfigResource(kind, name)], include_synonyms=True, config_filter="all")
    entries: dict[str, Any] = found[kind.name.lower()][name]
    return entries


def topic_value(broker: Broker, topic: str, key: str) -> tuple[str, int]:
    answer = ask(
        broker, DESCRIBE, 4, resources=[resource(TOPIC, topic, configuration_keys=[key])], include_synonyms=False
    )
    (entry,) = answer.results[0].configs
    return entry.value, entry.config_source


def resource(kind: int, name: str, **more: object) -> dict[str, Any]:
    return nested(resource_type=kind, resource_name=name, **more)


def config(name: str, value: str | None, **more: object) -> dict[str, Any]:
    return nested(name=name, value=value, **more)


def test_a_topic_shows_all_its_configs_with_types_synonyms_and_documentation(
    headwater: Broker, admin: KafkaAdminClient
) -> None:
    create(admin, "t", retention_ms="1000")
    asked = [resource(TOPIC, "t", configuration_keys=None)]
    answer = ask(headwater, DESCRIBE, 4, resources=asked, include_synonyms=True, include_documentation=True)
    (result,) = answer.results
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) == set(TOPIC_KEYS)
    retention = entries["retention.ms"]
    assert (retention.value, retention.config_source, retention.config_type) == ("1000", 1, 5)
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert all(entry.documentation and not entry.read_only and not entry.is_sensitive for entry in result.configs)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_of_the_description_has_the_value_and_its_source(
    headwater: Broker, admin: KafkaAdminClient, version: int
) -> None:
    create(admin, "t", segment_ms="9")
    answer = ask(
        headwater, DESCRIBE, version, resources=[resource(TOPIC, "t", configuration_keys=[])], include_synonyms=False
    )
    values = {entry.name: (entry.value, entry.config_source) for entry in answer.results[0].configs}
    assert values["segment.ms"] == ("9", 1)
    assert values["cleanup.policy"] == ("delete", 5)


@pytest.mark.headwater(topic={"retention.ms": 5000}, default_partitions=3)
def test_kafka_python_sees_the_brokers_settings_and_the_defaults_they_give(
    headwater: Broker, admin: KafkaAdminClient
) -> None:
    create(admin, "t")
    topic = described(admin, ConfigResourceType.TOPIC, "t")
    assert topic["retention.ms"]["value"] == "5000"
    broker = described(admin, ConfigResourceType.BROKER, "1")
    assert broker["log.retention.ms"]["value"] == "5000"
    assert broker["num.partitions"]["value"] == "3"
    assert broker["broker.id"]["value"] == "1"
    assert str(headwater.port) in broker["advertised.listeners"]["value"]
    assert broker["default.replication.factor"]["value"] == "1", "there is one store"
    assert {"root", "headwater"} <= described(admin, ConfigResourceType.BROKER_LOGGER, "1").keys()


def test_librdkafka_sets_appends_subtracts_and_deletes(headwater: Broker, librdkafka: confluent.AdminClient) -> None:
    librdkafka.create_topics([confluent.NewTopic("t", 1, 1)])["t"].result(60)

    def alter(key: str, value: str | None, operation: confluent.AlterConfigOpType) -> None:
        entry = confluent.ConfigEntry(key, value, incremental_operation=operation)
        asked = confluent.ConfigResource(confluent.ResourceType.TOPIC, "t", incremental_configs=[entry])
        librdkafka.incremental_alter_configs([asked])[asked].result(60)

    operation = confluent.AlterConfigOpType
    alter("retention.ms", "77", operation.SET)
    assert topic_value(headwater, "t", "retention.ms") == ("77", 1)
    alter("cleanup.policy", "compact", operation.APPEND)
    assert topic_value(headwater, "t", "cleanup.policy") == ("delete,compact", 1)
    alter("cleanup.policy", "delete", operation.SUBTRACT)
    assert topic_value(headwater, "t", "cleanup.policy") == ("compact", 1)
    alter("retention.ms", None, operation.DELETE)
    assert topic_value(headwater, "t", "retention.ms") == ("604800000", 5)
    with pytest.raises(KafkaException, match="whole numbers"):
        alter("retention.ms", "soon", operation.SET)


def test_kafka_python_alters_validates_and_resets(headwater: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    change = ConfigResource(ConfigResourceType.TOPIC, "t", configs={"retention.ms": "5", "durability": "sync"})
    # The short name is ours: kafka-python does not find it among the described ones.
    admin.alter_configs([change], validate_only=True, raise_on_unknown=False)
    assert topic_value(headwater, "t", "retention.ms") == ("604800000", 5)
    admin.alter_configs([change], raise_on_unknown=False)
    assert topic_value(headwater, "t", "retention.ms") == ("5", 1)
    assert topic_value(headwater, "t", "headwater.durability") == ("sync", 1)
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, "t", configs=["retention.ms"])])
    assert topic_value(headwater, "t", "retention.ms") == ("604800000", 5)


def test_the_older_alteration_replaces_all_overrides(headwater: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t", retention_ms="1", segment_ms="2")
    change = ConfigResource(ConfigResourceType.TOPIC, "t", configs={"segment.ms": "3"})
    for version in (0, 1, 2):
        configs = [config("segment.ms", str(version + 3))]
        answer = ask(headwater, ALTER, version, resources=[resource(TOPIC, "t", configs=configs)], validate_only=False)
        assert answer.responses[0].error_code == ErrorCode.NONE
        assert topic_value(headwater, "t", "segment.ms") == (str(version + 3), 1)
        assert topic_value(headwater, "t", "retention.ms") == ("604800000", 5)
    admin.alter_configs([change], incremental=False)
    assert topic_value(headwater, "t", "segment.ms") == ("3", 1)


def test_an_altered_config_is_there_after_a_restart(headwater: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "t", configs={"retention.ms": "42"})])
    headwater.restart()
    assert topic_value(headwater, "t", "retention.ms") == ("42", 1)


def test_no_change_is_lost_among_many_at_once(headwater: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    keys = ["retention.ms", "segment.ms", "delete.retention.ms", "max.compaction.lag.ms", "flush.ms", "flush.messages"]

    def alter(key: str) -> None:
        asked = [resource(TOPIC, "t", configs=[config(key, "4242", config_operation=0)])]
        answers.append(ask(headwater, INCREMENTAL, 1, resources=asked, validate_only=False).responses[0].error_code)

    answers: list[int] = []
    threads = [threading.Thread(target=alter, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [ErrorCode.NONE] * len(keys)
    assert {topic_value(headwater, "t", key) for key in keys} == {("4242", 1)}


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "code", "says"),
    [
        (TOPIC, "t", "retention.ms", "-5", ErrorCode.INVALID_CONFIG, "whole numbers from -1 up"),
        (TOPIC, "t", "retention.m", "5", ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
        (TOPIC, "t", "retention.ms", None, ErrorCode.INVALID_REQUEST, "needs a value"),
        (TOPIC, "absent", "retention.ms", "5", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (TOPIC, "not valid", "retention.ms", "5", ErrorCode.INVALID_TOPIC_EXCEPTION, "characters other than"),
        (BROKER, "1", "node.id", "5", ErrorCode.INVALID_REQUEST, "cannot be altered"),
        (BROKER, "2", "num.partitions", "5", ErrorCode.INVALID_REQUEST, "This is broker 1"),
        (LOGGER, "1", "headwater", "LOUD", ErrorCode.INVALID_CONFIG, "FATAL, ERROR, WARN"),
        (16, "g", "metrics", "5", ErrorCode.INVALID_REQUEST, "type CLIENT_METRICS"),
        (GROUP, "g", "share.nonsense", "5", ErrorCode.INVALID_CONFIG, "Unknown group config"),
        (GROUP, "", "share.auto.offset.reset", "earliest", ErrorCode.INVALID_REQUEST, "must not be empty"),
    ],
)
def test_refusals_name_what_is_wrong(
    headwater: Broker, admin: KafkaAdminClient, kind: int, name: str, key: str, value: str, code: ErrorCode, says: str
) -> None:
    create(admin, "t")
    asked = [resource(kind, name, configs=[config(key, value, config_operation=0)])]
    (answer,) = ask(headwater, INCREMENTAL, 0, resources=asked, validate_only=False).responses
    assert answer.error_code == code
    assert says in answer.error_message


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ([resource(TOPIC, "absent")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([resource(TOPIC, "not valid")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        ([resource(BROKER, "9")], ErrorCode.INVALID_REQUEST),
        ([resource(LOGGER, "")], ErrorCode.INVALID_REQUEST),
        ([resource(GROUP, "")], ErrorCode.INVALID_REQUEST),
        ([resource(16, "g")], ErrorCode.INVALID_REQUEST),
        ([resource(99, "x")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_there_is_described_as_an_error_with_a_message(
    headwater: Broker, asked: list[dict[str, Any]], code: ErrorCode
) -> None:
    for one in asked:
        one["configuration_keys"] = None
    answer = ask(headwater, DESCRIBE, 4, resources=asked, include_synonyms=True)
    assert answer.results[0].error_code == code
    assert answer.results[0].error_message


def test_a_resource_named_twice_is_described_once(headwater: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    asked = [resource(TOPIC, "t", configuration_keys=None)] * 3
    results = ask(headwater, DESCRIBE, 4, resources=asked, include_synonyms=True).results
    assert [result.error_code for result in results] == [ErrorCode.NONE, *[ErrorCode.INVALID_REQUEST] * 2]
    assert [bool(result.configs) for result in results] == [True, False, False]


def test_topics_share_what_they_did_not_override(headwater: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "a", retention_ms="1")
    create(admin, "b", segment_ms="2")
    asked = [resource(TOPIC, name, configuration_keys=["retention.ms", "segment.ms"]) for name in ("a", "b")]
    first, second = ask(headwater, DESCRIBE, 4, resources=asked, include_synonyms=False).results
    assert {entry.name: entry.value for entry in first.configs} == {"retention.ms": "1", "segment.ms": "604800000"}
    assert {entry.name: entry.value for entry in second.configs} == {"retention.ms": "604800000", "segment.ms": "2"}


def test_a_resource_named_twice_in_one_alteration_is_not_altered(headwater: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    asked = [
        resource(TOPIC, "t", configs=[config("retention.ms", "1", config_operation=0)]),
        resource(TOPIC, "t", configs=[config("retention.ms", "2", config_operation=0)]),
    ]
    answer = ask(headwater, INCREMENTAL, 1, resources=asked, validate_only=False)
    assert [response.error_code for response in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert topic_value(headwater, "t", "retention.ms") == ("604800000", 5)


def test_what_can_be_described_is_listed(headwater: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "b")
    create(admin, "a")
    assert ask(headwater, LIST, 0).config_resources == []
    everything = ask(headwater, LIST, 1, resource_types=[])
    listed = [(found.resource_type, found.resource_name) for found in everything.config_resources]
    assert [name for kind, name in listed if kind == TOPIC and not name.startswith("__")] == ["a", "b"]
    assert {(BROKER, "1"), (LOGGER, "1")} <= set(listed)
    assert admin.list_config_resources(["BROKER"]) == {"broker": ["1"]}
    assert ask(headwater, LIST, 1, resource_types=[77]).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_no_resource_shows_a_value_as_python_does(headwater: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    asked = [resource(kind, name, configuration_keys=None) for kind, name in DESCRIBABLE]
    results = ask(headwater, DESCRIBE, 4, resources=asked, include_synonyms=True).results
    assert [result.error_code for result in results] == [ErrorCode.NONE] * len(asked)
    for result in results:
        assert result.configs
        for entry in result.configs:
            for value in (entry.value, *(synonym.value for synonym in entry.synonyms)):
                assert value is None or not re.search(r"None|True|False|[<(\['\"]", value), (entry.name, value)
