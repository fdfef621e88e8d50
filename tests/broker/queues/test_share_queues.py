"""Share groups over the wire: what is lent to whom, for how long, and what becomes of it."""

import asyncio
import time
from pathlib import Path

import pytest

from headwater.model.errors import ErrorCode
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.queues.queue_brokers import numbered, produced, queue_broker, waits
from tests.broker.queues.share_members import ACCEPT, REJECT, RELEASE, RENEW, Member, configure, on_loop
from tests.support.eventually import FOREVER_MS, PATIENCE_S, until


@on_loop
async def test_records_are_lent_to_one_member_at_a_time(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, b"a", b"b", b"c")
        fetched = await first.fetch(wait_ms=1000)
        assert fetched.values == [b"a", b"b", b"c"]
        assert fetched.ranges == {0: [(0, 2, 1)]}
        assert (await second.fetch()).offsets == []


@on_loop
async def test_accepted_records_never_come_back(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(10))
        await member.fetch(wait_ms=1000)
        assert await member.acknowledge((0, 3, ACCEPT), (6, 6, ACCEPT)) == 0
    async with queue_broker(tmp_path, files) as (broker, _):
        member = await Member.joined(broker, "t", opens=False)
        assert (await member.fetch(wait_ms=1000)).offsets == [4, 5, 7, 8, 9]


@on_loop
async def test_a_kill_loses_and_doubles_nothing_that_was_accepted(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(100))
        await member.fetch(wait_ms=1000)
        for offset in range(0, 100, 2):
            assert await member.acknowledge((offset, offset, ACCEPT)) == 0
        left = files.killed()
    async with queue_broker(tmp_path, left) as (broker, _):
        member = await Member.joined(broker, "t", opens=False)
        assert (await member.fetch(wait_ms=1000)).offsets == list(range(1, 100, 2))


@on_loop
async def test_many_acknowledgements_are_remembered_through_snapshots(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(1500))
        fetched = await member.fetch(wait_ms=1000, max_records=1500)
        assert len(fetched.offsets) == 1500
        for offset in range(0, 1500, 2):
            assert await member.acknowledge((offset, offset, ACCEPT)) == 0
    async with queue_broker(tmp_path, files) as (broker, _):
        member = await Member.joined(broker, "t", opens=False)
        assert (await member.fetch(wait_ms=1000, max_records=2000)).offsets == list(range(1, 1500, 2))


@on_loop
async def test_released_records_go_to_whoever_waits(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, b"a", b"b")
        await first.fetch(wait_ms=1000)
        waiting = asyncio.create_task(second.fetch(wait_ms=FOREVER_MS))
        await waits(broker)
        assert await first.acknowledge((1, 1, RELEASE)) == 0
        fetched = await asyncio.wait_for(waiting, PATIENCE_S)
        assert fetched.ranges == {0: [(1, 1, 2)]}


@on_loop
async def test_a_fetch_waits_for_an_append_and_not_longer(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        waiting = asyncio.create_task(member.fetch(wait_ms=FOREVER_MS))
        await waits(broker)
        assert not waiting.done()
        await produced(client, b"a")
        assert (await asyncio.wait_for(waiting, PATIENCE_S)).values == [b"a"]


@on_loop
async def test_an_empty_fetch_takes_its_whole_time(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, _):
        member = await Member.joined(broker, "t")
        started = time.monotonic()
        assert (await member.fetch(wait_ms=200)).offsets == []
        assert time.monotonic() - started >= 0.2


@on_loop
async def test_few_bytes_are_not_taken_before_the_time_is_over(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        patient, hasty = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, b"a")
        waiting = asyncio.create_task(patient.fetch(wait_ms=1000, min_bytes=100_000))
        await waits(broker)
        assert (await hasty.fetch()).offsets == [0]
        assert (await waiting).offsets == []
        await produced(client, b"b")
        started = time.monotonic()
        assert (await patient.fetch(wait_ms=200, min_bytes=100_000)).offsets == [1]
        assert time.monotonic() - started >= 0.2


@on_loop
async def test_the_records_of_a_lost_connection_reach_another_member_at_once(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, b"a", b"b")
        await first.fetch(wait_ms=1000)
        waiting = asyncio.create_task(second.fetch(wait_ms=FOREVER_MS))
        await waits(broker)
        first.vanish()
        fetched = await asyncio.wait_for(waiting, PATIENCE_S)
        assert fetched.ranges == {0: [(0, 1, 2)]}
        assert broker.shares.sessions.get("g", first.member_id) is None


@on_loop
async def test_leaving_gives_back_what_was_held(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, b"a")
        await first.fetch(wait_ms=1000)
        await first.heartbeat(-1)
        assert (await second.fetch(wait_ms=20_000)).offsets == [0]


@on_loop
async def test_the_last_acknowledgements_may_come_after_the_member_left(tmp_path: Path) -> None:
    """They go to the leader of the partition, the departure to the coordinator: on two connections, in any order."""
    async with queue_broker(tmp_path) as (broker, client):
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, b"a", b"b")
        assert (await first.fetch(wait_ms=1000, max_records=2)).offsets == [0, 1]
        await first.heartbeat(-1)
        assert await first.acknowledge((0, 0, ACCEPT), session_epoch=-1) == 0
        assert (await second.fetch(wait_ms=1000)).ranges == {0: [(1, 1, 2)]}


@on_loop
async def test_the_final_epoch_gives_back_what_was_not_acknowledged_with_it(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, b"a", b"b", b"c")
        await first.fetch(wait_ms=1000)
        assert await first.acknowledge((1, 1, ACCEPT), session_epoch=-1) == 0
        assert (await second.fetch(wait_ms=1000)).offsets == [0, 2]
        assert await first.acknowledge(session_epoch=-1) == ErrorCode.SHARE_SESSION_NOT_FOUND


@on_loop
async def test_a_lease_that_runs_out_wakes_who_waits(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        await configure(client, share_record_lock_duration_ms="1000")
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, b"a")
        await first.fetch(wait_ms=1000)
        started = time.monotonic()
        fetched = await asyncio.wait_for(second.fetch(wait_ms=FOREVER_MS), PATIENCE_S)
        assert fetched.ranges == {0: [(0, 0, 2)]}
        assert time.monotonic() - started > 0.8
        assert await first.acknowledge((0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


@on_loop
async def test_a_lease_can_be_renewed(tmp_path: Path) -> None:
    clock = ManualClock()
    async with queue_broker(tmp_path, clock=clock) as (broker, client):
        await configure(client, share_record_lock_duration_ms="1000")
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, b"a")
        await first.fetch(wait_ms=1000)
        (queue,) = broker.shares.of_group("g")
        clock.advance(0.6)
        queue.expire()
        assert (await first.fetch(acks=[(0, 0, RENEW)], is_renewal=True)).acknowledge_errors == {0: 0}
        clock.advance(0.7)
        queue.expire()
        assert (await second.fetch()).offsets == []
        assert await first.acknowledge((0, 0, RENEW), is_renewal=True) == 0
        assert await first.acknowledge((0, 0, ACCEPT)) == 0


@on_loop
async def test_acknowledgements_come_with_a_fetch(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, b"a", b"b")
        await member.fetch(wait_ms=1000, max_records=1)
        fetched = await member.fetch(acks=[(0, 0, ACCEPT)])
        assert fetched.acknowledge_errors == {0: 0}
        assert fetched.offsets == [1]


@on_loop
async def test_the_limit_of_records_is_strict_or_rounded_to_batches(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(10))
        await produced(client, *numbered(10))
        assert (await member.fetch(wait_ms=1000, max_records=3)).offsets == [0, 1, 2]
        assert (await member.fetch(max_records=3, mode=0)).offsets == list(range(3, 10))


@on_loop
async def test_batches_come_whole_and_ranges_tell_what_is_lent(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        for _ in range(3):
            await produced(client, *numbered(4))
        fetched = await member.fetch(wait_ms=1000, max_records=2)
        assert [record.offset for record in fetched.sent[0]] == [0, 1, 2, 3]
        fetched = await member.fetch(batch_size=3)
        assert fetched.ranges[0] == [(2, 7, 1), (8, 11, 1)]


@on_loop
async def test_members_that_wait_take_turns(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        members = [await Member.joined(broker, "t") for _ in range(4)]
        served: list[int] = []

        async def work(number: int) -> None:
            for _ in range(5):
                fetched = await members[number].fetch(wait_ms=FOREVER_MS, max_records=1)
                served.append(number)
                await members[number].accept_all(fetched)

        workers = [asyncio.create_task(work(number)) for number in range(4)]
        for number in range(20):
            busy = [each for each in range(4) if served.count(each) < 5]
            await waits(broker, len(busy))  # the member that was served, too
            await produced(client, b"%d" % number)
            await until(lambda number=number: len(served) > number)  # type: ignore[misc]
        await asyncio.wait_for(asyncio.gather(*workers), PATIENCE_S)
        for turn in range(5):
            assert sorted(served[turn * 4 : turn * 4 + 4]) == [0, 1, 2, 3]


@on_loop
async def test_partitions_take_turns(tmp_path: Path) -> None:
    async with queue_broker(tmp_path, partitions=3) as (broker, client):
        member = await Member.joined(broker, "t", partitions=(0, 1, 2))
        for partition in range(3):
            await produced(client, *numbered(4), partition=partition)
        seen = [sorted((await member.fetch(wait_ms=1000, max_records=2)).ranges) for _ in range(3)]
        assert sorted(seen) == [[0], [1], [2]]


@on_loop
async def test_what_is_in_flight_is_bounded(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        await configure(client, share_partition_max_record_locks="100")
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(250))
        assert (await member.fetch(wait_ms=1000, max_records=1000)).offsets == list(range(100))
        waiting = asyncio.create_task(member.fetch(wait_ms=10_000))
        other = await Member.joined(broker, "t")
        assert (await other.fetch()).offsets == []
        waiting.cancel()


@on_loop
async def test_locks_that_come_free_wake_who_waits(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        await configure(client, share_partition_max_record_locks="100")
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, *numbered(150))
        await first.fetch(wait_ms=1000, max_records=1000)
        waiting = asyncio.create_task(second.fetch(wait_ms=FOREVER_MS))
        await waits(broker)
        assert await first.acknowledge((0, 9, ACCEPT)) == 0
        assert (await asyncio.wait_for(waiting, PATIENCE_S)).offsets == list(range(100, 110))


@on_loop
async def test_delayed_records_come_when_they_are_due(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        now_ms = broker.clock.now_ms()
        records = [
            Record(None, b"later", (("headwater.delay", b"400"),), now_ms),
            Record(None, b"now", (), now_ms),
            Record(None, b"soon", (("headwater.deliver-at", b"%d" % (now_ms + 200)),), now_ms),
        ]
        await client.produce("t", build_batch(records))
        arrived = []
        for _ in range(3):
            fetched = await member.fetch(wait_ms=5_000)
            arrived.append((fetched.values, broker.clock.now_ms() - now_ms))
            await member.accept_all(fetched)
        assert [values for values, _ in arrived] == [[b"now"], [b"soon"], [b"later"]]
        assert arrived[1][1] >= 200
        assert arrived[2][1] >= 400


@on_loop
async def test_latest_begins_behind_what_is_there(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        await produced(client, b"old")
        member = await Member.joined(broker, "t", "other")
        await produced(client, b"new")
        assert (await member.fetch(wait_ms=1000)).values == [b"new"]


@on_loop
async def test_key_order_lets_one_member_at_a_time_have_a_key(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        await configure(client, headwater_share_order="key")
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        records = [Record(b"k%d" % (number % 2), b"%d" % number, timestamp=1_000) for number in range(4)]
        await client.produce("t", build_batch(records))
        mine = await first.fetch(wait_ms=1000, max_records=1)
        assert mine.values == [b"0"]
        theirs = await second.fetch(wait_ms=1000)
        assert b"2" not in theirs.values
        assert await first.acknowledge((0, 0, RELEASE)) == 0
        again = await first.fetch(wait_ms=1000, max_records=1)
        assert again.values == [b"0"]


@on_loop
async def test_a_group_at_a_deleted_topic_is_told_and_forgets(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, b"a")
        await member.fetch(wait_ms=1000)
        await broker.delete_topic(broker.catalog.topic("t"))
        assert (await member.fetch(wait_ms=200)).errors == {0: ErrorCode.UNKNOWN_TOPIC_ID}
        started = time.monotonic()
        await member.fetch(wait_ms=200)
        assert time.monotonic() - started >= 0.2, "an error is told once; then there is no hurry"
        assert broker.shares.of_group("g") == []


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT])
@on_loop
async def test_bad_acknowledgements_change_nothing(tmp_path: Path, kind: int) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member, other = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, *numbered(4))
        await member.fetch(wait_ms=1000, max_records=2)
        await other.fetch(max_records=1)
        assert await member.acknowledge((0, 2, kind)) == ErrorCode.INVALID_RECORD_STATE
        assert await member.acknowledge((3, 3, kind)) in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
        assert await member.acknowledge((0, 99, kind)) == ErrorCode.INVALID_REQUEST
        assert await member.acknowledge((1, 0, kind)) == ErrorCode.INVALID_REQUEST
        assert await member.acknowledge((0, 1, kind), (1, 1, kind)) == ErrorCode.INVALID_REQUEST
        assert await member.acknowledge((0, 0, 9)) == ErrorCode.INVALID_REQUEST
        assert await member.acknowledge((0, 0, RENEW)) == ErrorCode.INVALID_REQUEST
        assert await member.acknowledge((0, 0, kind), partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await other.acknowledge((0, 0, kind)) == ErrorCode.INVALID_RECORD_STATE
        assert await member.acknowledge((0, 1, ACCEPT)) == 0


@on_loop
async def test_sessions_keep_to_their_epochs(tmp_path: Path) -> None:
    async with queue_broker(tmp_path, share_max_sessions=1) as (broker, _):
        member = await Member.joined(broker, "t")
        assert (await member.fetch(session_epoch=5)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await member.acknowledge(session_epoch=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await member.acknowledge(session_epoch=7) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        with_acks = await member.fetch(session_epoch=0, acks=[(0, 0, ACCEPT)])
        assert with_acks.error_code == ErrorCode.INVALID_REQUEST
        second = Member(member.client, member.topic_id)
        assert (await second.fetch(session_epoch=3)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert (await second.fetch()).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        member.member_id = ""
        assert (await member.fetch()).error_code == ErrorCode.INVALID_REQUEST


@on_loop
async def test_opening_a_session_anew_keeps_what_the_member_holds(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, b"a")
        await member.fetch(wait_ms=1000)
        member.session_epoch = 0
        assert (await member.fetch()).offsets == []
        assert await member.acknowledge((0, 0, ACCEPT)) == 0


@on_loop
async def test_a_group_that_does_not_exist_has_no_queues(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        stranger = Member(client, broker.catalog.topic("t").topic_id, "nobody")
        assert (await stranger.fetch()).errors == {0: ErrorCode.GROUP_ID_NOT_FOUND}


@on_loop
async def test_a_renewal_fetches_nothing(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        answer = await client.ask(
            78, 2, group_id="g", member_id=member.member_id, share_session_epoch=1, max_wait_ms=1, min_bytes=0,
            max_bytes=0, max_records=0, batch_size=0, is_renew_ack=True, topics=[], forgotten_topics_data=[],
            share_acquire_mode=0,
        )  # fmt: skip
        assert answer.error_code == ErrorCode.INVALID_REQUEST
