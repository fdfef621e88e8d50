"""A client that has produced or fetched too much is told at once how long it waits, and is not read for that long."""

import asyncio
from pathlib import Path

import pytest

from headwater.security.quota_entities import QuotaEntity
from tests.broker.quotas.limited_brokers import (
    API_VERSIONS,
    IN,
    OUT,
    PRODUCE,
    T,
    connected,
    fetched,
    limited,
    produced,
    size_of,
    usage,
)
from tests.support.eventually import tasks_run, until
from tests.support.local_broker import batch_of
from tests.support.messages import nested

LARGE = batch_of([bytes(30 * T)])
SMALL = batch_of([bytes(T)])


@pytest.mark.parametrize("version", [3, 8, 9])
def test_a_producer_is_told_how_long_it_waits(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{IN: T}) as (broker, client, clock):
            throttle_ms = await produced(client, LARGE, version)
            assert 20_000 <= throttle_ms <= 20_500  # 30 kB and the frame around them, of which 10 may come at once
            clock.advance(throttle_ms / 1000)
            async with connected(broker) as other:
                assert 0 < await produced(other, SMALL, version) <= 1_500

    asyncio.run(main())


def test_a_connection_that_waits_is_not_read_and_others_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{IN: T}) as (broker, client, _):
            client.send_batch("t", LARGE)
            client.send(API_VERSIONS, 0)
            assert (await client.answer(PRODUCE, 9)).throttle_time_ms >= 20_000
            (muted,) = [each for each in broker.server.connections() if each.is_throttled]
            async with connected(broker) as other:
                await other.round_trips()
            assert muted.is_throttled and not muted.is_idle  # its second request is there, and waits

    asyncio.run(main())


def test_a_connection_that_has_waited_is_read_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{IN: 1_000_000}) as (_, client, _):
            client.send_batch("t", batch_of([bytes(10_100_000)]))
            client.send(API_VERSIONS, 0)
            assert 100 <= (await client.answer(PRODUCE, 9)).throttle_time_ms < 200
            assert (await client.answer(API_VERSIONS, 0)).error_code == 0

    asyncio.run(main())


def test_a_wait_is_told_to_the_request_that_caused_it_and_to_none_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{IN: T, OUT: 1_000 * T}) as (broker, client, clock):
            assert await produced(client, SMALL) == 0
            assert await produced(client, LARGE) > 20_000
            (connection,) = broker.server.connections()
            connection._throttled()  # long before the clock of the quotas says so
            assert (await fetched(client)).throttle_time_ms == 0
            clock.advance(60)
            assert await produced(client, SMALL) == 0

    asyncio.run(main())


def test_a_connection_that_is_gone_keeps_no_limits(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{IN: T}) as (broker, client, _):
            assert await produced(client, SMALL) == 0
            (connection,) = broker.server.connections()
            assert connection.limits.usage is not None
            client.close()
            await until(lambda: not broker.server.connections())
            assert connection.limits is None

    asyncio.run(main())


def test_a_producer_that_wants_no_answer_waits_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{IN: T}) as (broker, client, _):
            client.send_batch("t", LARGE, acks=0)
            await until(lambda: any(each.is_throttled for each in broker.server.connections()))
            async with connected(broker) as other:
                assert (await other.read_all("t"))[0].value == bytes(30 * T)

    asyncio.run(main())


def test_pipelined_produces_begin_when_the_wait_is_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{IN: T}) as (broker, client, _):
            for _ in range(5):
                client.send_batch("t", LARGE)
            assert (await client.answer(PRODUCE, 9)).throttle_time_ms >= 20_000
            await tasks_run()
            assert broker.catalog.topic("t").partition(0).high_watermark == 1

    asyncio.run(main())


def test_connections_of_a_client_share_its_limit_and_other_clients_have_their_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, QuotaEntity.of([("client-id", None)]), **{IN: T}) as (broker, client, clock):
            assert await produced(client, LARGE)
            async with connected(broker) as same:
                assert await produced(same, SMALL) > 20_000
            (one,) = usage(broker)
            assert (one["quota"], one["client_id"], one["user"], one["limit"]) == (IN, "by hand", None, T)
            assert one["violations"] == 2 and one["waits_ms"] > 20_000 and one["rate"] > 3 * T
            clock.advance(5)
            assert usage(broker)[0]["waits_ms"] == one["waits_ms"] - 5_000

    asyncio.run(main())


def test_without_a_login_a_client_is_limited_as_anonymous(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, QuotaEntity.of([("user", None)]), **{IN: T}) as (broker, client, _):
            assert await produced(client, LARGE)
            assert usage(broker)[0]["user"] == "ANONYMOUS"

    asyncio.run(main())


def test_a_limit_that_does_not_mean_the_client_costs_it_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, QuotaEntity.of([("client-id", "other")]), **{IN: T, OUT: T}) as (
            broker,
            client,
            _,
        ):
            assert await produced(client, LARGE) == 0
            assert size_of(await fetched(client)) == len(LARGE)
            assert usage(broker) == []

    asyncio.run(main())


def test_a_limit_holds_from_the_next_request_on_and_no_longer_than_it_is_set(tmp_path: Path) -> None:
    async def main() -> None:
        entity = QuotaEntity.of([("user", "ANONYMOUS")])
        async with limited(tmp_path, entity, **{IN: 1_000_000_000}) as (broker, client, _):
            assert await produced(client, LARGE) == 0
            await broker.quotas.alter(entity, [(IN, None)])
            assert not broker.meters.limits_clients and usage(broker) == []
            await broker.quotas.alter(entity, [(IN, T)])
            assert await produced(client, LARGE) > 20_000

    asyncio.run(main())


@pytest.mark.parametrize("version", [4, 6, 11, 12])
def test_a_consumer_gets_what_there_is_room_for_and_then_nothing(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{OUT: T}) as (broker, client, clock):
            for _ in range(20):
                assert await produced(client, SMALL) == 0
            first = await fetched(client, version=version)
            assert 8 * T <= size_of(first) <= 10 * T and first.throttle_time_ms == 0
            second = await fetched(client, 8, version=version)
            assert size_of(second) == len(SMALL) and 0 < second.throttle_time_ms < 2_000  # a first batch always goes
            async with connected(broker) as other:
                third = await fetched(other, 9, version=version)
                assert third.responses == [] and 0 < third.throttle_time_ms < 2_000
            clock.advance(12)  # a window forgets after eleven seconds, and not before
            async with connected(broker) as other:
                assert size_of(await fetched(other, 9, version=version)) == 9 * len(SMALL)

    asyncio.run(main())


def test_a_batch_above_all_limits_is_sent_and_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{OUT: T}) as (broker, client, clock):
            await produced(client, LARGE)
            for _ in range(3):
                async with connected(broker) as consumer:
                    answer = await fetched(consumer)
                    assert size_of(answer) == len(LARGE) and answer.throttle_time_ms > 20_000
                async with connected(broker) as consumer:
                    empty = await fetched(consumer)
                    assert size_of(empty) == 0 and empty.throttle_time_ms >= answer.throttle_time_ms - 1_000
                clock.advance(60)

    asyncio.run(main())


def test_a_session_that_gets_nothing_stays_as_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{OUT: T}) as (broker, client, clock):
            await produced(client, SMALL)
            opened = await fetched(client, session_epoch=0)
            assert opened.session_id and size_of(opened) == len(SMALL)
            session = broker.fetch_sessions._sessions[opened.session_id]
            await produced(client, LARGE)
            asked = nested(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
            more = {"session_id": opened.session_id, "topics": [nested(topic="t", partitions=[asked])]}
            assert size_of(await fetched(client, session_epoch=1, **more)) == len(LARGE)
            said = [partition.said for partition in session]
            async with connected(broker) as other:
                empty = await fetched(other, session_epoch=2, **more)
                assert (empty.session_id, empty.responses, empty.error_code) == (opened.session_id, [], 0)
                assert empty.throttle_time_ms > 20_000
            assert [partition.said for partition in session] == said
            async with connected(broker) as other:
                assert (await fetched(other, session_epoch=2, **more)).error_code == 71  # the epoch went on
            async with connected(broker) as other:
                unopened = await fetched(other, session_epoch=0)
                assert (unopened.session_id, unopened.responses) == (0, []) and unopened.throttle_time_ms > 20_000
            assert len(broker.fetch_sessions) == 1
            clock.advance(60)
            async with connected(broker) as other:
                assert size_of(await fetched(other, session_epoch=3, **more)) == len(LARGE)

    asyncio.run(main())


def test_fetches_that_wait_share_what_there_is_room_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{OUT: T}) as (broker, client, _):
            async with connected(broker) as one, connected(broker) as two, connected(broker) as three:
                waiting = [
                    asyncio.ensure_future(fetched(each, max_wait_ms=60_000, min_bytes=1)) for each in (one, two, three)
                ]
                await until(lambda: len(broker.catalog.topic("t").partition(0).watchers) == 3)
                await produced(client, LARGE)
                answers = await asyncio.gather(*waiting)
                assert sorted(map(size_of, answers)) == [0, 0, len(LARGE)]
                assert all(each.throttle_time_ms > 20_000 for each in answers)
            assert len(broker.fetch_sessions) == 0

    asyncio.run(main())


def test_more_bytes_than_there_is_room_for_are_not_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{OUT: T}) as (_, client, _):
            for _ in range(12):
                await produced(client, SMALL)
            answer = await fetched(client, max_wait_ms=60_000, min_bytes=1 << 20)
            assert 8 * T <= size_of(answer) <= 10 * T

    asyncio.run(main())


def test_half_a_request_is_not_late_because_its_connection_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{IN: T}) as (broker, client, _):
            client.send_batch("t", LARGE, acks=0)
            client._writer.write(b"\0\0\1\0half")
            await until(lambda: any(each.is_throttled for each in broker.server.connections()))
            (muted,) = [each for each in broker.server.connections() if each.is_throttled]
            muted.frame_started = muted.last_active - 3_600
            broker.server._close_idle()
            assert muted in broker.server.connections()
            muted._throttled()
            broker.server._close_idle()
            assert muted in broker.server.connections()
            muted.frame_started -= 3_600
            broker.server._close_idle()
            await until(lambda: muted not in broker.server.connections())

    asyncio.run(main())
