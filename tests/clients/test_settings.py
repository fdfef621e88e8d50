"""Settings of brokers and groups as librdkafka's admin client alters them; the same on Apache Kafka."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from headwater.model.errors import ErrorCode
from tests.support.eventually import eventually

SET, DELETE, APPEND = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND
BROKER, GROUP = ResourceType.BROKER, ResourceType.GROUP
SEEN_TIMEOUT_S = 60.0


class Settings:
    """Of one broker, or of one group."""

    def __init__(self, bootstrap: str, kind: ResourceType, name: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._kind = kind
        self._name = name or str(next(iter(self._admin.list_topics(timeout=60).brokers)))

    def alter(self, name: str, operation: AlterConfigOpType, value: str | None = None) -> int:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(self._kind, self._name, incremental_configs=[entry])
        try:
            self._admin.incremental_alter_configs([resource])[resource].result(60)
        except KafkaException as error:
            return int(error.args[0].code())
        return 0

    def described(self, name: str) -> tuple[str, ConfigSource]:
        resource = ConfigResource(self._kind, self._name)
        entry = self._admin.describe_configs([resource])[resource].result(60)[name]
        return entry.value, ConfigSource(entry.source)

    def wait_for(self, name: str, value: str, source: ConfigSource) -> None:
        """Kafka answers before its broker has what was altered."""
        claim = f"{name} is {value} by {source}"
        eventually(lambda: self.described(name) == (value, source), claim, patience_s=SEEN_TIMEOUT_S)


@pytest.fixture
def group(bootstrap: str) -> Settings:
    return Settings(bootstrap, GROUP, f"judged-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def broker(bootstrap: str) -> Iterator[Settings]:
    settings = Settings(bootstrap, BROKER, "")
    yield settings
    for name in ("message.max.bytes", "log.cleanup.policy", "leader.replication.throttled.rate"):
        assert settings.alter(name, DELETE) == 0


def test_a_group_says_how_often_its_members_are_to_be_heard_of(group: Settings) -> None:
    for name, value in (("consumer.session.timeout.ms", "50000"), ("consumer.heartbeat.interval.ms", "6000")):
        assert group.described(name)[1] is ConfigSource.DEFAULT_CONFIG
        assert group.alter(name, SET, value) == 0
        group.wait_for(name, value, ConfigSource.GROUP_CONFIG)
        assert group.alter(name, DELETE) == 0
        assert group.alter(name, DELETE) == 0, "what is not set can be deleted"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.session.timeout.ms", "1"),
        ("consumer.session.timeout.ms", "long"),
        ("consumer.heartbeat.interval.ms", "1"),
        ("consumer.heartbeat.interval.ms", "999999"),
        ("share.delivery.count.limit", "101"),
        ("share.renew.acknowledge.enable", "perhaps"),
        ("no.such.key", "1"),
    ],
)
def test_a_group_setting_that_is_not_allowed_is_refused(group: Settings, name: str, value: str) -> None:
    assert group.alter(name, SET, value) == ErrorCode.INVALID_CONFIG
    assert group.alter(name, DELETE) == 0


def test_a_brokers_setting_is_altered_and_deleted(broker: Settings) -> None:
    before, source = broker.described("message.max.bytes")
    assert broker.alter("message.max.bytes", SET, "2000000") == 0
    broker.wait_for("message.max.bytes", "2000000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert broker.alter("message.max.bytes", DELETE) == 0
    broker.wait_for("message.max.bytes", before, source)
    assert broker.alter("log.cleanup.policy", APPEND, "compact") == 0
    broker.wait_for("log.cleanup.policy", "delete,compact", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert broker.alter("leader.replication.throttled.rate", SET, "1000") == 0


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("node.id", "7", ErrorCode.INVALID_REQUEST),
        ("message.max.bytes", "-5", ErrorCode.INVALID_REQUEST),
        ("leader.replication.throttled.rate", "fast", ErrorCode.INVALID_REQUEST),
        ("follower.replication.throttled.rate", "-1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_brokers_setting_that_cannot_be_altered_is_refused(
    broker: Settings, name: str, value: str, code: ErrorCode
) -> None:
    assert broker.alter(name, SET, value) == code
    assert broker.alter(name, DELETE) == 0
