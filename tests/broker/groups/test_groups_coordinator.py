"""The coordinator on a real store in memory, a real catalog, and a clock that the test moves."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.groups.group_log import OFFSETS_TOPIC
from headwater.broker.housekeeping.cleaner import Cleaner
from headwater.groups.consumer_requests import ConsumerHeartbeat
from headwater.groups.rebalance import GroupState
from headwater.groups.requests import CommitRequest, LeaveRequest, OffsetToCommit, SyncRequest
from headwater.model.errors import ErrorCode
from headwater.records.batch import parse_header
from headwater.records.build import build_batch
from headwater.records.record import Record
from tests.broker.groups.coordinator_node import (
    Node,
    commit_request,
    committed,
    join_request,
    ready,
    refusal,
    stable,
    sync_request,
)
from tests.support.eventually import PATIENCE_S, tasks_run, until


def test_the_internal_topic_comes_with_the_first_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            assert await committed(coordinator, "g", "orders", 0) == -1
            assert list(coordinator.views.listed()) == []
            assert coordinator.views.described("g").state is GroupState.DEAD
            assert await refusal(coordinator.delete_group("g")) is ErrorCode.GROUP_ID_NOT_FOUND
            assert node.catalog.find(OFFSETS_TOPIC) is None, "asking creates nothing"
            await asyncio.gather(*(coordinator.ensure_ready() for _ in range(5)))
            topic = node.catalog.topic(OFFSETS_TOPIC)
            assert topic.partition_count == 2 and topic.config.is_compacted and topic.is_internal

    asyncio.run(scenario())


def test_groups_and_offsets_come_back_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await coordinator.ensure_ready()
            await until(coordinator.is_loaded)
            joined = await stable(coordinator)
            commit = commit_request(("orders", 0, 7), ("orders", 1, 8), joined=joined)
            answers = await coordinator.commit("g", commit)
            assert [answer.error for answer in answers] == [ErrorCode.NONE, ErrorCode.NONE]
        async with node.run() as coordinator:
            assert await refusal(coordinator.join("g", join_request())) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert coordinator.heartbeat("g", "anyone", None, 99) is ErrorCode.NONE
            begun = await coordinator.sync("g", SyncRequest(joined.member_id, None, joined.generation, None, None, {}))
            assert begun.error is ErrorCode.REBALANCE_IN_PROGRESS
            await until(coordinator.is_loaded)
            described = coordinator.views.described("g")
            assert (described.state, described.generation) == (GroupState.STABLE, joined.generation)
            assert [member.assignment for member in described.members] == [b"everything"]
            assert coordinator.heartbeat("g", joined.member_id, None, joined.generation) is ErrorCode.NONE
            assert await committed(coordinator, "g", "orders", 1) == 8

    asyncio.run(scenario())


def test_sessions_end_by_the_clock_and_the_group_becomes_empty(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            await stable(coordinator)
            node.clock.advance(9.9)
            coordinator.tick()
            assert coordinator.views.described("g").state is GroupState.STABLE
            node.clock.advance(0.2)
            coordinator.tick()
            assert coordinator.views.described("g").state is GroupState.EMPTY
            (departure,) = coordinator.views.described("g").departures
            assert departure.reason.value == "session expired"

    asyncio.run(scenario())


def test_offsets_of_an_abandoned_group_expire_and_stay_away_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path, offsets_retention_minutes=60)
        async with node.run() as coordinator:
            await ready(coordinator)
            joined = await stable(coordinator)
            await coordinator.commit("g", commit_request(("orders", 0, 7), joined=joined))
            await coordinator.leave("g", [LeaveRequest(joined.member_id, None)])
            await coordinator.commit("busy", commit_request(("orders", 0, 9)))
            node.clock.advance(59 * 60)
            await coordinator.commit("busy", commit_request(("orders", 0, 10)))
            await coordinator.expire()
            assert await committed(coordinator, "g", "orders", 0) == 7
            node.clock.advance(60)
            await coordinator.expire()
            assert await committed(coordinator, "g", "orders", 0) == -1
        async with node.run() as coordinator:
            await until(coordinator.is_loaded)
            assert [group.group_id for group in coordinator.views.listed()] == ["busy"]
            assert await committed(coordinator, "busy", "orders", 0) == 10

    asyncio.run(scenario())


def test_commits_that_arrive_together_are_written_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            requests = [coordinator.commit("g", commit_request(("orders", 0, offset))) for offset in range(100)]
            await asyncio.gather(*requests)
            assert await committed(coordinator, "g", "orders", 0) == 99
            (log,) = [each for each in node.catalog.topic(OFFSETS_TOPIC).partitions() if each.log_end]
            batches = bytes(await log.read(0, 1024 * 1024))
            count, position = 0, 0
            while position < len(batches):
                position += parse_header(batches, position).size_bytes
                count += 1
            assert log.log_end == 100 and count <= 3

    asyncio.run(scenario())


def test_a_full_disk_is_answered_and_what_was_not_logged_is_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path, durability="os")
        async with node.run() as coordinator:
            await ready(coordinator)
            joined = await stable(coordinator)
            await coordinator.commit("g", commit_request(("orders", 0, 7), joined=joined))
            waiting = asyncio.ensure_future(coordinator.join("g", join_request()))
            await asyncio.sleep(0)
            node.files.fail("pwritev", errno.ENOSPC, is_lasting=True)
            refused = await refusal(coordinator.commit("g", commit_request(("orders", 0, 8), joined=joined)))
            assert refused is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await refusal(_awaited(waiting)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            node.files.heal()
            await until(coordinator.is_loaded)
            assert await committed(coordinator, "g", "orders", 0) == 7
            assert coordinator.heartbeat("g", joined.member_id, None, joined.generation) is ErrorCode.NONE
            await coordinator.commit("g", commit_request(("orders", 0, 9), joined=joined))
            assert await committed(coordinator, "g", "orders", 0) == 9

    asyncio.run(scenario())


def test_the_offsets_of_a_deleted_topic_are_forgotten_also_after_a_crash_in_between(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            await node.catalog.changes.create("bills", 1, {})
            await coordinator.commit("g", commit_request(("orders", 0, 7), ("bills", 0, 5)))
            coordinator.forget_topic("orders")
            assert await committed(coordinator, "g", "orders", 0) == -1
            assert await committed(coordinator, "g", "bills", 0) == 5
            await node.catalog.changes.delete(node.catalog.topic("bills"))
        async with node.run() as coordinator:
            await until(coordinator.is_loaded)
            await until(lambda: not list(coordinator.views.listed()))
            assert await committed(coordinator, "g", "bills", 0) == -1

    asyncio.run(scenario())


def test_records_that_cannot_be_read_do_not_take_the_others_with_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            await coordinator.commit("g", commit_request(("orders", 0, 7)))
            (log,) = [each for each in node.catalog.topic(OFFSETS_TOPIC).partitions() if each.log_end]
            junk = [Record(None, b"x"), Record(b"\x00\x63whatever", b"x"), Record(b"\x00\x01\x00\x01g", b"\x00\x03")]
            batch = build_batch(junk, timestamp=1)
            appended = log.append(batch, parse_header(batch))
            assert appended.committed is not None
            await appended.committed
            await coordinator.commit("g", commit_request(("orders", 1, 8)))
        async with node.run() as coordinator:
            await until(coordinator.is_loaded)
            assert await committed(coordinator, "g", "orders", 0) == 7
            assert await committed(coordinator, "g", "orders", 1) == 8

    asyncio.run(scenario())


def test_a_compacted_log_brings_back_the_same_groups(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            joined = await stable(coordinator)
            for offset in range(50):
                await coordinator.commit("g", commit_request(("orders", 0, offset), joined=joined))
            (log,) = [each for each in node.catalog.topic(OFFSETS_TOPIC).partitions() if each.log_end]
            before_bytes = log.size_bytes
            log.ask_roll()
            await until(lambda: log.open_bytes == 0)
            await coordinator.commit("g", commit_request(("orders", 1, 7), joined=joined))
            await until(lambda: log.register.chain.sealed[0].crc32c is not None)
            await Cleaner(node.ports, node.catalog, node.config).compact()
            assert log.size_bytes < before_bytes / 4
            durable = coordinator.views.described("g").members
        async with node.run() as coordinator:
            await until(coordinator.is_loaded)
            assert coordinator.views.described("g").members == durable
            assert await committed(coordinator, "g", "orders", 0) == 49
            assert await committed(coordinator, "g", "orders", 1) == 7

    asyncio.run(scenario())


def test_lag_is_what_the_log_has_and_the_group_has_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            batch = build_batch([Record(None, b"x")] * 10, timestamp=1)
            appended = node.catalog.topic("orders").partition(0).append(batch, parse_header(batch))
            assert appended.committed is not None
            await appended.committed
            await coordinator.commit("g", commit_request(("orders", 0, 4)))
            assert list(coordinator.views.lags()) == [("g", "orders", 0, 6)]

    asyncio.run(scenario())


def test_a_thousand_members_form_a_group_and_time_out_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path, group_initial_rebalance_delay_ms=1_000)
        async with node.run() as coordinator:
            await ready(coordinator)
            joins = [asyncio.ensure_future(coordinator.join("g", join_request())) for _ in range(1_000)]
            await tasks_run()
            for _ in range(2):
                node.clock.advance(1.0)
                coordinator.tick()
                await tasks_run()
            answers = await asyncio.wait_for(asyncio.gather(*joins), PATIENCE_S)
            (leader,) = [answer for answer in answers if answer.members]
            assert len(leader.members) == 1_000 and {answer.generation for answer in answers} == {1}
            syncs = [coordinator.sync("g", sync_request(answer, {})) for answer in answers]
            assert {answer.error for answer in await asyncio.gather(*syncs)} == {ErrorCode.NONE}
            node.clock.advance(10.0)
            coordinator.tick()
            assert coordinator.views.described("g").state is GroupState.EMPTY

    asyncio.run(scenario())


async def _awaited(future: "asyncio.Future[Any]") -> Any:
    return await future


@pytest.mark.parametrize("group_id", ["", "x" * 40_000])
def test_a_bad_group_id_creates_nothing(tmp_path: Path, group_id: str) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            assert await refusal(coordinator.join(group_id, join_request())) is ErrorCode.INVALID_GROUP_ID
            assert await refusal(coordinator.commit(group_id, commit_request())) is ErrorCode.INVALID_GROUP_ID
            assert node.catalog.find(OFFSETS_TOPIC) is None

    asyncio.run(scenario())


def consumer_heartbeat(member_id: str, epoch: int, **fields: Any) -> ConsumerHeartbeat:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 30_000, "topic_names": ("orders",), "owned": {}, **fields}
    return ConsumerHeartbeat(member_id, epoch, None, "app", "/test", **fields)


def test_a_group_of_the_new_protocol_goes_on_after_a_restart_and_after_compaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path)
        async with node.run() as coordinator:
            await ready(coordinator)
            first = await coordinator.consumer_heartbeat("g", consumer_heartbeat("a", 0))
            assert first.assigned is not None
            for number in range(20):
                await coordinator.consumer_heartbeat("g", consumer_heartbeat(f"b{number}", 0))
                await coordinator.consumer_heartbeat("g", consumer_heartbeat(f"b{number}", -1))
            answer = await coordinator.consumer_heartbeat("g", consumer_heartbeat("a", 1, owned=first.assigned))
            described = coordinator.views.described_consumer("g")
            assert (described.state, described.epoch, answer.epoch) == (GroupState.STABLE, 41, 41)
            (log,) = [each for each in node.catalog.topic(OFFSETS_TOPIC).partitions() if each.log_end]
            log.ask_roll()
            await until(lambda: log.open_bytes == 0)
            await coordinator.commit("g", CommitRequest("a", None, 41, (OffsetToCommit("orders", 0, 7, -1, ""),)))
            await until(lambda: log.register.chain.sealed[0].crc32c is not None)
            await Cleaner(node.ports, node.catalog, node.config).compact()
        async with node.run() as coordinator:
            await until(coordinator.is_loaded)
            assert coordinator.views.described_consumer("g") == described
            again = await coordinator.consumer_heartbeat("g", consumer_heartbeat("a", 41))
            assert (again.epoch, again.assigned) == (41, None)
            (found,) = await coordinator.committed("g", [("orders", 0)], "a", 41)
            assert found.committed is not None and found.committed.offset == 7
            await node.catalog.changes.add_partitions(node.catalog.topic("orders"), 3)
            grown = await coordinator.consumer_heartbeat("g", consumer_heartbeat("a", 41))
            assert grown.epoch == 42 and grown.assigned is not None
            assert [sorted(indexes) for indexes in grown.assigned.values()] == [[0, 1, 2]]

    asyncio.run(scenario())


def test_a_silent_member_of_the_new_protocol_is_removed_by_the_clock(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(tmp_path, group_consumer_session_timeout_ms=10_000)
        async with node.run() as coordinator:
            await ready(coordinator)
            await coordinator.consumer_heartbeat("g", consumer_heartbeat("a", 0))
            node.clock.advance(10)
            coordinator.tick()
            assert coordinator.views.described_consumer("g").state is GroupState.EMPTY
            assert [(each.group_id, each.reason.value) for each in coordinator.views.departures()] == [
                ("g", "session expired")
            ]

    asyncio.run(scenario())
