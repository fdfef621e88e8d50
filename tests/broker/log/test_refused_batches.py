"""What a producer sends behind a batch that was refused for a moment is refused for the same reason, not as a gap."""

import asyncio
import uuid
from pathlib import Path

from headwater.broker.log.refused_batches import LIFETIME_S, MAX_REMEMBERED, RefusedBatches
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.records.batch import BatchHeader, parse_header
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing.fakes.files import MemoryFiles
from tests.support.local_broker import running

HERE, THERE = (PartitionId(uuid.UUID(int=1), index) for index in (0, 1))
NOT_LED = RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "led elsewhere")
STARVING = RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few stores")
GAP = RequestError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap")


def batch(sequence: int, producer_id: int = 7, epoch: int = 0) -> bytes:
    record = Record(None, b"value")
    return bytes(build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def header(sequence: int, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return parse_header(batch(sequence, producer_id, epoch))


def test_a_gap_behind_a_refused_batch_is_told_as_the_refusal() -> None:
    refusals = RefusedBatches()
    assert refusals.refuse(HERE, header(5), NOT_LED, 0.0) is NOT_LED
    assert refusals.refuse(HERE, header(6), GAP, 1.0) is NOT_LED
    assert refusals.refuse(HERE, header(6, producer_id=8), GAP, 1.0) is GAP
    assert refusals.refuse(HERE, header(6, epoch=1), GAP, 1.0) is GAP
    assert refusals.refuse(THERE, header(6), GAP, 1.0) is GAP


def test_a_gap_that_no_refusal_explains_is_a_gap() -> None:
    refusals = RefusedBatches()
    assert refusals.refuse(HERE, header(6), GAP, 0.0) is GAP
    refusals.refuse(HERE, header(7), STARVING, 0.0)
    assert refusals.refuse(HERE, header(6), GAP, 1.0) is GAP, "the refused one comes behind"
    refusals.took(HERE, header(7))
    assert refusals.refuse(HERE, header(9), GAP, 2.0) is GAP


def test_a_refusal_explains_nothing_after_its_time() -> None:
    refusals = RefusedBatches()
    refusals.refuse(HERE, header(5), NOT_LED, 0.0)
    assert refusals.refuse(HERE, header(6), GAP, LIFETIME_S) is GAP
    assert not refusals


def test_the_memory_for_refusals_is_limited() -> None:
    refusals = RefusedBatches()
    for producer_id in range(MAX_REMEMBERED + 5):
        refusals.refuse(HERE, header(0)._replace(producer_id=producer_id), STARVING, 0.0)
    assert len(refusals) == MAX_REMEMBERED


def test_batches_that_overtake_one_that_was_refused_are_taken_in_order_in_the_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("orders")
            topic = broker.catalog.topic("orders")
            led = topic.led.pop(0)
            assert (await client.produce("orders", batch(0))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            topic.led[0] = led
            assert (await client.produce("orders", batch(1))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            for sequence in (0, 1, 2):
                assert (await client.produce("orders", batch(sequence))).error_code == ErrorCode.NONE
            del topic.led[0]
            assert (await client.produce("orders", batch(3))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            topic.led[0] = led
            assert (await client.produce("orders", batch(4))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await client.produce("orders", batch(3))).error_code == ErrorCode.NONE
            answer = await client.produce("orders", batch(9))
            assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert len(await client.read_all("orders")) == 4

    asyncio.run(run())
