from dataclasses import replace

import pytest

from headwater.broker.log.segment_chain import Chain, EpochStart
from headwater.metadata.keys import OpenSegment, SealedSegment
from headwater.model.ids import SegmentId, StoreId

STORE = (StoreId("s"),)


def sealed(base: int, end: int, epoch: int = 0, **more: object) -> SealedSegment:
    return SealedSegment(
        id=SegmentId(f"{base:032x}"),
        base=base,
        end=end,
        epoch=epoch,
        epoch_start=base,
        replicas=STORE,
        size_bytes=end - base,
        max_timestamp=base,
        crc32c=None,
        **more,  # type: ignore[arg-type]
    )


def opened(base: int, epoch: int = 0) -> OpenSegment:
    return OpenSegment(SegmentId(f"{base:032x}"), base, epoch, base, STORE)


def test_an_offset_is_found_in_the_segment_that_holds_it() -> None:
    chain = Chain([sealed(10, 20), sealed(0, 10)], opened(20))
    assert [chain.find(offset).base for offset in (0, 9, 10, 19, 20, 99)] == [0, 0, 10, 10, 20, 20]


def test_a_chain_with_a_gap_is_refused() -> None:
    with pytest.raises(AssertionError, match="gap"):
        Chain([sealed(0, 10), sealed(11, 20)], opened(20))


def test_an_empty_segment_leaves_nothing_behind_when_it_is_rolled() -> None:
    chain = Chain([], opened(0))
    chain.roll(None, opened(0))
    assert chain.sealed == []


def test_compaction_puts_one_segment_in_the_place_of_its_neighbours() -> None:
    chain = Chain([sealed(0, 10), sealed(10, 20), sealed(20, 30)], opened(30))
    old = chain.sealed[:2]
    new = SealedSegment(
        id=SegmentId("f" * 32),
        base=0,
        end=20,
        epoch=0,
        epoch_start=0,
        replicas=STORE,
        size_bytes=5,
        max_timestamp=5,
        crc32c=None,
        compacted=True,
    )
    chain.replace(old, new)
    assert [segment.base for segment in chain] == [0, 20, 30]
    assert chain.find(15) is new


def test_epochs_tell_where_each_began_even_inside_a_merged_segment() -> None:
    merged = sealed(0, 30, 4, earlier_epochs=((1, 0), (3, 12)))
    chain = Chain([replace(merged, epoch_start=20)], opened(30, 6))
    assert chain.epochs() == [EpochStart(1, 0), EpochStart(3, 12), EpochStart(4, 20), EpochStart(6, 30)]
