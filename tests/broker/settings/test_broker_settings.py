"""Settings of a broker that are altered while it runs: which can be, where they come from, on which nodes they hold."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.broker.settings.broker_config import BY_KAFKA_NAME, SETTINGS
from headwater.broker.settings.broker_settings import ALL_BROKERS, BrokerSettings
from headwater.broker.settings.config_resources import AlterOperation, ConfigEntry
from headwater.broker.settings.topic_keys import BROKER_NAMES
from headwater.metadata import keys
from headwater.metadata.store import Put
from headwater.model.cluster import NodeListener
from headwater.model.config_key import ConfigSource, ConfigType
from headwater.model.errors import ErrorCode, RequestError
from tests.broker.queues.share_members import on_loop
from tests.broker.settings.shared_settings import opened
from tests.support.eventually import PATIENCE_S

SET, DELETE, APPEND, SUBTRACT = AlterOperation
OWN, OF_ALL = ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
STATIC, DEFAULT = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG
ADVERTISED = (NodeListener("PLAINTEXT", "example", 9),)
ANOTHER_TEXT = {"group.consumer.migration.policy": "disabled", "errors.deadletterqueue.topic.name.prefix": "dead."}


def described(settings: BrokerSettings, name: str | None = None, **truths: str) -> dict[str, ConfigEntry]:
    listed = settings.describe(str(settings.file.node_id) if name is None else name, ADVERTISED, truths)
    assert len({entry.name for entry in listed}) == len(listed)
    return {entry.name: entry for entry in listed}


def another(entry: ConfigEntry) -> str:
    """A value that is not the one in force."""
    assert entry.value is not None
    match entry.type:
        case ConfigType.BOOLEAN:
            return "false" if entry.value == "true" else "true"
        case ConfigType.INT | ConfigType.LONG:
            number = int(entry.value)
            return str(number - 1 if number > 2 else number + 1)
    return ANOTHER_TEXT[entry.name]


@on_loop
async def test_every_setting_says_whether_it_can_be_altered_and_those_that_can_are(tmp_path: Path) -> None:
    async with opened(tmp_path) as nodes:
        settings = await nodes.start()
        entries = described(settings)
        assert {"node.id", "broker.id", "listeners", "advertised.listeners"} <= entries.keys()
        assert all(entry.doc for entry in entries.values())
        for name, field in BY_KAFKA_NAME.items():
            entry, setting = entries[name], SETTINGS[field]
            assert entry.is_read_only == setting.is_fixed
            if setting.is_fixed:
                with pytest.raises(RequestError, match="cannot be altered"):
                    await settings.alter("1", [(name, SET, entry.value)])
                continue
            before, text = getattr(settings.current, field), another(entry)
            await settings.alter("1", [(name, SET, text)])
            assert getattr(settings.current, field) != before
            assert setting.shown(getattr(settings.current, field)) == text
            assert (described(settings)[name].value, described(settings)[name].source) == (text, OWN)
            await settings.alter("1", [(name, DELETE, None)])
            assert getattr(settings.current, field) == before
        assert not any(entries[name].is_read_only for name in BROKER_NAMES)


def test_what_can_be_altered_has_a_name_to_alter_it_by() -> None:
    assert [name for name, setting in SETTINGS.items() if not setting.is_fixed and setting.kafka_name is None] == []


@on_loop
async def test_what_is_described_is_text_that_an_administrator_writes(tmp_path: Path) -> None:
    async with opened(tmp_path) as nodes:
        entries = described(await nodes.start(roles=["broker", "store"], data_dir="/tmp/x", idle_timeout_s=2.5))
        assert entries["process.roles"].value == "broker,store"
        assert (entries["broker.rack"].value, entries["broker.rack"].source) == (None, DEFAULT)
        assert entries["connections.max.idle.ms"].value == "2500"
        assert entries["advertised.listeners"].value == "PLAINTEXT://example:9"
        for entry in entries.values():
            assert not any(mark in (entry.value or "") for mark in ("<", "(", "'", "None", "True", "False")), entry
        assert described(await nodes.start(rack="r1"))["broker.rack"].value == "r1"


@on_loop
async def test_what_circumstances_make_of_a_setting_is_shown(tmp_path: Path) -> None:
    async with opened(tmp_path) as nodes:
        settings = await nodes.start(default_replication_factor=3)
        (entry,) = (
            entry
            for entry in settings.describe("1", ADVERTISED, {"default.replication.factor": "1"})
            if entry.name == "default.replication.factor"
        )
        assert entry.value == "1"


@on_loop
async def test_the_broker_wins_over_all_brokers_and_both_over_its_file(tmp_path: Path) -> None:
    async with opened(tmp_path) as nodes:
        settings = await nodes.start(default_partitions=3, topic={"retention.ms": 7})
        for name, file_value in (("num.partitions", "3"), ("log.retention.ms", "7")):
            assert described(settings)[name].candidates[0].source is STATIC
            await settings.alter(ALL_BROKERS, [(name, SET, "20")])
            await settings.alter("1", [(name, SET, "10")])
            found = [(each.value, each.source) for each in described(settings)[name].candidates]
            assert found[:3] == [("10", OWN), ("20", OF_ALL), (file_value, STATIC)]
            assert found[3][1] is DEFAULT
            of_all = described(settings, ALL_BROKERS)[name]
            assert [(each.value, each.source) for each in of_all.candidates] == [("20", OF_ALL)]
        assert settings.current.default_partitions == 10
        assert settings.topic_defaults.topic.retention_ms == 10
        await settings.alter("1", [("num.partitions", DELETE, None), ("log.retention.ms", DELETE, None)])
        assert settings.current.default_partitions == 20
        assert settings.topic_defaults.topic.retention_ms == 20
        await settings.alter(ALL_BROKERS, [], replaces_all=True)
        assert settings.current == settings.file
        assert described(settings, ALL_BROKERS) == {}


@on_loop
async def test_what_was_altered_is_there_after_a_restart_and_on_other_nodes_as_far_as_it_is_for_them(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as nodes:
        first, second = await nodes.start(1), await nodes.start(2)
        changed = asyncio.Event()
        second.watchers.append(changed.set)
        following = asyncio.create_task(second.follow())
        await first.alter("1", [("group.max.size", SET, "5")])
        await first.alter(ALL_BROKERS, [("num.partitions", SET, "6")])
        await asyncio.wait_for(changed.wait(), PATIENCE_S)
        assert (second.current.group_max_size, second.current.default_partitions) == (10_000, 6)
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        again = await nodes.start(1)
        assert (again.current.group_max_size, again.current.default_partitions) == (5, 6)


@on_loop
async def test_nodes_that_alter_the_same_at_once_lose_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as nodes:
        first, second = await nodes.start(1), await nodes.start(2)
        await first.alter(ALL_BROKERS, [("num.partitions", SET, "6")])
        await second.alter(ALL_BROKERS, [("group.max.size", SET, "5")])  # it has not heard of the first
        again = await nodes.start(3)
        assert (again.current.group_max_size, again.current.default_partitions) == (5, 6)


@on_loop
async def test_lists_are_added_to_and_taken_from(tmp_path: Path) -> None:
    async with opened(tmp_path) as nodes:
        settings = await nodes.start()
        await settings.alter("1", [("log.cleanup.policy", APPEND, "compact")])
        assert settings.topic_defaults.topic.is_compacted and settings.topic_defaults.topic.is_deleted
        await settings.alter("1", [("log.cleanup.policy", SUBTRACT, "delete,compact")])
        assert described(settings)["log.cleanup.policy"].value == ""


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (("num.partitions", SET, "0"), ErrorCode.INVALID_REQUEST, "whole numbers from 1 up"),
        (("num.partitions", SET, "many"), ErrorCode.INVALID_REQUEST, "'many' for broker config num.partitions"),
        (("num.partitions", SET, "1" * 5_000), ErrorCode.INVALID_REQUEST, "at most 4096"),
        (("num.partitions", SET, None), ErrorCode.INVALID_REQUEST, "needs a value"),
        (("num.partitions", APPEND, "1"), ErrorCode.INVALID_CONFIG, "is no list"),
        (("num.partitions", 9, "1"), ErrorCode.INVALID_REQUEST, "unknown"),
        (("log.retention.ms", SET, "-2"), ErrorCode.INVALID_REQUEST, "from -1 up"),
        (("auto.create.topics.enable", SET, "yes"), ErrorCode.INVALID_REQUEST, "true or false"),
        (("connections.max.idle.ms", SET, "0"), ErrorCode.INVALID_REQUEST, "from 1 up"),
        (("num.partition", SET, "1"), ErrorCode.INVALID_CONFIG, "did you mean num.partitions?"),
        (("listeners", SET, "PLAINTEXT://x:1"), ErrorCode.INVALID_REQUEST, "cannot be altered"),
        (("group.min.session.timeout.ms", SET, "9000000"), ErrorCode.INVALID_REQUEST, "do not go together"),
        (("group.consumer.migration.policy", SET, "sideways"), ErrorCode.INVALID_REQUEST, "upgrade, downgrade"),
        (("log.cleaner.max.compaction.lag.ms", SET, "0"), ErrorCode.INVALID_REQUEST, "from 1 up"),
    ],
)
@on_loop
async def test_what_cannot_be_altered_is_refused_with_a_reason_and_nothing_is(
    tmp_path: Path, change: tuple[str, int, str | None], code: ErrorCode, says: str
) -> None:
    async with opened(tmp_path) as nodes:
        settings = await nodes.start()
        for scope in ("1", ALL_BROKERS):
            with pytest.raises(RequestError) as caught:
                await settings.alter(scope, [("group.max.size", SET, "7"), change])
            assert (caught.value.code, says in caught.value.message) == (code, True), caught.value.message
        assert settings.current == settings.file
        assert settings.topic_defaults == settings.file.topic_defaults
        assert await nodes.metadata.list("config/") == []


@on_loop
async def test_what_was_never_set_can_be_deleted_and_a_trial_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as nodes:
        settings = await nodes.start()
        await settings.alter("1", [("leader.replication.throttled.rate", DELETE, None), ("no.such.key", DELETE, None)])
        await settings.alter(ALL_BROKERS, [("num.partitions", SET, "5")], validate_only=True)
        assert settings.current == settings.file
        with pytest.raises(RequestError, match="named twice"):
            await settings.alter("1", [("num.partitions", DELETE, None), ("num.partitions", SET, "5")])
        for name in ("2", "x", "01"):
            with pytest.raises(RequestError, match="This is broker 1"):
                await settings.alter(name, [])
            with pytest.raises(RequestError, match="This is broker 1"):
                settings.describe(name, ADVERTISED, {})


@on_loop
async def test_what_another_version_wrote_and_this_one_cannot_read_is_left_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as nodes:
        value = b'{"num.partitions":"4","of.the.future":"1","node.id":"9","log.retention.ms":"soon"}'
        await nodes.metadata.txn([], [Put(keys.config_key("broker", "default"), value)])
        settings = await nodes.start()
        assert settings.current.default_partitions == 4
        assert set(described(settings, ALL_BROKERS)) == {"num.partitions"}
        await settings.alter(ALL_BROKERS, [("num.partitions", SET, "5"), ("log.retention.ms", DELETE, None)])
        found = await nodes.metadata.get(keys.config_key("broker", "default"))
        assert found is not None
        assert json.loads(found.value) == {"num.partitions": "5", "of.the.future": "1", "node.id": "9"}
