"""A broker with logins and access control: what its audit says of those who use it."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headwater.broker.audit.audit_event import AuditKind, AuditRecord, AuditVerdict
from headwater.cli.brokers import brokers_of
from headwater.cli.client import cluster
from headwater.cli.output import CommandFailed
from headwater.client.admin.acls import create_bindings, delete_bindings, list_bindings
from headwater.client.errors import BrokerRefused
from headwater.model.cluster import AUDIT_TOPIC
from headwater.model.errors import ErrorCode
from headwater.security import access_codes
from headwater.security.access_codes import Operation, PatternType, Permission
from headwater.security.acl import AclBinding
from headwater.security.acl_filter import AclFilter
from headwater.testing import Broker
from headwater.wire.api_keys import ApiKey
from headwater.wire.message_classes import request_class
from headwater.wire.typed.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.audited import audited, client_of
from tests.support.local_broker import batch_of
from tests.support.messages import build, nested

CANARY_SECRET = "whsec_canary-5f2b8d0c"
CANARY_PASSWORD = "canary-password-91ab"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True, users=["alice", "bob"]) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient(broker.client_config("admin"))


def ask(broker: Broker, user: str, api_key: int, **fields: Any) -> Any:
    with client_of(broker, user) as client:
        return client.ask(build(request_class(api_key), **fields))


def managed(broker: Broker, operation: str, name: str) -> AuditRecord:
    def is_meant(record: AuditRecord) -> bool:
        return (record.event.operation, record.event.name) == (operation, name)

    return audited(broker, AuditKind.MANAGEMENT, AuditVerdict.DONE, is_meant)[-1]


def done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(60)


def test_the_start_and_a_login_are_told(broker: Broker) -> None:
    (started,) = audited(broker, AuditKind.NODE, AuditVerdict.DONE)
    assert (started.event.operation, started.node) == ("start", 1)
    with client_of(broker, "alice") as client:
        client.topics([])
    (login, *_) = audited(
        broker, AuditKind.AUTHENTICATION, AuditVerdict.ALLOWED, lambda each: each.event.principal == "User:alice"
    )
    event = login.event
    assert (event.listener, event.address, event.mechanism) == ("clients", "127.0.0.1", "SCRAM-SHA-512")


def test_logins_that_fail_are_one_event_with_who_tried(broker: Broker) -> None:
    file = broker.client_file("bob")
    wrong = file.with_name("wrong.properties")
    wrong.touch(0o600)
    wrong.write_text(re.sub('password="[^"]*"', f'password="{CANARY_PASSWORD}"', file.read_text()))
    for _ in range(3):
        with pytest.raises(CommandFailed), cluster(brokers_of(None, str(wrong))) as client:
            client.topics([])
    failed = audited(broker, AuditKind.AUTHENTICATION, AuditVerdict.FAILED)
    (event,) = {record.event for record in failed}
    assert (event.principal, event.rule) == ("User:bob", "invalid_credentials")
    assert (event.mechanism, event.address, event.listener) == ("SCRAM-SHA-512", "127.0.0.1", "clients")


def test_a_refusal_says_who_what_and_which_rule(broker: Broker) -> None:
    with client_of(broker, "alice") as client, pytest.raises(BrokerRefused):
        client.answer(list_bindings(AclFilter()))
    (record, *_) = audited(broker, AuditKind.AUTHORIZATION, AuditVerdict.REFUSED)
    event = record.event
    assert (event.principal, event.operation, event.resource_type) == ("User:alice", "describe", "cluster")
    assert (event.api, event.name, event.address) == ("DescribeAcls", "kafka-cluster", "127.0.0.1")
    assert event.rule == "denied: the resource has no bindings"
    assert event.client_id and event.listener == "clients"


def test_what_administrators_change_is_told(broker: Broker, admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("orders", 2, config={"retention.ms": "60000"})]))
    created = managed(broker, "create", "orders").event
    assert created.changes == ("partitions 2", "replicas 1", "set retention.ms")
    assert (created.principal, created.api, created.resource_type) == ("User:admin", "CreateTopics", "topic")
    done(admin.create_partitions([NewPartitions("orders", 3)]))
    assert managed(broker, "create-partitions", "orders").event.changes == ("partitions 3",)
    done(admin.delete_records([TopicPartition("orders", 0, 0)]))
    assert managed(broker, "delete-records", "orders").event.changes == ("0 below 0",)
    done(admin.delete_topics(["orders"]))
    assert managed(broker, "delete", "orders").event.resource_type == "topic"


def test_settings_are_told_without_their_values(broker: Broker, admin: AdminClient) -> None:
    secret = ConfigEntry("headwater.push.secret", CANARY_SECRET, incremental_operation=AlterConfigOpType.SET)
    url = ConfigEntry("headwater.push.url", "https://x.example/h", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigEntry("headwater.subscription.topic", "t", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "hooked", incremental_configs=[secret, url, topic])
    done(admin.incremental_alter_configs([resource]))
    event = managed(broker, "alter-configs", "hooked").event
    assert event.resource_type == "group" and "set headwater.push.secret" in event.changes
    assert CANARY_SECRET not in str(event)


def test_bindings_and_users_are_told(broker: Broker) -> None:
    binding = AclBinding(
        resource_type=access_codes.ResourceType.TOPIC, pattern_type=PatternType.PREFIXED, name="told-", host="*",
        principal="User:alice", operation=Operation.READ, permission=Permission.ALLOW,
    )  # fmt: skip
    with client_of(broker, "admin") as client:
        client.answer(create_bindings([binding]))
        client.answer(delete_bindings([binding]))
    for operation in ("create-acl", "delete-acl"):
        event = managed(broker, operation, "told-").event
        assert (event.pattern, event.changes) == ("prefixed", ("allow User:alice read from *",))
    salted = nested(name="carol", mechanism=2, iterations=4096, salt=b"s" * 16, salted_password=b"salted-canary---" * 4)
    ask(broker, "admin", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[salted])
    event = managed(broker, "alter-user", "carol").event
    assert (event.resource_type, event.changes) == ("user", ("set SCRAM-SHA-512",))


def test_what_fails_and_what_is_only_tried_changes_nothing(broker: Broker, admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("tried", 1)], validate_only=True))
    with pytest.raises(KafkaException):
        done(admin.delete_topics(["never-made"]))
    done(admin.create_topics([NewTopic("made-last", 1)]))
    managed(broker, "create", "made-last")
    names = {each.event.name for each in audited(broker, AuditKind.MANAGEMENT, AuditVerdict.DONE)}
    assert not names & {"tried", "never-made"}


def test_a_topic_that_is_made_by_using_it_is_told(broker: Broker) -> None:
    ask(broker, "admin", ApiKey.METADATA, topics=[nested(name="used-first")], allow_auto_topic_creation=True)
    assert managed(broker, "create", "used-first").event.changes == ("on use",)


def test_an_administrator_who_moves_a_group_is_told(broker: Broker, admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("moved", 1)]))
    moved = ConsumerGroupTopicPartitions("a-group", [TopicPartition("moved", 0, 0)])
    done(admin.alter_consumer_group_offsets([moved]))
    assert managed(broker, "alter-offsets", "a-group").event.changes == ("moved 0",)
    done(admin.delete_consumer_groups(["a-group"]))
    assert managed(broker, "delete", "a-group").event.resource_type == "group"


def test_no_client_writes_the_audit_or_alters_it(broker: Broker, admin: AdminClient) -> None:
    """Not even one who may do everything."""
    audited(broker, AuditKind.NODE, AuditVerdict.DONE)
    batch = bytes(batch_of([b"{}"]))
    with client_of(broker, "admin") as client:
        client.topics([AUDIT_TOPIC])
        leader = client.view.leader(AUDIT_TOPIC, 0)
        assert leader is not None
        data = TopicProduceData(name=AUDIT_TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
        answer = client.ask_at(leader, ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data]))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    refusals: list[Any] = [
        admin.delete_topics([AUDIT_TOPIC]),
        admin.create_topics([NewTopic(AUDIT_TOPIC, 1)]),
        admin.create_partitions([NewPartitions(AUDIT_TOPIC, 2)]),
        admin.delete_records([TopicPartition(AUDIT_TOPIC, 0, 1)]),
        admin.incremental_alter_configs([
            ConfigResource(ResourceType.TOPIC, AUDIT_TOPIC, incremental_configs=[
                ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
            ])
        ]),
    ]  # fmt: skip
    with pytest.warns(DeprecationWarning):
        replaced = ConfigResource(ResourceType.TOPIC, AUDIT_TOPIC, set_config={"retention.ms": "1"})
        refusals.append(admin.alter_configs([replaced]))
    for futures in refusals:
        with pytest.raises(KafkaException):
            done(futures)
    marker = nested(
        producer_id=1, producer_epoch=0, transaction_result=False, coordinator_epoch=0,
        topics=[nested(name=AUDIT_TOPIC, partition_indexes=[0])],
    )  # fmt: skip
    answer = ask(broker, "admin", ApiKey.WRITE_TXN_MARKERS, markers=[marker])
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_topic_is_kept_a_week_and_is_internal(broker: Broker, admin: AdminClient) -> None:
    audited(broker, AuditKind.NODE, AuditVerdict.DONE)
    with client_of(broker, "admin") as client:
        view = client.topics([AUDIT_TOPIC])[AUDIT_TOPIC]
        assert view.is_internal and len(view.leaders) == 1
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, AUDIT_TOPIC)]).values()
    values = {name: entry.value for name, entry in described.result(60).items()}
    assert values["cleanup.policy"] == "delete" and values["retention.ms"] == str(7 * 86_400_000)
