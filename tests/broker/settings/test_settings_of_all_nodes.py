"""What a node has acknowledged is in force on the others for whatever begins after that: nobody waits until they have
heard of it by themselves. Here node two never does."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from unittest.mock import patch

from headwater.broker.groups.group_log import OFFSETS_TOPIC
from headwater.broker.queues.state_keepers import STATE_TOPIC
from headwater.broker.server import Broker
from headwater.broker.settings.key_cache import KeyCache
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import Put
from headwater.model.errors import ErrorCode
from tests.broker.queues.queue_brokers import produced
from tests.broker.queues.share_members import Member, configure, on_loop
from tests.broker.two_nodes import name_kept_by, new_partition, two_nodes
from tests.support.eventually import tasks_run, until
from tests.support.local_broker import Client
from tests.support.messages import nested

CONFIGURE, DESCRIBE, HEARTBEAT = 44, 32, 68
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32


@contextmanager
def deaf(node: Broker) -> Iterator[None]:
    """No hint of what changes in the metadata reaches the node."""
    with patch.object(node.metadata, "_tell", lambda hint: None):
        yield


@asynccontextmanager
async def prepared_nodes(directory: Path) -> AsyncIterator[tuple[Broker, Broker]]:
    """Node two leads topic "t", and both know where groups and queues are kept."""
    async with two_nodes(directory) as (one, two):
        await new_partition(two, one)
        await one.groups.ensure_ready()
        await one.shares.states.ensure()
        for topic in (OFFSETS_TOPIC, STATE_TOPIC):
            await name_kept_by(one, topic)
            await name_kept_by(two, topic)
        await until(lambda: all(node.groups.is_loaded() for node in (one, two)))
        yield one, two


@asynccontextmanager
async def client_of(node: Broker) -> AsyncIterator[Client]:
    client = await Client.connect(node)
    try:
        yield client
    finally:
        client.close()


async def alter(client: Client, kind: int, name: str, **configs: str) -> int:
    named = [nested(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()]
    asked = nested(resource_type=kind, resource_name=name, configs=named)
    answer = await client.ask(CONFIGURE, 1, resources=[asked], validate_only=False)
    return int(answer.responses[0].error_code)


async def described(client: Client, kind: int, name: str, key: str) -> str:
    asked = nested(resource_type=kind, resource_name=name, configuration_keys=[key])
    answer = await client.ask(DESCRIBE, 4, resources=[asked], include_synonyms=False, include_documentation=False)
    return str(answer.results[0].configs[0].value)


@on_loop
async def test_a_queue_begins_where_its_group_was_told_to_begin(tmp_path: Path) -> None:
    async with prepared_nodes(tmp_path) as (one, two), client_of(one) as here, client_of(two) as there:
        await produced(there, b"a", b"b", b"c")
        group = await name_kept_by(one, OFFSETS_TOPIC)
        with deaf(two):
            await configure(here, group, share_auto_offset_reset="earliest")
            member = await Member.joined(one, "t", group, opens=False)
            member.client = there
            fetched = await member.fetch(wait_ms=5_000)
        assert fetched.values == [b"a", b"b", b"c"]


@on_loop
async def test_a_queue_that_exists_is_paused_for_who_begins_to_read_it(tmp_path: Path) -> None:
    paused = {
        f"headwater_subscription_{key}": value for key, value in (("kind", "queue"), ("topic", "t"), ("paused", "true"))
    }
    async with prepared_nodes(tmp_path) as (one, two), client_of(one) as here, client_of(two) as there:
        group = await name_kept_by(one, OFFSETS_TOPIC)
        first = await Member.joined(one, "t", group, opens=False)
        first.client = there
        await first.fetch()
        await produced(there, b"a")
        with deaf(two):
            await configure(here, group, **paused)
            second = await Member.joined(one, "t", group, opens=False)
            second.client = there
            assert (await second.fetch()).values == []


@on_loop
async def test_both_nodes_tell_and_change_what_one_has_changed(tmp_path: Path) -> None:
    async with prepared_nodes(tmp_path) as (one, two), client_of(one) as here, client_of(two) as there:
        with deaf(two):
            lock, limit = "share.record.lock.duration.ms", "share.delivery.count.limit"
            assert await alter(here, GROUP_RESOURCE, "g", share_record_lock_duration_ms="20000") == ErrorCode.NONE
            assert await described(there, GROUP_RESOURCE, "g", lock) == "20000"
            assert await alter(here, GROUP_RESOURCE, "g", share_record_lock_duration_ms="25000") == ErrorCode.NONE
            assert await alter(there, GROUP_RESOURCE, "g", share_delivery_count_limit="3") == ErrorCode.NONE
            assert await described(here, GROUP_RESOURCE, "g", lock) == "25000", "each changes what the other left"
            assert await described(here, GROUP_RESOURCE, "g", limit) == "3"


@on_loop
async def test_a_topic_setting_holds_where_the_topic_is_led(tmp_path: Path) -> None:
    large = b"x" * 5_000
    async with prepared_nodes(tmp_path) as (one, two), client_of(one) as here, client_of(two) as there:
        assert await alter(here, TOPIC_RESOURCE, "t", max_message_bytes="1000") == ErrorCode.NONE
        with deaf(two):
            assert await alter(here, TOPIC_RESOURCE, "t", max_message_bytes="20000") == ErrorCode.NONE
            await produced(there, large)
            assert await described(there, TOPIC_RESOURCE, "t", "max.message.bytes") == "20000"


@on_loop
async def test_changes_of_a_topic_through_two_nodes_are_both_made(tmp_path: Path) -> None:
    async with prepared_nodes(tmp_path) as (one, two), client_of(one) as here, client_of(two) as there:
        with deaf(two), patch.object(one.catalog.changes, "_announce", None):
            assert await alter(here, TOPIC_RESOURCE, "t", retention_ms="1000000") == ErrorCode.NONE
            assert await alter(there, TOPIC_RESOURCE, "t", max_message_bytes="2000") == ErrorCode.NONE
            assert await described(here, TOPIC_RESOURCE, "t", "retention.ms") == "1000000"
            assert await described(here, TOPIC_RESOURCE, "t", "max.message.bytes") == "2000"


@on_loop
async def test_a_name_that_was_given_up_on_one_node_is_free_on_the_other(tmp_path: Path) -> None:
    async with prepared_nodes(tmp_path) as (one, two):
        with deaf(two):
            old = two.catalog.topic("t").topic_id
            await one.catalog.changes.delete(one.catalog.topic("t"))
            new = await two.catalog.changes.create("t", 1, {})
        assert new is not None and new.topic_id != old


@on_loop
async def test_partitions_that_another_node_has_added_keep_their_heads(tmp_path: Path) -> None:
    async with prepared_nodes(tmp_path) as (one, two):
        with deaf(two), patch.object(one.catalog.changes, "_announce", None):
            await one.catalog.changes.add_partitions(one.catalog.topic("t"), 3)
            await two.catalog.changes.add_partitions(two.catalog.topic("t"), 4)
        await until(lambda: one.catalog.topic("t").partition_count == 4)
        heads = [one.catalog.topic("t").head(index) for index in range(4)]
        assert all(head is not None and head.open is not None for head in heads[:3]), "those were led already"


def test_what_is_read_late_does_not_replace_what_is_newer(tmp_path: Path) -> None:
    """A read that takes long, and one that begins after it and is quick."""

    async def scenario() -> None:
        metadata = await SqliteMetaStore.open(tmp_path / "metadata.db")
        gate, has_read = asyncio.Event(), asyncio.Event()
        read = metadata.get_many

        async def held_back(names: list[str]) -> object:
            found = await read(names)
            has_read.set()
            await gate.wait()
            return found

        try:
            cache: KeyCache[str, bytes] = KeyCache(metadata, "x/", str, bytes, lambda names: None)
            await metadata.txn([], [Put("x/a", b"old")])
            with patch.object(metadata, "get_many", held_back):
                slow = asyncio.ensure_future(cache.reread("x/a"))
                await has_read.wait()
                await metadata.txn([], [Put("x/a", b"new")])
                quick = [asyncio.ensure_future(cache.reread("x/a")) for _ in range(10)]
                await tasks_run()
                gate.set()
                await asyncio.gather(slow, *quick)
            assert cache.items["a"].value == b"new"
        finally:
            await metadata.close()

    asyncio.run(scenario())


@on_loop
async def test_settings_of_all_brokers_hold_on_the_others_when_they_are_acknowledged(tmp_path: Path) -> None:
    async with prepared_nodes(tmp_path) as (one, two), client_of(one) as here, client_of(two) as there:
        with deaf(two):
            assert await alter(here, BROKER_RESOURCE, "", num_partitions="7") == ErrorCode.NONE
            assert await described(there, BROKER_RESOURCE, "2", "num.partitions") == "7"
            assert await alter(here, BROKER_RESOURCE, "1", num_partitions="8") == ErrorCode.NONE
            assert (one.config.default_partitions, two.config.default_partitions) == (8, 7)


@on_loop
async def test_a_consumer_is_told_the_interval_of_its_group_wherever_that_was_set(tmp_path: Path) -> None:
    async with prepared_nodes(tmp_path) as (one, two), client_of(one) as here, client_of(two) as there:
        group = await name_kept_by(two, OFFSETS_TOPIC)
        with deaf(two):
            assert await alter(here, GROUP_RESOURCE, group, consumer_heartbeat_interval_ms="7000") == ErrorCode.NONE
            answer = await there.ask(
                HEARTBEAT, 1, group_id=group, member_id="m", member_epoch=0, instance_id=None, rack_id=None,
                rebalance_timeout_ms=10_000, subscribed_topic_names=["t"], subscribed_topic_regex=None,
                server_assignor=None, topic_partitions=[],
            )  # fmt: skip
        assert (answer.error_code, answer.heartbeat_interval_ms) == (ErrorCode.NONE, 7_000)
