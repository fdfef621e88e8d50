"""Dead letters: records that a share group gives up on land in its dead-letter topic, once, and say why."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.queues import dead_letters
from headwater.broker.server import Broker
from headwater.records.batch import Codec, split
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.queues.queue_brokers import numbered, produced, queue_broker, settled
from tests.broker.queues.share_members import REJECT, RELEASE, Member, configure, on_loop
from tests.support.eventually import until
from tests.support.local_broker import Client, batch_of


async def letters(client: Client, broker: Broker, count: int, topic: str = "dlq.g") -> list[Record]:
    """What the dead-letter topic holds when it holds at least `count` records, and what the broker was about to write
    is there, too."""

    def has_them() -> bool:
        found = broker.catalog.find(topic)
        return found is not None and bool(found.led) and found.partition(0).high_watermark >= count

    await until(has_them)
    await client.round_trips()
    return await client.read_all(topic)


def about(letter: Record) -> dict[str, bytes | None]:
    return {name.removeprefix(dead_letters.PREFIX): value for name, value in letter.headers}


@on_loop
async def test_a_rejected_record_lands_in_the_topic_of_its_group(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        records = [Record(b"k", b"poison", (("mine", b"1"),), 1_234), Record(None, b"good", (), 1_235)]
        await client.produce("t", build_batch(records))
        await member.fetch(wait_ms=1000)
        assert await member.acknowledge((0, 0, REJECT)) == 0
        (letter,) = await letters(client, broker, 1)
        assert (letter.key, letter.value) == (b"k", b"poison")
        topic_id = broker.catalog.topic("t").topic_id
        assert about(letter) == {
            "mine": b"1",
            "topic": b"t",
            "topic-id": topic_id.hex.encode(),
            "partition": b"0",
            "offset": b"0",
            "timestamp": b"1234",
            "group": b"g",
            "reason": b"rejected",
            "delivery-count": b"1",
        }
        assert letter.timestamp > 1_000_000, "its time is that of the letter: retention counts from here"


@on_loop
async def test_many_letters_of_one_batch_are_read_and_written_together(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(1_000))
        await produced(client, *numbered(10))
        await member.fetch(wait_ms=1000, max_records=2_000)
        rejected = [*range(0, 1_000, 2), 1_003, 1_009]
        assert await member.acknowledge(*((offset, offset, REJECT) for offset in rejected)) == 0
        found = await letters(client, broker, len(rejected))
        assert [about(letter)["offset"] for letter in found] == [b"%d" % offset for offset in rejected]
        stored = await client.fetch("dlq.g", 0)
        assert len(split(stored.records or b"")) == 2, "a batch of letters for each batch of records"
        await settled(broker)
        assert broker.shares.of_group("g")[0].share.acquired_count == 1_010 - len(rejected)


@on_loop
async def test_a_poison_record_lands_after_the_limit_once(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, client):
        await configure(client, share_delivery_count_limit="3")
        member = await Member.joined(broker, "t")
        await produced(client, b"poison")
        for count in (1, 2, 3):
            assert (await member.fetch(wait_ms=1000)).ranges == {0: [(0, 0, count)]}
            assert await member.acknowledge((0, 0, RELEASE)) == 0
        (letter,) = await letters(client, broker, 1)
        assert about(letter)["reason"] == b"delivery-limit"
        assert about(letter)["delivery-count"] == b"3"
        assert (await member.fetch(wait_ms=100)).offsets == []
        await settled(broker)
    async with queue_broker(tmp_path, files) as (broker, client):
        member = await Member.joined(broker, "t")
        assert (await member.fetch(wait_ms=100)).offsets == []
        assert len(await letters(client, broker, 1)) == 1


@on_loop
async def test_letters_that_were_written_before_a_kill_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(6))
        await member.fetch(wait_ms=1000)

        async def append_and_stop(self: Any, *args: Any) -> None:
            await append(self, *args)
            await asyncio.Event().wait()

        append = dead_letters.DeadLetters._append
        with monkeypatch.context() as patch:
            patch.setattr(dead_letters.DeadLetters, "_append", append_and_stop)
            assert await member.acknowledge((1, 2, REJECT)) == 0
            assert len(await letters(client, broker, 2)) == 2
            left = files.killed()
    async with queue_broker(tmp_path, left) as (broker, client):
        member = await Member.joined(broker, "t")
        await settled(broker)
        assert [about(letter)["offset"] for letter in await letters(client, broker, 2)] == [b"1", b"2"]


@on_loop
async def test_letters_that_were_decided_before_a_kill_are_written_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(6))
        await member.fetch(wait_ms=1000)

        async def never(self: Any, *args: Any) -> None:
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(dead_letters.DeadLetters, "_append", never)
            assert await member.acknowledge((1, 2, REJECT)) == 0
            left = files.killed()
    async with queue_broker(tmp_path, left) as (broker, client):
        await letters(client, broker, 2)
        await settled(broker)
        assert [about(letter)["offset"] for letter in await letters(client, broker, 2)] == [b"1", b"2"]


@on_loop
async def test_letters_of_compressed_batches_are_compressed(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        await client.produce("t", batch_of([b"x" * 100_000] * 5, compression=Codec.ZSTD))
        await member.fetch(wait_ms=1000)
        assert await member.acknowledge((0, 4, REJECT)) == 0
        found = await letters(client, broker, 5)
        assert [letter.value for letter in found] == [b"x" * 100_000] * 5
        assert broker.catalog.topic("dlq.g").partition(0).size_bytes < 10_000


@on_loop
async def test_a_letter_may_say_only_where_its_record_is(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        await configure(
            client, errors_deadletterqueue_copy_record_enable="false", errors_deadletterqueue_topic_name="elsewhere"
        )
        member = await Member.joined(broker, "t")
        await produced(client, b"secret")
        await member.fetch(wait_ms=1000)
        assert await member.acknowledge((0, 0, REJECT)) == 0
        (letter,) = await letters(client, broker, 1, "elsewhere")
        assert (letter.key, letter.value, about(letter)["offset"]) == (None, None, b"0")


@on_loop
async def test_a_topic_that_allows_no_letters_gets_none_until_it_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        await client.create("plain")
        await configure(client, errors_deadletterqueue_topic_name="plain")
        member = await Member.joined(broker, "t")
        await produced(client, b"poison")
        await member.fetch(wait_ms=1000)
        assert await member.acknowledge((0, 0, REJECT)) == 0
        await until(lambda: "dead_letter_failed group=g" in caplog.text)
        assert await client.read_all("plain") == []
        topic = broker.catalog.topic("plain")
        await broker.catalog.changes.alter_config(topic, lambda _: {dead_letters.GROUP_ENABLE: "true"})
        assert len(await letters(client, broker, 1, "plain")) == 1


@on_loop
async def test_a_group_without_dead_letters_drops_what_it_rejects(tmp_path: Path) -> None:
    async with queue_broker(tmp_path, dead_letter_auto_create=False) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, b"poison", b"good")
        await member.fetch(wait_ms=1000, max_records=1)
        assert await member.acknowledge((0, 0, REJECT)) == 0
        assert (await member.fetch()).values == [b"good"]
        assert broker.catalog.find("dlq.g") is None


@on_loop
async def test_records_that_expire_are_letters_too(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        ttl: Sequence[tuple[str, bytes]] = [("headwater.ttl", b"1")]
        await client.produce("t", build_batch([Record(None, b"old", tuple(ttl), 1_000), Record(None, b"fresh")]))
        assert (await member.fetch(wait_ms=1000)).values == [b"fresh"]
        (letter,) = await letters(client, broker, 1)
        assert (letter.value, about(letter)["reason"]) == (b"old", b"expired")
