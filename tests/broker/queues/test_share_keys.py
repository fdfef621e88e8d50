"""The keys of the state of share groups: Kafka does not know them; those of older versions, which it takes for its own,
are read and given up."""

import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from headwater.broker.nodes.node_client import NodeClient
from headwater.broker.nodes.node_messages import ShareKey
from headwater.broker.queues import state_keys as share_keys
from headwater.broker.queues.state_keepers import STATE_TOPIC
from headwater.broker.queues.state_keys import MAX_CHANGES, Kind, StateKey
from headwater.broker.server import Broker
from headwater.model.ids import PartitionId
from headwater.records.batch import split
from headwater.records.record import records
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.queues.queue_brokers import numbered, produced, queue_broker, ranges
from tests.broker.queues.share_members import ACCEPT, RELEASE, Member, on_loop
from tests.support.eventually import until
from tests.support.local_broker import running

SHARE = ShareKey("g", PartitionId(uuid.UUID(int=1), 2))
REST = b"\0\1g" + SHARE.partition.topic_id.bytes + b"\0\0\0\2"
ONE_LOG: dict[str, Any] = {"share_state_topic_partitions": 1}
HIGHEST_OF_KAFKA = 100
"""Far above what Kafka 4.3 uses in any internal topic."""


def older_nodes() -> AbstractContextManager[object]:
    """As if a node of the cluster read only the old keys."""
    return patch.object(NodeClient, "all_read", lambda self, state_format: False)


async def live_keys(broker: Broker) -> list[StateKey]:
    """Keys that have a value."""
    partition = broker.catalog.topic(STATE_TOPIC).partition(0)
    found: dict[bytes, bytes | None] = {}
    offset = 0
    while offset < partition.high_watermark:
        for header, batch in split(await partition.read(offset, 1 << 20)):
            found.update((record.key or b"", record.value) for record in records(batch, header))
            offset = header.last_offset + 1
    return [share_keys.decode(key) for key, value in found.items() if value is not None]


def kinds(keys: Sequence[StateKey]) -> set[tuple[Kind, bool]]:
    return {(key.kind, key.is_old) for key in keys}


def test_numbers_are_none_of_kafkas() -> None:
    for kind in Kind:
        assert int.from_bytes(StateKey(kind, SHARE, 3).encode()[:2], "big") > HIGHEST_OF_KAFKA


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"\0\0" + REST, StateKey(Kind.SNAPSHOT, SHARE, is_old=True)),
        (b"\0\1" + REST + b"\0\0\0\3", StateKey(Kind.CHANGE, SHARE, 3, is_old=True)),
        (b"\0\2" + REST, StateKey(Kind.CLAIM, SHARE, is_old=True)),
        (b"\3\xe8" + REST, StateKey(Kind.SNAPSHOT, SHARE)),
        (b"\3\xe9" + REST + b"\0\0\1\xf3", StateKey(Kind.CHANGE, SHARE, MAX_CHANGES - 1)),
        (b"\3\xea" + REST, StateKey(Kind.CLAIM, SHARE)),
    ],
)
def test_old_and_new_keys_are_read(data: bytes, key: StateKey) -> None:
    assert share_keys.decode(data) == key
    assert key.encode() == data


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\3" + REST, b"\3\xe9" + REST + b"\0\0\1\xf4", b"\3\xe8\xff\xff", REST]
)
def test_other_keys_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        share_keys.decode(data)


@on_loop
async def test_a_state_of_an_older_version_is_read_and_moves_to_new_keys(tmp_path: Path) -> None:
    files = MemoryFiles()
    with older_nodes():
        async with queue_broker(tmp_path, files, **ONE_LOG) as (broker, client):
            member = await Member.joined(broker, "t")
            await produced(client, *numbered(9))
            await member.fetch(wait_ms=1000)
            for offset, kind in ((3, ACCEPT), (4, RELEASE), (0, ACCEPT)):
                assert await member.acknowledge((offset, offset, kind)) == 0
            member.vanish()
            await until(lambda: not broker.shares.of_group("g")[0].share.acquired_count)
            before = ranges(broker)
            assert kinds(await live_keys(broker)) == {(kind, True) for kind in Kind}
    for _ in range(2):
        async with running(tmp_path, files, **ONE_LOG) as (broker, _):
            await until(lambda: broker.shares.of_group("g"))
            assert ranges(broker) == before
            assert kinds(await live_keys(broker)) == {(Kind.SNAPSHOT, False), (Kind.CLAIM, False)}


@on_loop
async def test_a_state_half_under_old_keys_and_half_under_new_ones_is_whole(tmp_path: Path) -> None:
    """The last older node went while the queue was in use."""
    files = MemoryFiles()
    async with queue_broker(tmp_path, files, **ONE_LOG) as (broker, client):
        with older_nodes():
            member = await Member.joined(broker, "t")
            await produced(client, *numbered(9))
            await member.fetch(wait_ms=1000)
            assert await member.acknowledge((3, 3, ACCEPT)) == 0
        assert await member.acknowledge((5, 5, ACCEPT)) == 0
        assert kinds(await live_keys(broker)) == {(kind, True) for kind in Kind} | {(Kind.CHANGE, False)}
        member.vanish()
        await until(lambda: not broker.shares.of_group("g")[0].share.acquired_count)
        before = ranges(broker)
    with older_nodes():  # one that is away may come back as it was: what is begun goes on
        async with running(tmp_path, files, **ONE_LOG) as (broker, _):
            await until(lambda: broker.shares.of_group("g"))
            assert ranges(broker) == before
            assert kinds(await live_keys(broker)) == {(kind, False) for kind in Kind}, "the slot will be used again"


@on_loop
async def test_a_group_that_is_deleted_leaves_no_key_of_any_version(tmp_path: Path) -> None:
    async with queue_broker(tmp_path, **ONE_LOG) as (broker, client):
        with older_nodes():
            member = await Member.joined(broker, "t")
            await produced(client, *numbered(4))
            await member.fetch(wait_ms=1000)
            assert await member.acknowledge((1, 1, ACCEPT)) == 0
        assert await member.acknowledge((2, 2, ACCEPT)) == 0
        await broker.shares.delete_group("g")
        assert await live_keys(broker) == []
