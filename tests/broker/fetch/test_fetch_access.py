"""A fetch under way when bindings change: nothing is delivered to a client that may not read it any more."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.access.acl_bindings import AclBindings
from headwater.broker.access.client_access import AccessRefusal, GuardedAccess
from headwater.broker.fetch.fetch_sessions import SessionPartition
from headwater.broker.fetch.fetching import Fetching
from headwater.broker.server import Broker
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.model.errors import ErrorCode
from headwater.model.ids import NO_LEADER_EPOCH, NO_OFFSET
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.acl_index import AclIndex
from headwater.security.principal import ANONYMOUS
from headwater.testing.fakes.files import MemoryFiles
from headwater.wire.fetch import FetchPartition, FetchRequest
from tests.support.eventually import FOREVER_MS, until
from tests.support.local_broker import FETCH, SMALL_STORE, Client, batch_of, running
from tests.support.messages import nested

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GUARDED: dict[str, Any] = {"authorization": "on", "super_users": ["User:admin"]}


def binding(operation: Operation, name: str, resource_type: ResourceType = ResourceType.TOPIC) -> AclBinding:
    return AclBinding(
        resource_type=resource_type, pattern_type=PatternType.LITERAL, name=name, principal=str(ANONYMOUS), host="*",
        operation=operation, permission=Permission.ALLOW,
    )  # fmt: skip


@pytest.mark.parametrize("change", ["taken away", "of another topic"])
def test_a_waiting_fetch_is_refused_when_what_it_waited_for_comes(tmp_path: Path, change: str) -> None:
    async def scenario() -> None:
        reading = binding(Operation.READ, "t")
        other = binding(Operation.READ, "other")
        async with running(tmp_path, MemoryFiles(), **GUARDED) as (broker, client):
            bindings = broker.authorizer.bindings
            await bindings.create([reading, other, binding(Operation.WRITE, "t"), binding(Operation.CREATE, "t")])
            await client.create("t")
            asked = nested(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            client.send(
                FETCH, 11, max_wait_ms=FOREVER_MS, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=-1,
                topics=[nested(topic="t", partitions=[asked])],
            )  # fmt: skip
            partition = broker.catalog.topic("t").partition(0)
            await until(lambda: partition.watchers, "the fetch waits")
            await bindings.delete([reading if change == "taken away" else other])
            writer = await Client.connect(broker)
            await writer.produce("t", batch_of([b"a value"]))
            result = (await client.answer(FETCH, 11)).responses[0].partitions[0]
            writer.close()
        if change == "taken away":
            assert (result.error_code, result.high_watermark, result.records or b"") == (REFUSED, -1, b"")
        else:
            assert (result.error_code, result.high_watermark) == (0, 1) and result.records

    asyncio.run(scenario())


async def reading_from_store(broker: Broker, bindings: AclBindings, refusals: list[AccessRefusal]) -> Any:
    """A fetch of what is not in memory, under way."""
    access = GuardedAccess(bindings, ANONYMOUS, "127.0.0.1", is_in_force=True, record=refusals.append)
    asked = FetchPartition(0, NO_LEADER_EPOCH, 0, NO_LEADER_EPOCH, NO_OFFSET, 1 << 20)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[], forgotten=[],
    )  # fmt: skip
    fetching = Fetching(broker.catalog, access, request, [SessionPartition(("t", None), asked)])
    assert fetching.read_memory() is None, "the store must be asked"
    under_way = asyncio.create_task(fetching.run())
    await asyncio.sleep(0)
    assert not under_way.done() and not refusals
    return under_way


@pytest.mark.parametrize("is_taken_away", [True, False])
def test_what_the_store_read_meanwhile_is_kept_from_a_client_that_may_not_read_it_any_more(
    tmp_path: Path, is_taken_away: bool
) -> None:
    files = MemoryFiles()

    async def scenario() -> None:
        async with running(tmp_path, files) as (_, client):
            await client.create("t")
            await client.produce("t", batch_of([b"a value"]))
        config = BrokerConfig.load(None, data_dir=tmp_path, listen="127.0.0.1:0", metrics="off")
        broker = await Broker.start(config, files=files, store_options=replace(SMALL_STORE, inline_read_bytes=0))
        try:
            bindings = AclBindings(broker.metadata)
            bindings.index = AclIndex([binding(Operation.READ, "t")], version=2)
            refusals: list[AccessRefusal] = []
            under_way = await reading_from_store(broker, bindings, refusals)
            left = [] if is_taken_away else [binding(Operation.READ, "t")]
            bindings.index = AclIndex(left, version=3)
            (reading,) = await under_way
        finally:
            await broker.stop()
        if is_taken_away:
            assert (reading.result.error_code, reading.result.records, reading.result.size_bytes) == (REFUSED, [], 0)
            assert [(each.operation, each.name) for each in refusals] == [(Operation.READ, "t")]
        else:
            assert reading.result.error_code == 0 and reading.result.size_bytes > 0 and not refusals

    asyncio.run(scenario())
