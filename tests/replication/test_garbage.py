"""Each clause of the rule, and the races that it is made for."""

from dataclasses import replace

import pytest

from headwater.model.ids import SegmentId
from headwater.model.replica import ReplicaState
from headwater.model.segments import Head, OpenSegment, SealedSegment
from headwater.replication.garbage import collect
from tests.replication.cluster_world import TOPIC, partition, segment_name, store_of, stores

ME = store_of(1)
OURS, OPEN = segment_name(1), segment_name(2)
HEAD = Head(1, 5, 0, OpenSegment(OPEN, 100, 5, 100, stores(1, 2)))


def replica(*, base: int = 50, epoch: int = 5, of: str = str(partition())) -> ReplicaState:
    return ReplicaState(
        segment=OURS,
        partition=of,
        base=base,
        end=base + 10,
        epoch=epoch,
        lac=base,
        size_bytes=100,
        max_timestamp=0,
        is_fenced=False,
        in_doubt=False,
        is_sealed=True,
        instance=3,
        header=b"",
    )


def sealed(*nodes: int, adding: tuple[int, ...] = ()) -> SealedSegment:
    return SealedSegment(
        id=OURS,
        base=50,
        end=60,
        epoch=5,
        epoch_start=50,
        replicas=stores(*nodes),
        size_bytes=100,
        max_timestamp=0,
        crc32c=1,
        adding=stores(*adding),
    )


def is_collected(
    state: ReplicaState,
    head: Head | None = HEAD,
    listed: SealedSegment | None = None,
    *,
    staged: tuple[SegmentId, ...] = (),
    topic_exists: bool = True,
) -> bool:
    heads = {state.partition: head} if head is not None else {}
    known = {listed.id: listed} if listed is not None else {}
    found = collect([state], ME, heads, staged, known, {TOPIC} if topic_exists else set())
    assert found in ([], [(OURS, 3)])
    return bool(found)


def test_a_replica_that_is_listed_stays() -> None:
    assert not is_collected(replica(), listed=sealed(1, 2))


def test_a_replica_that_is_about_to_be_listed_stays() -> None:
    assert not is_collected(replica(), listed=sealed(2, adding=(1,)))


def test_a_replica_that_others_replaced_goes() -> None:
    assert is_collected(replica(), listed=sealed(2, 3))


def test_the_open_segment_stays_whatever_its_epoch() -> None:
    for epoch in (4, 5, 6):
        open_replica = replace(replica(base=100, epoch=epoch), segment=OPEN)
        assert collect([open_replica], ME, {str(partition()): HEAD}, (), {}, {TOPIC}) == []


def test_a_segment_that_its_writer_can_no_longer_publish_goes() -> None:
    assert is_collected(replica(base=120, epoch=4))


@pytest.mark.parametrize("epoch", [5, 6])
def test_a_segment_that_a_leader_is_about_to_publish_stays(epoch: int) -> None:
    assert not is_collected(replica(base=100, epoch=epoch))
    assert not is_collected(replica(base=120, epoch=epoch))


def test_what_retention_dropped_goes_under_the_same_leader() -> None:
    assert is_collected(replica(base=50, epoch=5))


def test_what_compaction_is_making_stays_until_it_is_neither_staged_nor_sealed() -> None:
    assert not is_collected(replica(base=0, epoch=3), staged=(OURS,))
    assert is_collected(replica(base=0, epoch=3))


def test_before_the_first_segment_is_published_only_earlier_epochs_go() -> None:
    unpublished = Head(1, 5, 0, None)
    assert not is_collected(replica(epoch=5), unpublished)
    assert is_collected(replica(epoch=4), unpublished)


def test_everything_of_a_topic_that_is_gone_goes() -> None:
    assert is_collected(replica(epoch=9), None, topic_exists=False)
    assert is_collected(replica(), HEAD, sealed(1), topic_exists=False)


def test_a_partition_without_a_head_keeps_everything() -> None:
    assert not is_collected(replica(epoch=0), None)


@pytest.mark.parametrize("name", ["", "x", "1.2.3", "0" * 32, "0" * 31 + "g.1"])
def test_what_names_no_partition_stays(name: str) -> None:
    assert not is_collected(replica(of=name), None, topic_exists=False)
