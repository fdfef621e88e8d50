"""What else of a client is limited: records of queues, partitions made and deleted, the broker's time, connections."""

import asyncio
import socket
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.metrics.metrics_page import metrics_text
from headwater.broker.server import Broker
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.quota_entities import QuotaEntity
from headwater.transport import acceptor
from tests.broker.queues.share_members import ACCEPT, Member, configure, on_loop
from tests.broker.quotas.limited_brokers import (
    API_VERSIONS,
    CONNECTIONS,
    FETCH,
    METADATA,
    MUTATIONS,
    OUT,
    PRODUCE,
    TIME,
    T,
    connected,
    fetched,
    limited,
    produced,
    usage,
)
from tests.support.eventually import until
from tests.support.local_broker import Client, batch_of
from tests.support.messages import nested

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
LEAST = 0.0001
"""Percent of the loop's time: every request takes more."""


# Queues


@on_loop
async def test_a_queue_gives_what_there_is_room_for_and_then_nothing(tmp_path: Path) -> None:
    async with limited(tmp_path, **{OUT: T}) as (broker, client, clock):
        await configure(client, share_auto_offset_reset="earliest")
        for _ in range(15):
            await produced(client, batch_of([bytes(T)]))
        member = await Member.joined(broker, "t", opens=False)
        assert (await member.fetch()).offsets == list(range(9))
        assert (await member.fetch()).offsets == [9]  # a first batch always goes, and is waited for
        (muted,) = [each for each in broker.server.connections() if each.is_throttled]
        other = await Member.joined(broker, "t", opens=False)
        nothing = await other.fetch()
        assert (nothing.error_code, nothing.offsets) == (0, [])
        clock.advance(12)
        for connection in broker.server.connections():
            if connection.is_throttled:
                connection._throttled()
        assert not muted.is_throttled
        assert (await other.fetch()).offsets == list(range(10, 15))


@on_loop
async def test_acknowledgements_that_come_with_a_throttled_share_fetch_count(tmp_path: Path) -> None:
    async with limited(tmp_path, **{OUT: 1_000_000}) as (broker, client, _):
        await configure(client, share_auto_offset_reset="earliest")
        await client.produce("t", batch_of([bytes(11_000_000)]))
        await client.produce("t", batch_of([b"next"]))
        member = await Member.joined(broker, "t", opens=False)
        assert (await member.fetch()).offsets == [0]
        (queue,) = broker.shares.of_group("g")
        ((metered, _),) = broker.meters.sent
        broker.meters.sent.meter(metered, broker.meters.now_ms()).charge(30_000_000, 1_000_000, broker.meters.now_ms())
        answer = await member.fetch(acks=[(0, 0, ACCEPT)])  # when its connection is read again
        assert (answer.error_code, answer.acknowledge_errors, answer.offsets) == (0, {0: 0}, [])
        assert queue.share.start_offset == 1


# Partitions that are made and deleted


async def created(client: Client, version: int, *topics: tuple[str, int], validate_only: bool = False) -> Any:
    asked = [nested(name=name, num_partitions=count, replication_factor=1) for name, count in topics]
    return await client.ask(CREATE_TOPICS, version, topics=asked, timeout_ms=5_000, validate_only=validate_only)


def codes(answer: Any) -> list[int]:
    return [each.error_code for each in answer.topics]


def test_topics_without_room_are_refused_one_by_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{MUTATIONS: 0.5}) as (broker, client, clock):  # five and a half at once
            answer = await created(client, 7, ("a", 2), ("t", 1), ("b", 4), ("c", 1), ("a/b", 1))
            assert codes(answer) == [0, ErrorCode.TOPIC_ALREADY_EXISTS, 0, THROTTLED, ErrorCode.INVALID_TOPIC_EXCEPTION]
            assert answer.throttle_time_ms == 1_000  # half a partition too many
            assert broker.catalog.find("c") is None
            async with connected(broker) as other:
                assert codes(await created(other, 7, ("c", 1), validate_only=True)) == [0]
                answer = await created(other, 6, ("c", 1))
                assert (codes(answer), answer.throttle_time_ms) == ([THROTTLED], 1_000)
            clock.advance(1)
            async with connected(broker) as other:
                assert codes(await created(other, 7, ("c", 1))) == [0]
            (used,) = usage(broker)
            assert (used["quota"], used["violations"]) == (MUTATIONS, 2)

    asyncio.run(main())


def test_a_topic_that_is_named_twice_is_refused_once_and_not_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{MUTATIONS: 1}) as (broker, client, _):
            answer = await created(client, 7, ("a", 1), ("b", 1), ("a", 2))
            assert {each.name: each.error_code for each in answer.topics} == {"a": ErrorCode.INVALID_REQUEST, "b": 0}
            assert len(answer.topics) == 2 and broker.catalog.find("a") is None

    asyncio.run(main())


def test_older_clients_get_their_topics_and_wait_afterwards(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{MUTATIONS: 1}) as (broker, client, _):
            answer = await created(client, 5, ("a", 10), ("t", 5), ("b", 3))
            assert codes(answer) == [0, ErrorCode.TOPIC_ALREADY_EXISTS, 0] and answer.throttle_time_ms == 2_000
            async with connected(broker) as other:
                answer = await created(other, 5, ("c", 1))
                assert codes(answer) == [0] and answer.throttle_time_ms == 3_000

    asyncio.run(main())


def test_deleting_and_adding_partitions_counts_as_making_them_does(tmp_path: Path) -> None:
    async def add(client: Client, version: int, total: int) -> Any:
        topics = [nested(name="t", count=total, assignments=None)]
        return await client.ask(CREATE_PARTITIONS, version, topics=topics, timeout_ms=5_000, validate_only=False)

    async def delete(client: Client, version: int, *names: str) -> Any:
        named: dict[str, Any] = {"topics": [nested(name=name) for name in names]} if version > 5 else {}
        return await client.ask(DELETE_TOPICS, version, topic_names=list(names), timeout_ms=5_000, **named)

    async def main() -> None:
        async with limited(tmp_path, **{MUTATIONS: 1}) as (broker, client, clock):
            assert codes(await created(client, 7, ("a", 6))) == [0]
            assert [each.error_code for each in (await delete(client, 6, "a", "nothing")).responses] == [0, 3]
            assert (await add(client, 3, 1)).results[0].error_code == ErrorCode.INVALID_PARTITIONS
            answer = await add(client, 3, 3)
            assert (answer.results[0].error_code, answer.throttle_time_ms) == (THROTTLED, 1_000)
            async with connected(broker) as other:
                answer = await delete(other, 5, "t")
                assert (answer.responses[0].error_code, answer.throttle_time_ms) == (THROTTLED, 1_000)
            async with connected(broker) as other:
                answer = await add(other, 2, 3)
                assert (answer.results[0].error_code, answer.throttle_time_ms) == (0, 3_000)
            async with connected(broker) as other:
                answer = await delete(other, 4, "t")
                assert (answer.responses[0].error_code, answer.throttle_time_ms) == (0, 6_000)
            clock.advance(6)
            async with connected(broker) as other:
                assert codes(await created(other, 7, ("t", 1))) == [0]

    asyncio.run(main())


def test_a_topic_that_is_made_on_use_is_paid_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{MUTATIONS: 0.25}) as (_, client, _):
            topics = [nested(name=f"on-use-{number}") for number in range(3)]
            answer = await client.ask(METADATA, 9, topics=topics, allow_auto_topic_creation=True)
            assert codes(answer) == [0, 0, 0] and answer.throttle_time_ms == 1_000

    asyncio.run(main())


def test_a_change_that_fails_is_not_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{MUTATIONS: 1}) as (broker, client, _):
            create = broker.catalog.changes.create

            async def fail(*args: Any, **kwargs: Any) -> Any:
                if kwargs.get("validate_only"):
                    return await create(*args, **kwargs)
                raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, "Another node was faster.")

            monkeypatch.setattr(broker.catalog.changes, "create", fail)
            for _ in range(5):
                answer = await created(client, 7, ("a", 11))
                assert (codes(answer), answer.throttle_time_ms) == ([ErrorCode.TOPIC_ALREADY_EXISTS], 0)

    asyncio.run(main())


# The time of the event loop


@pytest.mark.parametrize("api", ["sync", "coroutine", "produce", "fetch", "parked fetch"])
def test_every_kind_of_request_is_told_of_the_time_that_it_took(tmp_path: Path, api: str) -> None:
    async def throttle_ms(broker: Broker, client: Client) -> int:
        match api:
            case "sync":
                return int((await client.ask(API_VERSIONS, 3)).throttle_time_ms)
            case "coroutine":
                return int((await client.ask(METADATA, 9, topics=None)).throttle_time_ms)
            case "produce":
                return await produced(client, batch_of([b"x"]))
            case "fetch":
                return int((await fetched(client)).throttle_time_ms)
        waiting = asyncio.ensure_future(fetched(client, max_wait_ms=60_000))
        await until(lambda: broker.catalog.topic("t").partition(0).watchers)
        await broker.quotas.alter(QuotaEntity.of([("client-id", "by hand")]), [(TIME, 1_000.0)])
        async with connected(broker) as other:
            await produced(other, batch_of([b"x"]))
        return int((await waiting).throttle_time_ms)

    async def main() -> None:
        async with limited(tmp_path, **{TIME: LEAST}) as (broker, client, _):
            assert await throttle_ms(broker, client) == 1_000  # never more: what is above is forgiven
            assert any(each.is_throttled for each in broker.server.connections())

    asyncio.run(main())


def test_a_produce_without_an_answer_is_not_limited_in_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{TIME: LEAST}) as (broker, client, _):
            for _ in range(3):
                client.send_batch("t", batch_of([b"x"]), acks=0)
            await until(lambda: broker.catalog.topic("t").partition(0).high_watermark == 3)
            assert not any(each.is_throttled for each in broker.server.connections())

    asyncio.run(main())


def test_the_steps_of_a_coroutine_are_its_time_and_its_waits_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now_s)

    async def request(waited: "asyncio.Future[None]", *, fails: bool) -> str:
        nonlocal now_s
        now_s += 1.0
        try:
            await waited
        except ZeroDivisionError:
            now_s += 2.0
            if fails:
                raise
        now_s += 4.0
        return "done"

    async def steps(broker: Broker, error: Exception | None, *, fails: bool = False) -> float:
        nonlocal now_s
        (connection,) = broker.server.connections()
        used = broker.meters.usage_of(connection, METADATA, "by hand", now_s)
        assert used is not None
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timed: Coroutine[Any, Any, str] = used.timed(request(waited, fails=fails))
        task = asyncio.get_running_loop().create_task(timed)
        used.step_ended(now_s)
        await asyncio.sleep(0)
        now_s += 1_000.0
        waited.set_exception(error) if error is not None else waited.set_result(None)
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert result is error if fails else result == "done"
        return used._spent_s

    async def main() -> None:
        async with limited(tmp_path, **{TIME: 50.0}) as (broker, client, _):
            await client.ask(API_VERSIONS, 3)
            assert await steps(broker, None) == 5.0
            assert await steps(broker, ZeroDivisionError()) == 7.0
            assert await steps(broker, ZeroDivisionError(), fails=True) == 3.0

    asyncio.run(main())


def test_a_request_whose_client_goes_at_once_leaves_nothing_behind(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{TIME: 1_000.0}) as (broker, client, _):
            await client.ask(API_VERSIONS, 3)
            async with connected(broker) as other:
                await other.ask(API_VERSIONS, 3)
                (connection,) = [each for each in broker.server.connections() if each.serial > 1][-1:]
                other.send(METADATA, 9, topics=None)
                other.send(FETCH, 11, max_wait_ms=60_000, min_bytes=1, max_bytes=1, session_epoch=-1, topics=[])
                await until(lambda: not connection.is_idle)
                connection.close("test")
            await client.ask(API_VERSIONS, 3)

    asyncio.run(main())
    assert [each for each in recwarn if "never awaited" in str(each.message)] == []


# Connections


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "many"])
def test_an_address_that_connects_too_often_is_held_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    if protocol == "many":
        monkeypatch.setattr(acceptor, "MAX_HELD", 1)

    async def main() -> None:
        entity = QuotaEntity.of([("ip", "127.0.0.1")])
        async with limited(tmp_path, entity, **{CONNECTIONS: 1}) as (broker, _, clock):
            opened = []
            for _ in range(10):
                opened.append(await Client.connect(broker))
                await opened[-1].round_trips()
            waiting = [await asyncio.open_connection(*broker.address) for _ in range(3)]
            (held,) = [each._held for each in broker.server._acceptors]
            await until(lambda: usage(broker)[0]["violations"] == 3)
            assert len(held) == (1 if protocol == "many" else 3)
            assert len(broker.server.connections()) == 11  # one was there before the limit
            for reader, writer in waiting:
                assert await reader.read() == b""
                writer.close()
            assert not held
            clock.advance(12)
            async with connected(broker) as again:
                await again.round_trips()
            for each in opened:
                each.close()

    asyncio.run(main())


def test_a_stop_lets_go_of_connections_that_are_held(tmp_path: Path) -> None:
    async def main() -> socket.socket:
        async with limited(tmp_path, QuotaEntity.of([("ip", None)]), **{CONNECTIONS: 1}) as (broker, _, _):
            loop = asyncio.get_running_loop()
            for _ in range(12):
                sock = socket.socket()
                sock.setblocking(False)
                await loop.sock_connect(sock, broker.address)
                sockets.append(sock)
            (held,) = [each._held for each in broker.server._acceptors]
            await until(lambda: len(held) == 2)
            (kept, _) = held
        return kept

    sockets: list[socket.socket] = []
    assert asyncio.run(main()).fileno() == -1
    for each in sockets:
        each.close()


def test_the_page_of_metrics_tells_who_is_throttled(tmp_path: Path) -> None:
    async def main() -> None:
        async with limited(tmp_path, **{OUT: T}) as (broker, client, _):
            await produced(client, batch_of([bytes(30 * T)]))
            await client.ask(PRODUCE, 9, transactional_id=None, acks=1, timeout_ms=1, topic_data=[])
            assert (await fetched(client)).throttle_time_ms
            lines = (await metrics_text(broker.metrics)).decode().splitlines()
            labels = '{client_id="by hand",ip="",quota="consumer_byte_rate",user=""}'
            figures = {line.partition("{")[0]: float(line.split()[-1]) for line in lines if labels in line}
            assert figures["headwater_quota_limit"] == T and figures["headwater_quota_rate"] > 3 * T
            assert figures["headwater_quota_violations"] == 1 and figures["headwater_quota_throttle_seconds"] > 20

    asyncio.run(main())
