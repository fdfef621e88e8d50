"""Cutting a few records out of a large batch."""

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.queues.partial_batches import MIN_BATCH_BYTES, SHARE, PartialBatches
from headwater.model.ids import PartitionId
from headwater.queues.outcomes import AcquiredRange
from headwater.records.batch import Codec, check_crc, parse_header
from headwater.records.build import build_batch
from headwater.records.record import Record, records

PARTITION = PartitionId(uuid.UUID(int=1), 0)


def large(count: int = 1_000, base_offset: int = 500, compression: Codec = Codec.NONE) -> bytearray:
    made = [
        Record(b"k%d" % number, b"v" * 30 + b"%d" % number, (("h", b"%d" % number),), 1_000 + number)
        for number in range(count)
    ]
    return build_batch(made, base_offset=base_offset, compression=compression)


def cut(thin: PartialBatches, batch: bytearray, *ranges: tuple[int, int]) -> list[Record]:
    header = parse_header(batch)
    sent = thin.cut(PARTITION, header, batch, [AcquiredRange(first, last, 1) for first, last in ranges])
    sent_header = parse_header(sent)
    check_crc(sent, sent_header)
    assert (sent_header.base_offset, sent_header.last_offset) == (header.base_offset, header.last_offset)
    return list(records(sent, sent_header))


@pytest.mark.parametrize("compression", list(Codec))
def test_a_few_records_come_without_the_others_and_are_the_same(compression: Codec) -> None:
    batch = large(4_000, compression=compression)
    everything = {record.offset: record for record in records(batch, parse_header(batch))}
    thin = PartialBatches()
    for _ in range(2):
        found = cut(thin, batch, (400, 501), (700, 700))
        assert found == [everything[500], everything[501], everything[700]]
    assert thin.size_bytes > 0


def test_many_records_come_in_the_batch_as_it_is() -> None:
    batch = large()
    header = parse_header(batch)
    wanted = [AcquiredRange(500, 500 + 1_000 // SHARE, 1)]
    assert PartialBatches().cut(PARTITION, header, batch, wanted) is batch


def test_a_small_batch_is_not_worth_cutting() -> None:
    batch = large(50)
    assert PartialBatches().cut(PARTITION, parse_header(batch), batch, [AcquiredRange(500, 500, 1)]) is batch


def test_what_is_cut_is_never_larger_than_the_batch() -> None:
    values = [random.Random(number).randbytes(1_000) for number in range(20)]
    batch = build_batch([Record(None, value) for value in values * 100], compression=Codec.ZSTD)
    assert MIN_BATCH_BYTES < len(batch) < 100_000
    assert PartialBatches().cut(PARTITION, parse_header(batch), batch, [AcquiredRange(0, 199, 1)]) is batch


def test_a_batch_that_nobody_can_read_is_sent_as_it_is() -> None:
    batch = large()
    batch[200:300] = b"\xff" * 100
    assert PartialBatches().cut(PARTITION, parse_header(batch), batch, [AcquiredRange(500, 500, 1)]) is batch


def test_what_is_remembered_is_bounded() -> None:
    thin = PartialBatches(budget_bytes=200_000)
    for number in range(10):
        cut(thin, large(base_offset=number * 1_000), (number * 1_000, number * 1_000))
        assert thin.size_bytes <= 200_000


@given(st.sets(st.integers(0, 999), min_size=1, max_size=40))
def test_any_choice_of_records_is_cut_right(chosen: set[int]) -> None:
    batch = large()
    found = cut(PartialBatches(), batch, *((500 + each, 500 + each) for each in sorted(chosen)))
    assert [record.offset for record in found] == [500 + each for each in sorted(chosen)]
