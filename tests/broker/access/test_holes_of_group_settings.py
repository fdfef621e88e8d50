"""Settings of a group have the broker and its gateway act for the group: they read a topic, and write to another. Users
who may alter settings get nothing done by them that they may not do themselves."""

import uuid
from typing import Any

import pytest

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.typed.incremental_alter_configs import AlterConfigsResourceResponse
from tests.support.guarded import Guarded, assert_says
from tests.support.messages import nested
from tests.support.wire import WireClient

DESCRIBE, ALTER, INCREMENTALLY = 32, 33, 44
GROUP = 32
SET, DELETE = 0, 1
OF_TOPIC, OF_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
URL, TOPIC, KIND = "headwater.push.url", "headwater.subscription.topic", "headwater.subscription.kind"
RETENTION = "headwater.subscription.retention.ms"
DEAD_LETTERS = "errors.deadletterqueue.topic.name"
SECRETS = "payroll"


@pytest.fixture
def group(guarded: Guarded) -> str:
    """Alice may alter its settings, and nothing else."""
    name = f"g-{uuid.uuid4().hex}"
    guarded.allow(Operation.ALTER_CONFIGS, ResourceType.GROUP, name)
    return name


def altered(
    client: WireClient, api_key: int, group: str, operation: int = SET, **more: Any
) -> AlterConfigsResourceResponse:
    """`more`: the settings, and whether they are only validated."""
    validates_only = more.pop("validate_only", False)
    extra = {"config_operation": operation} if api_key == INCREMENTALLY else {}
    configs = [nested(name=name, value=value, **extra) for name, value in more.pop("configs").items()]
    resource = nested(resource_type=GROUP, resource_name=group, configs=configs)
    version = 1 if api_key == INCREMENTALLY else 2
    result: AlterConfigsResourceResponse
    (result,) = client.ask(api_key, version, resources=[resource], validate_only=validates_only).responses
    return result


def value_of(guarded: Guarded, group: str, key: str) -> str | None:
    asked = nested(resource_type=GROUP, resource_name=group, configuration_keys=[key])
    flags = {"include_synonyms": False, "include_documentation": False}
    (result,) = guarded.admin.ask(DESCRIBE, 4, resources=[asked], **flags).results
    (config,) = result.configs
    value: str | None = config.value
    return value


@pytest.mark.parametrize("api_key", [ALTER, INCREMENTALLY])
@pytest.mark.parametrize("validate_only", [True, False])
def test_a_topic_is_pushed_only_for_those_who_may_read_it(
    guarded: Guarded, group: str, api_key: int, validate_only: bool
) -> None:
    push = {TOPIC: SECRETS, KIND: "queue", URL: "https://mallory.example.com/"}
    with guarded.client() as client:
        assert altered(client, api_key, group, configs=push, validate_only=validate_only).error_code == OF_GROUP
        guarded.allow(Operation.READ, ResourceType.GROUP, group)
        refused = altered(client, api_key, group, configs=push, validate_only=validate_only)
        assert refused.error_code == OF_TOPIC
        assert_says(refused.error_message, f"User:alice may not read topic {SECRETS!r}.")
        assert not value_of(guarded, group, URL)
        guarded.allow(Operation.READ, ResourceType.TOPIC, SECRETS)
        assert altered(client, api_key, group, configs=push, validate_only=validate_only).error_code == 0
    assert bool(value_of(guarded, group, URL)) is not validate_only


def test_where_a_push_goes_is_altered_only_by_those_who_may_read_what_is_pushed(guarded: Guarded, group: str) -> None:
    own = {TOPIC: SECRETS, KIND: "queue", URL: "https://hr.example.com/"}
    assert altered(guarded.admin, INCREMENTALLY, group, configs=own).error_code == 0
    guarded.allow(Operation.READ, ResourceType.GROUP, group)
    with guarded.client() as client:
        elsewhere = {URL: "https://mallory.example.com/"}
        assert altered(client, INCREMENTALLY, group, configs=elsewhere).error_code == OF_TOPIC
        assert value_of(guarded, group, URL) == own[URL]


def test_records_are_kept_for_a_group_only_by_those_who_may_read_them(guarded: Guarded, group: str) -> None:
    guarded.allow(Operation.READ, ResourceType.GROUP, group)
    kept = {TOPIC: SECRETS, KIND: "queue", RETENTION: "86400000"}
    with guarded.client() as client:
        assert altered(client, INCREMENTALLY, group, configs=kept).error_code == OF_TOPIC
    assert not value_of(guarded, group, TOPIC)


def test_a_push_is_ended_by_those_who_may_alter_the_settings(guarded: Guarded, group: str) -> None:
    push = {TOPIC: SECRETS, KIND: "queue", URL: "https://hr.example.com/"}
    assert altered(guarded.admin, INCREMENTALLY, group, configs=push).error_code == 0
    with guarded.client() as client:
        assert altered(client, INCREMENTALLY, group, DELETE, configs={URL: None}).error_code == 0
        assert altered(client, ALTER, group, configs={}).error_code == 0
    assert not value_of(guarded, group, URL)


@pytest.mark.parametrize("api_key", [ALTER, INCREMENTALLY])
def test_dead_letters_go_only_to_topics_that_the_user_may_write(guarded: Guarded, group: str, api_key: int) -> None:
    letters = {DEAD_LETTERS: "orders"}
    with guarded.client() as client:
        assert altered(client, api_key, group, configs=letters).error_code == OF_TOPIC
        assert value_of(guarded, group, DEAD_LETTERS) == f"dlq.{group}"
        assert altered(client, api_key, group, configs={DEAD_LETTERS: f"dlq.{group}"}).error_code == 0
        guarded.allow(Operation.WRITE, ResourceType.TOPIC, "orders")
        assert altered(client, api_key, group, configs=letters).error_code == 0


def test_settings_by_which_nobody_acts_for_the_group_need_no_other_right(guarded: Guarded, group: str) -> None:
    with guarded.client() as client:
        assert altered(client, INCREMENTALLY, group, configs={"share.heartbeat.interval.ms": "6000"}).error_code == 0
