"""What groups ask of their members: the keys, what a broker allows, and where a value comes from."""

from pathlib import Path

import pytest

from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.config_resources import AlterOperation
from headwater.broker.settings.group_configs import GroupConfigs
from headwater.broker.settings.member_keys import BOUNDS, BROKER_DEFAULTS, MEMBER_KEYS, ConsumerOverrides
from headwater.groups.settings import ConsumerTimes
from headwater.model.errors import ErrorCode, RequestError
from headwater.testing.broker import Broker
from tests.broker.queues.share_members import on_loop
from tests.broker.settings.altered_settings import BROKER, DESCRIBE, INCREMENTAL, SET, alter, heartbeat_interval_ms
from tests.broker.settings.shared_settings import opened
from tests.support.messages import nested
from tests.support.wire import ask

GROUP = 32
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def described(broker: Broker, group: str, key: str) -> list[tuple[str, str, int]]:
    asked = [nested(resource_type=GROUP, resource_name=group, configuration_keys=[key])]
    (entry,) = ask(broker, DESCRIBE, 4, resources=asked, include_synonyms=True).results[0].configs
    assert not entry.read_only
    assert entry.value == entry.synonyms[0].value
    return [(each.name, each.value, each.source) for each in entry.synonyms]


def refusal(broker: Broker, group: str, **configs: str) -> str:
    changes = [nested(name=key.replace("_", "."), config_operation=SET, value=value) for key, value in configs.items()]
    asked = [nested(resource_type=GROUP, resource_name=group, configs=changes)]
    (answer,) = ask(broker, INCREMENTAL, 1, resources=asked, validate_only=True).responses
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
    return str(answer.error_message or "")


def test_the_interval_that_members_are_told_is_the_groups_and_where_it_comes_from_is_shown(headwater: Broker) -> None:
    broker_key = "group.consumer.heartbeat.interval.ms"
    assert heartbeat_interval_ms(headwater, "g") == 1_000
    assert described(headwater, "g", INTERVAL) == [(broker_key, "1000", 5)]
    alter(headwater, "1", BROKER, group_consumer_heartbeat_interval_ms="2000")
    alter(headwater, "g", GROUP, consumer_heartbeat_interval_ms="3000")
    assert heartbeat_interval_ms(headwater, "g") == 3_000
    assert heartbeat_interval_ms(headwater, "other") == 2_000
    assert described(headwater, "g", INTERVAL) == [
        (INTERVAL, "3000", 8),
        (broker_key, "2000", 2),
        (broker_key, "1000", 5),
    ]
    headwater.restart()
    assert heartbeat_interval_ms(headwater, "g") == 3_000
    alter(headwater, "g", GROUP, consumer_heartbeat_interval_ms=None, no_such_key=None)
    assert heartbeat_interval_ms(headwater, "g") == 2_000


def test_a_silent_member_is_gone_after_the_session_of_its_group(headwater: Broker) -> None:
    alter(headwater, "quick", GROUP, consumer_session_timeout_ms="1000", consumer_heartbeat_interval_ms="100")
    heartbeat_interval_ms(headwater, "quick")
    heartbeat_interval_ms(headwater, "slow")

    def members(group: str) -> int:
        answer = ask(headwater, 69, 0, group_ids=[group], include_authorized_operations=False)
        return len(answer.groups[0].members)

    while members("quick"):
        assert members("slow") == 1
    assert members("slow") == 1


@pytest.mark.parametrize(
    ("configs", "says"),
    [
        ({"consumer_session_timeout_ms": "999"}, "this broker allows 1000 to 3600000"),
        ({"consumer_session_timeout_ms": "0"}, "from 1 up"),
        ({"consumer_session_timeout_ms": "soon"}, "whole numbers"),
        ({"consumer_session_timeout_ms": "1000"}, "less than consumer.session.timeout.ms, 1000, is allowed"),
        ({"consumer_heartbeat_interval_ms": "60001"}, "this broker allows 100 to 60000"),
        ({"consumer_heartbeat_interval_ms": "50000"}, "less than consumer.session.timeout.ms"),
        ({"share_session_timeout_ms": "3600001"}, "are allowed"),
        ({"consumer_assignment_interval_ms": "15001"}, "from 0 to 15000"),
        ({"share_renew_acknowledge_enable": "true"}, "only false"),
        ({"streams_session_timeout_ms": "45000"}, "streams protocol"),
        ({"consumer_assignment_interval_ms": "1000", "share_assignment_interval_ms": "0"}, ""),
        ({"consumer_session_timeout_ms": "50000", "consumer_heartbeat_interval_ms": "15000"}, ""),
        ({"share_renew_acknowledge_enable": "false"}, ""),
    ],
)
def test_what_a_group_may_ask_for(headwater: Broker, configs: dict[str, str], says: str) -> None:
    if not says:
        assert refusal(headwater, "g", **configs) == ""
    assert says in refusal(headwater, "g", **configs)


def test_an_operator_narrows_what_groups_may_ask_for(headwater: Broker) -> None:
    alter(headwater, "g", GROUP, consumer_session_timeout_ms="50000", share_delivery_count_limit="50")
    alter(
        headwater, "", BROKER, group_consumer_max_session_timeout_ms="46000", group_share_max_delivery_count_limit="9"
    )
    assert "allows 1000 to 46000" in refusal(headwater, "new", consumer_session_timeout_ms="50000")
    assert "allows 1 to 9" in refusal(headwater, "new", share_delivery_count_limit="10")


def test_every_default_and_bound_of_a_group_is_a_setting_of_the_broker() -> None:
    config = BrokerConfig()
    for name in BROKER_DEFAULTS:
        least, most = (getattr(config, field) for field in BOUNDS[name])
        assert least < most
    assert {SESSION, INTERVAL} <= MEMBER_KEYS.keys()


def test_what_was_accepted_once_stands_as_far_as_the_broker_allows_it_now() -> None:
    said = ConsumerOverrides(50_000, 20_000)
    assert said.times(BrokerConfig()) == ConsumerTimes(50_000, 20_000)
    narrow = BrokerConfig(group_consumer_max_session_timeout_ms=10_000, group_consumer_max_heartbeat_interval_ms=15_000)
    assert said.times(narrow) == ConsumerTimes(10_000, 9_999)
    assert ConsumerOverrides(None, 100).times(BrokerConfig()) == ConsumerTimes(45_000, 100)


@on_loop
async def test_a_group_keeps_its_settings_when_the_brokers_become_others(tmp_path: Path) -> None:
    async with opened(tmp_path) as nodes:
        groups = GroupConfigs(nodes.metadata, BrokerConfig())
        set_ = AlterOperation.SET
        await groups.alter("g", [("share.session.timeout.ms", set_, "6000"), (SESSION, set_, "6000")])
        groups.configure(BrokerConfig(share_heartbeat_interval_ms=9_000, group_consumer_heartbeat_interval_ms=9_000))
        assert groups.settings("g").session_timeout_ms == 6_000
        assert groups.settings("g").heartbeat_interval_ms < 6_000
        assert groups.consumer_times("g") == ConsumerTimes(6_000, 5_999)
        with pytest.raises(RequestError, match="less than"):
            await groups.alter("g", [("share.heartbeat.interval.ms", set_, "7000")])
        assert await groups.unsubscribe("g") is False
        assert groups.consumer_times("g") is not None
