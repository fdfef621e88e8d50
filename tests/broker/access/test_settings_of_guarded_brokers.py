"""Who sees and alters settings where bindings are in force, and who is shown the secrets among them: gateways alone."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.access.gateway_user import GATEWAY_USER
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.setting import ConfigError
from headwater.model.config_key import ConfigSource, ConfigType
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, PatternType, ResourceType
from headwater.testing.fakes.files import MemoryFiles
from tests.support.guarded import Guarded, assert_hides, assert_says, guarded_broker
from tests.support.local_broker import start
from tests.support.messages import nested
from tests.support.wire import AsyncWireClient, WireClient

DESCRIBE, ALTER, INCREMENTALLY, LIST = 32, 33, 44, 74
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NO_TYPE = 3
BROKER_ID = "1"
OF_TOPIC, OF_GROUP, OF_CLUSTER = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
REFUSALS = {TOPIC: OF_TOPIC, GROUP: OF_GROUP, BROKER: OF_CLUSTER, LOGGER: OF_CLUSTER, METRICS: OF_CLUSTER}
SECRET_KEY, SECRET = "headwater.push.secret", "a canary that signs"


@pytest.fixture
def topic(guarded: Guarded) -> str:
    name = f"t-{uuid.uuid4().hex}"
    guarded.create(name)
    return name


def resources(*of: tuple[int, str], **more: Any) -> list[dict[str, Any]]:
    return [nested(resource_type=kind, resource_name=name, **more) for kind, name in of]


def described(client: WireClient, *of: tuple[int, str], version: int = 4, keys: Any = None) -> list[Any]:
    flags = {"include_synonyms": True, "include_documentation": version >= 3}
    return list(client.ask(DESCRIBE, version, resources=resources(*of, configuration_keys=keys), **flags).results)


def altered(
    client: WireClient, api_key: int, *of: tuple[int, str], configs: dict[str, str], validate_only: bool = False
) -> list[Any]:
    more = {"config_operation": 0} if api_key == INCREMENTALLY else {}
    named = [nested(name=name, value=value, **more) for name, value in configs.items()]
    version = 1 if api_key == INCREMENTALLY else 2
    asked = resources(*of, configs=named)
    return list(client.ask(api_key, version, resources=asked, validate_only=validate_only).responses)


@pytest.mark.parametrize("api_key", [DESCRIBE, ALTER, INCREMENTALLY])
def test_each_kind_of_resource_is_refused_by_its_own_name(guarded: Guarded, topic: str, api_key: int) -> None:
    of = [(TOPIC, topic), (TOPIC, "missing"), (GROUP, "g"), (BROKER, BROKER_ID), (LOGGER, BROKER_ID), (METRICS, "m")]
    with guarded.client() as client:
        if api_key == DESCRIBE:
            results = described(client, *of)
            assert all(each.configs == [] for each in results)
        else:
            results = altered(client, api_key, *of, configs={"retention.ms": "1000"})
    assert [each.error_code for each in results] == [REFUSALS[kind] for kind, _ in of]
    what = "describe" if api_key == DESCRIBE else "alter"
    assert_says(results[0].error_message, f"User:alice may not {what} the settings of topic {topic!r}.")
    assert_says(results[3].error_message, f"User:alice may not {what} the settings of the cluster.")


def test_resources_that_may_be_described_are_among_refused_ones(guarded: Guarded, topic: str) -> None:
    guarded.allow(Operation.ALTER_CONFIGS, ResourceType.TOPIC, topic)
    guarded.allow(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, "g", pattern=PatternType.PREFIXED)
    with guarded.client() as client:
        results = described(client, (TOPIC, topic), (GROUP, "g-1"), (GROUP, "h"), (BROKER, BROKER_ID), (NO_TYPE, "x"))
        assert [each.error_code for each in results] == [0, 0, OF_GROUP, OF_CLUSTER, ErrorCode.INVALID_REQUEST]
        assert "retention.ms" in {each.name for each in results[0].configs}
        guarded.allow_on_cluster(Operation.DESCRIBE_CONFIGS)
        results = described(client, (BROKER, BROKER_ID), (LOGGER, BROKER_ID))
        assert [each.error_code for each in results] == [0, 0] and all(each.configs for each in results)


@pytest.mark.parametrize("api_key", [ALTER, INCREMENTALLY])
@pytest.mark.parametrize("validates_only", [True, False])
def test_settings_are_altered_by_those_who_may(
    guarded: Guarded, topic: str, api_key: int, validates_only: bool
) -> None:
    other = f"{topic}-other"
    guarded.create(other)
    guarded.allow(Operation.ALTER_CONFIGS, ResourceType.TOPIC, topic)
    with guarded.client() as client:
        asked = [(TOPIC, other), (TOPIC, topic), (TOPIC, "twice"), (TOPIC, "twice")]
        results = altered(client, api_key, *asked, configs={"retention.ms": "77777"}, validate_only=validates_only)
    twice = ErrorCode.INVALID_REQUEST
    assert [each.error_code for each in results] == [OF_TOPIC, 0, twice, twice]
    seen = described(guarded.admin, (TOPIC, other), (TOPIC, topic), keys=["retention.ms"])
    changed = [each.configs[0].value == "77777" for each in seen]
    assert changed == [False, not validates_only]


def test_every_resource_with_settings_is_listed_to_those_who_may_describe_the_cluster(
    guarded: Guarded, topic: str
) -> None:
    for version in (0, 1):
        with guarded.client() as client:
            answer = client.ask(LIST, version, resource_types=[])
            assert (answer.error_code, answer.config_resources) == (OF_CLUSTER, [])
    guarded.allow_on_cluster(Operation.DESCRIBE_CONFIGS)
    with guarded.client() as client:
        assert topic in {each.resource_name for each in client.ask(LIST, 1, resource_types=[TOPIC]).config_resources}


# Secrets


def give_secret(client: WireClient) -> str:
    """The group that has it."""
    group = f"g-{uuid.uuid4().hex}"
    (result,) = altered(client, INCREMENTALLY, (GROUP, group), configs={SECRET_KEY: SECRET})
    assert result.error_code == 0, result.error_message
    return group


def shown_secret(client: WireClient, group: str, version: int = 4) -> Any:
    (result,) = described(client, (GROUP, group), version=version)
    assert result.error_code == 0, result.error_message
    (config,) = (each for each in result.configs if each.name == SECRET_KEY)
    others = [each.name for each in result.configs if each.is_sensitive and each.name != SECRET_KEY]
    assert not others
    return config


def assert_is_hidden(config: Any, version: int = 4) -> None:
    assert_hides(config, SECRET)
    assert (config.value, config.is_sensitive) == (None, True)
    assert config.config_source == ConfigSource.GROUP_CONFIG, "that there is one is no secret"
    assert [each.value for each in config.synonyms] == [None, None]
    if version >= 3:
        assert config.config_type == ConfigType.PASSWORD


@pytest.fixture(scope="module", params=["on", "observe", "off"])
def asking(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Guarded]]:
    config = {"authorization": request.param, "gateways": ["User:gateway"], "allow_everyone_if_no_acl": True}
    with guarded_broker(tmp_path_factory.mktemp("secrets"), users=("alice", "gateway"), **config) as guarded:
        yield request.param, guarded


def test_secrets_are_shown_to_gateways_and_hidden_from_other_users_in_every_mode(asking: tuple[str, Guarded]) -> None:
    _, guarded = asking
    group = give_secret(guarded.admin)
    for version in (1, 3, 4):
        assert_is_hidden(shown_secret(guarded.admin, group, version), version)
        with guarded.client() as client:
            assert_is_hidden(shown_secret(client, group, version), version)
    with guarded.client("gateway") as client:
        config = shown_secret(client, group)
        assert (config.value, config.is_sensitive, config.config_type) == (SECRET, True, ConfigType.PASSWORD)
        assert [each.value for each in config.synonyms] == [SECRET, ""]


def test_a_client_that_was_not_asked_who_it_is_could_be_a_gateway_unless_authorization_is_on(
    asking: tuple[str, Guarded],
) -> None:
    mode, guarded = asking
    group = give_secret(guarded.admin)
    with WireClient(guarded.open_address) as client:
        config = shown_secret(client, group)
    if mode == "on":
        assert_is_hidden(config)
    else:
        assert config.value == SECRET


def test_a_secret_that_is_not_set_says_so(asking: tuple[str, Guarded]) -> None:
    _, guarded = asking
    config = shown_secret(guarded.admin, "without one")
    assert (config.value, config.config_source) == (None, ConfigSource.DEFAULT_CONFIG)


def test_the_gateway_in_a_brokers_process_need_not_be_named(tmp_path: Path) -> None:
    table = {
        "name": "a",
        "protocol": "SASL_PLAINTEXT",
        "listen": "127.0.0.1:0",
        "mechanisms": ["PLAIN", "SCRAM-SHA-256"],
    }
    config: dict[str, Any] = {"listen": None, "listener": [table], "super_users": [f"User:{GATEWAY_USER}"]}

    async def scenario() -> None:
        broker = await start(tmp_path, MemoryFiles(), **config)
        try:
            client = await AsyncWireClient.open(broker.address)
            await client.ask(17, 1, mechanism="PLAIN")
            token = f"\0{GATEWAY_USER}\0{broker.gateway_password}".encode()
            assert (await client.ask(36, 2, auth_bytes=token)).error_code == 0
            change = nested(name=SECRET_KEY, value=SECRET, config_operation=0)
            asked = resources((GROUP, "g"), configs=[change])
            (altered,) = (await client.ask(INCREMENTALLY, 1, resources=asked, validate_only=False)).responses
            assert altered.error_code == 0, altered.error_message
            asked = resources((GROUP, "g"), configuration_keys=[SECRET_KEY])
            (described,) = (await client.ask(DESCRIBE, 4, resources=asked)).results
            assert [each.value for each in described.configs] == [SECRET]
            client.close()
        finally:
            await broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("api_key", [ALTER, INCREMENTALLY])
def test_a_secret_that_is_refused_is_not_repeated(asking: tuple[str, Guarded], api_key: int) -> None:
    _, guarded = asking
    too_long = "a canary that is too long" * 100
    (result,) = altered(guarded.admin, api_key, (GROUP, "g"), configs={SECRET_KEY: too_long})
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert_hides(result, "canary")


@pytest.mark.parametrize("gateways", ["gateway", "User:*", "Node:1", ["User:"]])
def test_what_names_no_user_is_no_gateway(tmp_path: Path, gateways: Any) -> None:
    with pytest.raises(ConfigError, match=r"gateway is written as|wildcard names no user|is written as User:alice"):
        BrokerConfig.load(None, data_dir=tmp_path, gateways=gateways)
