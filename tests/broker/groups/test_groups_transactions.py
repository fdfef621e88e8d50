"""Offsets inside transactions at the coordinator: logged before they are acknowledged, settled once, and never lost."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.groups.group_log import OFFSETS_TOPIC
from headwater.broker.housekeeping.cleaner import Cleaner
from headwater.broker.log.partition import Partition
from headwater.model.errors import ErrorCode
from headwater.records.batch import parse_header
from headwater.records.build import build_batch
from headwater.records.record import Record
from tests.broker.groups.coordinator_node import Node, commit_request, committed, ready, refusal, stable
from tests.support.eventually import until

PRODUCER, OTHER = 1, 2


async def is_pending(coordinator: GroupCoordinator, partition: int, group_id: str = "g") -> bool:
    (found,) = await coordinator.committed(group_id, [("orders", partition)])
    return found.is_pending


async def pend(
    coordinator: GroupCoordinator, *offsets: tuple[str, int, int], producer_id: int = PRODUCER, epoch: int = 0
) -> None:
    answers = await coordinator.commit_in_transaction("g", commit_request(*offsets), producer_id, epoch)
    assert [answer.error for answer in answers] == [ErrorCode.NONE] * len(offsets)


async def settle(
    coordinator: GroupCoordinator, is_commit: bool = True, *, producer_id: int = PRODUCER, epoch: int = 0
) -> None:
    index = (await coordinator.offsets_partition("g")).index
    await coordinator.end_transaction(index, producer_id, epoch, is_commit, 0)


def only_log(node: Node) -> Partition:
    (log,) = [each for each in node.catalog.topic(OFFSETS_TOPIC).partitions() if each.log_end]
    return log


async def settling(coordinator: GroupCoordinator, *end: Any) -> None:
    await coordinator.end_transaction(*end)


def test_the_partition_of_a_group_is_the_one_that_remembers_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            assert node.catalog.find(OFFSETS_TOPIC) is None
            partition = await coordinator.offsets_partition("g")
            assert partition in [each.id for each in node.catalog.topic(OFFSETS_TOPIC).partitions()]
            await pend(coordinator, ("orders", 0, 7))
            assert only_log(node).id == partition
            assert await refusal(coordinator.offsets_partition("")) is ErrorCode.INVALID_GROUP_ID

    asyncio.run(scenario())


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_that_is_open_at_a_restart_ends_afterwards(tmp_path: Path, is_commit: bool) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await coordinator.commit("g", commit_request(("orders", 0, 5)))
            await pend(coordinator, ("orders", 0, 7), ("orders", 1, 8))
        async with node.run() as coordinator:
            assert await refusal(settle(coordinator)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await until(coordinator.is_loaded)
            assert await committed(coordinator, "g", "orders", 0) == 5
            assert await is_pending(coordinator, 0) and await is_pending(coordinator, 1)
            await settle(coordinator, is_commit)
        async with node.run() as coordinator:
            await until(coordinator.is_loaded)
            await settle(coordinator, is_commit)
            assert await committed(coordinator, "g", "orders", 0) == (7 if is_commit else 5)
            assert await committed(coordinator, "g", "orders", 1) == (8 if is_commit else -1)
            assert not await is_pending(coordinator, 0)

    asyncio.run(scenario())


def test_a_member_commits_in_a_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            joined = await stable(coordinator)
            request = commit_request(("orders", 0, 7), joined=joined)
            await coordinator.commit_in_transaction("g", request, PRODUCER, 0)
            assert await committed(coordinator, "g", "orders", 0) == -1
            await settle(coordinator)
            assert await committed(coordinator, "g", "orders", 0) == 7

    asyncio.run(scenario())


def test_what_the_log_did_not_take_is_not_settled_until_it_is_told_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path, durability="os")
        async with node.run() as coordinator:
            await ready(coordinator)
            await pend(coordinator, ("orders", 0, 7))
            node.files.fail("pwritev", errno.ENOSPC, is_lasting=True)
            assert await refusal(settle(coordinator)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            node.files.heal()
            await until(coordinator.is_loaded)
            assert await is_pending(coordinator, 0)
            await settle(coordinator)
            assert await committed(coordinator, "g", "orders", 0) == 7

    asyncio.run(scenario())


def test_a_repeated_end_waits_until_the_first_one_is_durable(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            await pend(coordinator, ("orders", 0, 7))
            log = only_log(node)
            ends = [asyncio.ensure_future(settle(coordinator)) for _ in range(2)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            assert log.high_watermark == log.log_end == 3
            await asyncio.gather(*ends)

    asyncio.run(scenario())


def test_what_no_partition_keeps_cannot_be_settled(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            assert await refusal(settling(coordinator, 0, 1, 0, True, 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await ready(coordinator)
            for index in (-1, 2):
                refused = await refusal(settling(coordinator, index, 1, 0, True, 0))
                assert refused is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await refusal(settling(coordinator, 1, 1, 0, True, 0)) is ErrorCode.NONE

    asyncio.run(scenario())


def test_producers_and_coordinators_that_were_replaced_are_fenced(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            await pend(coordinator, ("orders", 0, 7), epoch=5)
            late = coordinator.commit_in_transaction("g", commit_request(("orders", 0, 8)), PRODUCER, 4)
            assert await refusal(late) is ErrorCode.INVALID_PRODUCER_EPOCH
            assert await refusal(settle(coordinator, epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH
            index = (await coordinator.offsets_partition("g")).index
            await coordinator.end_transaction(index, OTHER, 0, True, 9)
            fenced = await refusal(settling(coordinator, index, OTHER, 0, True, 8))
            assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
            await settle(coordinator, epoch=5)
            assert await committed(coordinator, "g", "orders", 0) == 7

    asyncio.run(scenario())


def test_a_commit_whose_transaction_ended_while_it_was_verified_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            request = commit_request(("orders", 0, 7))
            with coordinator.announced(PRODUCER, 0, 1) as announced:
                await settle(coordinator)
                late = coordinator.commit_in_transaction("g", request, PRODUCER, 0, announced)
                assert await refusal(late) is ErrorCode.INVALID_TXN_STATE
            assert not await is_pending(coordinator, 0)
            with coordinator.announced(PRODUCER, 0, 1) as announced:
                await coordinator.commit_in_transaction("g", request, PRODUCER, 0, announced)
            assert await is_pending(coordinator, 0), "the next transaction of the older protocol has the same epoch"

    asyncio.run(scenario())


def test_pending_offsets_of_a_deleted_topic_are_forgotten_also_after_a_crash_in_between(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            await node.catalog.changes.create("bills", 1, {})
            await pend(coordinator, ("orders", 0, 7), ("bills", 0, 5))
            coordinator.forget_topic("orders")
            assert not await is_pending(coordinator, 0)
            await node.catalog.changes.delete(node.catalog.topic("bills"))
        async with node.run() as coordinator:
            await until(coordinator.is_loaded)
            await until(lambda: not list(coordinator.views.listed()))
            await settle(coordinator)
            assert await committed(coordinator, "g", "bills", 0) == -1

    asyncio.run(scenario())


def test_positions_and_lag_are_of_what_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            batch = build_batch([Record(None, b"x")] * 10, timestamp=1)
            appended = node.catalog.topic("orders").partition(0).append(batch, parse_header(batch))
            assert appended.committed is not None
            await appended.committed
            await coordinator.commit("g", commit_request(("orders", 0, 4)))
            await pend(coordinator, ("orders", 0, 9), ("orders", 1, 9))
            assert list(coordinator.views.lags()) == [("g", "orders", 0, 6)]
            assert [(each.topic, each.offset) for each in coordinator.views.positions()] == [("orders", 4)]
            await settle(coordinator)
            assert sorted(coordinator.views.lags()) == [("g", "orders", 0, 1), ("g", "orders", 1, 0)]

    asyncio.run(scenario())


def test_a_compacted_log_brings_back_what_is_pending_in_its_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            for offset in range(50):
                await pend(coordinator, ("orders", 0, offset))
                await settle(coordinator, is_commit=offset % 2 == 0)
            await pend(coordinator, ("orders", 0, 60), producer_id=OTHER)
            await pend(coordinator, ("orders", 0, 61), ("orders", 1, 61))
            log = only_log(node)
            before_bytes = log.size_bytes
            log.ask_roll()
            await until(lambda: log.open_bytes == 0)
            await pend(coordinator, ("orders", 1, 62), producer_id=OTHER)
            await until(lambda: log.register.chain.sealed[0].crc32c is not None)
            await Cleaner(node.ports, node.catalog, node.config).compact()
            assert log.size_bytes < before_bytes / 4
        async with node.run() as coordinator:
            await until(coordinator.is_loaded)
            assert await committed(coordinator, "g", "orders", 0) == 48
            await settle(coordinator)
            await settle(coordinator, producer_id=OTHER)
            assert await committed(coordinator, "g", "orders", 0) == 61
            assert await committed(coordinator, "g", "orders", 1) == 62

    asyncio.run(scenario())


def test_a_group_with_pending_offsets_is_neither_expired_nor_kept_from_deletion(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path, offsets_retention_minutes=60)
        async with node.run() as coordinator:
            await ready(coordinator)
            await coordinator.commit("g", commit_request(("orders", 0, 5)))
            await pend(coordinator, ("orders", 0, 7))
            node.clock.advance(2 * 3600)
            await coordinator.expire()
            assert await committed(coordinator, "g", "orders", 0) == 5
            await coordinator.delete_group("g")
            assert list(coordinator.views.listed()) == []
            await settle(coordinator)
            assert await committed(coordinator, "g", "orders", 0) == -1

    asyncio.run(scenario())
