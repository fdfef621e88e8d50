"""What a produce request may say, and how it is told that it may not."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.server import Broker
from headwater.model.errors import ErrorCode
from headwater.model.replica import Buffer, Durability
from headwater.records.batch import Codec, parse_header, seal_crc, split
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.support.eventually import until
from tests.support.local_broker import Client, batch_of, keyed, running
from tests.support.messages import nested

NOW_MS = 1_700_000_000_000


def run(tmp_path: Path, scenario: Callable[[Broker, Client], Awaitable[None]], **config: Any) -> None:
    async def inside() -> None:
        async with running(tmp_path, MemoryFiles(), ManualClock(NOW_MS), **config) as (broker, client):
            await scenario(broker, client)

    asyncio.run(inside())


def damaged(batch: bytearray, position: int, value: bytes, *, fix_crc: bool = True) -> bytearray:
    batch[position : position + len(value)] = value
    if fix_crc:
        seal_crc(batch, 0, len(batch))
    return batch


BAD_BATCHES: dict[str, tuple[Buffer, ErrorCode]] = {
    "flipped bit": (damaged(batch_of([b"value"]), 70, b"\xff", fix_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "cut off": (batch_of([b"value"])[:-3], ErrorCode.CORRUPT_MESSAGE),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "two batches": (batch_of([b"a"]) + batch_of([b"b"]), ErrorCode.INVALID_RECORD),
    "magic 1": (damaged(batch_of([b"a"]), 16, b"\x01", fix_crc=False), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "magic 9": (damaged(batch_of([b"a"]), 16, b"\x09", fix_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "no records": (damaged(batch_of([b"a"]), 57, bytes(4)), ErrorCode.INVALID_RECORD),
    "more offsets than records": (damaged(batch_of([b"a"]), 23, struct.pack(">i", 5)), ErrorCode.INVALID_RECORD),
    "control": (damaged(batch_of([b"a"]), 21, b"\x00\x20"), ErrorCode.INVALID_RECORD),
    "codec 7": (damaged(batch_of([b"a"]), 21, b"\x00\x07"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "broker's time": (damaged(batch_of([b"a"], timestamp=NOW_MS), 21, b"\x00\x08"), ErrorCode.INVALID_TIMESTAMP),
    "future": (batch_of([b"a"], timestamp=NOW_MS + 3_700_000), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("kind", BAD_BATCHES)
def test_a_bad_batch_is_refused_with_kafkas_code_and_leaves_no_trace(tmp_path: Path, kind: str) -> None:
    batch, code = BAD_BATCHES[kind]

    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t")
        refused = await client.produce("t", batch)
        assert (ErrorCode(refused.error_code), refused.base_offset) == (code, -1)
        assert refused.error_message
        assert (await client.produce("t", batch_of([b"good"], timestamp=NOW_MS))).base_offset == 0

    run(tmp_path, scenario)


def test_a_batch_over_the_topics_limit_is_too_large_and_the_limit_can_be_raised(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t", max_message_bytes="1000")
        assert (await client.produce("t", batch_of([bytes(1000)]))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        await broker.catalog.changes.alter_config(broker.catalog.topic("t"), lambda old: {"max.message.bytes": "5000"})
        assert (await client.produce("t", batch_of([bytes(1000)]))).error_code == 0
        assert (await client.produce("nosuch", batch_of([b"a"]))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        outside = await client.produce("t", batch_of([b"a"]), partition=9)
        assert outside.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_the_default_limit_is_one_mebibyte_and_twelve_bytes(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t")
        overhead = len(batch_of([bytes(1_000_000)])) - 1_000_000
        assert (await client.produce("t", batch_of([bytes(1_048_588 - overhead)]))).error_code == 0
        over = await client.produce("t", batch_of([bytes(1_048_589 - overhead)]))
        assert over.error_code == ErrorCode.MESSAGE_TOO_LARGE

    run(tmp_path, scenario)


def test_keyless_records_on_a_compacted_topic_are_named_one_by_one(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t", cleanup_policy="compact")
        for compression in Codec:
            mixed = build_batch(
                [Record(b"k", b"1"), Record(None, b"2"), Record(b"k", b"3"), Record(None, b"4")],
                timestamp=NOW_MS,
                compression=compression,
            )
            refused = await client.produce("t", mixed)
            assert refused.error_code == ErrorCode.INVALID_RECORD
            assert [error.batch_index for error in refused.record_errors] == [1, 3]
        assert (await client.produce("t", keyed([("k", "v")], NOW_MS))).base_offset == 0

    run(tmp_path, scenario)


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_other_numbers_of_acks_are_refused(tmp_path: Path, acks: int) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t")
        refused = await client.produce("t", batch_of([b"a"]), acks=acks)
        assert refused.error_code == ErrorCode.INVALID_REQUIRED_ACKS

    run(tmp_path, scenario)


def test_acks_0_gets_no_answer_and_an_error_closes_the_connection(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t")
        for number in range(5):
            client.send_batch("t", batch_of([b"%d" % number], timestamp=NOW_MS), acks=0)
        assert (await client.produce("t", batch_of([b"last"], timestamp=NOW_MS))).base_offset == 5
        client.send_batch("nosuch", batch_of([b"x"]), acks=0)
        with pytest.raises(asyncio.IncompleteReadError):
            await client.answer(0, 9)

    run(tmp_path, scenario)


def test_the_brokers_time_is_stamped_where_the_topic_asks_for_it(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t", message_timestamp_type="LogAppendTime")
        result = await client.produce("t", batch_of([b"a", b"b"], timestamp=5))
        assert result.log_append_time_ms == NOW_MS
        assert [record.timestamp for record in await client.read_all("t")] == [NOW_MS, NOW_MS]
        assert await client.offset("t", NOW_MS) == 0

    run(tmp_path, scenario)


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"])
def test_batches_are_stored_as_sent_unless_the_topic_names_a_codec(tmp_path: Path, wanted: str) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t", compression_type=wanted)
        for sent in Codec:
            await client.produce("t", batch_of([b"value" * 50] * 3, timestamp=NOW_MS, compression=sent))
        stored = [
            Codec(header.compression)
            for offset in range(0, 15, 3)
            for header, _ in split((await client.fetch("t", offset, max_bytes=1)).records or b"")
        ]
        named = {"uncompressed": Codec.NONE}.get(wanted) if wanted in ("uncompressed",) else None
        expected = list(Codec) if wanted == "producer" else [Codec[wanted.upper()] if named is None else named] * 5
        assert stored == expected
        assert [record.value for record in await client.read_all("t")] == [b"value" * 50] * 15

    run(tmp_path, scenario)


def test_zstd_from_a_client_too_old_to_know_it_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t")
        batch = batch_of([b"a"], timestamp=NOW_MS, compression=Codec.ZSTD)
        assert (await client.produce("t", batch, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await client.produce("t", batch, version=7)).error_code == 0

    run(tmp_path, scenario)


def test_internal_topics_are_not_for_producers(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await broker.groups.ensure_ready()
        refused = await client.produce("__consumer_offsets", batch_of([b"a"]))
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(tmp_path, scenario)


def test_internal_topics_keep_the_partitions_they_have(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await broker.groups.ensure_ready()
        asked = nested(name="__consumer_offsets", count=99, assignments=None)
        answer = await client.ask(37, 3, topics=[asked], timeout_ms=1000, validate_only=False)
        assert answer.results[0].error_code == ErrorCode.INVALID_REQUEST

    run(tmp_path, scenario)


def test_segments_roll_by_age(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        async with running(tmp_path, MemoryFiles(), clock) as (broker, client):
            await client.create("t", segment_ms="60000")
            chain = broker.catalog.topic("t").partition(0).register.chain
            await client.produce("t", batch_of([b"a"], timestamp=NOW_MS))
            clock.advance(59)
            await client.produce("t", batch_of([b"b"], timestamp=NOW_MS))
            assert [segment.base for segment in chain] == [0]
            clock.advance(2)
            await client.produce("t", batch_of([b"c"], timestamp=NOW_MS))
            assert [segment.base for segment in chain] == [0, 2]
            clock.advance(61)
            await broker.cleaner.retain()
            await until(lambda: [segment.base for segment in chain] == [0, 2, 3])

    asyncio.run(scenario())


def test_a_change_of_durability_begins_a_new_segment(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t", headwater_durability="sync")
        await client.produce("t", batch_of([b"a"], timestamp=NOW_MS))
        topic = broker.catalog.topic("t")
        await broker.catalog.changes.alter_config(topic, lambda old: {"headwater.durability": "os"})
        assert topic.partition(0).config.durability is Durability.OS
        await client.produce("t", batch_of([b"b"], timestamp=NOW_MS))
        assert [segment.base for segment in topic.partition(0).register.chain] == [0, 1]
        assert [record.value for record in await client.read_all("t")] == [b"a", b"b"]

    run(tmp_path, scenario)


def test_a_stored_batch_is_the_producers_bytes_but_for_offset_and_epoch(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create("t")
        await client.produce("t", batch_of([b"first"], timestamp=NOW_MS))
        sent = batch_of([b"second"], timestamp=NOW_MS, compression=Codec.GZIP)
        await client.produce("t", sent)
        stored = (await client.fetch("t", 1)).records or b""
        assert stored[21:] == bytes(sent[21:])
        assert parse_header(stored).base_offset == 1

    run(tmp_path, scenario)
