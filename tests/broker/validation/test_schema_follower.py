"""Reading the registry's topic where this node may not have heard of it yet."""

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.broker.validation import schema_follower
from headwater.broker.validation.schema_follower import SchemaFollower
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.transport.system_clock import SystemClock


class Partition:
    log_start = 0
    high_watermark = 0
    reads = 0

    async def read(self, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        return b""


class LateCatalog:
    """The metadata has the topic, or not, or is away; here it is known after some looks, if ever."""

    def __init__(self, *, is_made: bool | RequestError, known_after: int | None = None) -> None:
        self.is_made = is_made
        self.known_after = known_after
        self.looks = 0
        self.partition = Partition()
        self.leadership = self

    async def begun(self, partition_id: PartitionId) -> None:
        """Of its leadership: there is nothing to wait for."""

    def find(self, name: str) -> Any:
        self.looks += 1
        if self.known_after is None or self.looks <= self.known_after:
            return None
        return self.topic_by_id(uuid.UUID(int=7))

    def topic_by_id(self, topic_id: uuid.UUID) -> Any:
        return SimpleNamespace(
            topic_id=topic_id,
            partition_id=lambda index: PartitionId(topic_id, index),
            partition=lambda index: self.partition,
        )

    async def is_name_free(self, name: str) -> bool:
        if isinstance(self.is_made, RequestError):
            raise self.is_made
        return not self.is_made


def catch_up(catalog: LateCatalog) -> None:
    nodes: Any = SimpleNamespace(is_standalone=True)
    known: Any = catalog
    asyncio.run(SchemaFollower(known, nodes, SystemClock(), asyncio.ensure_future).catch_up())


def test_a_topic_that_another_node_has_just_made_is_waited_for_and_read() -> None:
    catalog = LateCatalog(is_made=True, known_after=3)
    catch_up(catalog)
    assert catalog.partition.reads == 1


def test_where_nobody_ever_registered_nothing_is_waited_for() -> None:
    catalog = LateCatalog(is_made=False)
    catch_up(catalog)
    assert catalog.looks == 1


@pytest.mark.parametrize("is_made", [True, RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "etcd is away")])
def test_a_record_is_refused_for_now_when_it_cannot_be_said(
    is_made: bool | RequestError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_follower, "CATCH_UP_S", 0.1)
    with pytest.raises(RequestError) as refused:
        catch_up(LateCatalog(is_made=is_made))
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
