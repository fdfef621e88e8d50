"""Batches that the only replica takes directly, beside appends that are on their way to it."""

from headwater.model.ids import SegmentId, StoreId
from headwater.model.segments import OpenSegment
from headwater.replication.effects import Append, Entry, Rules
from headwater.replication.leader import Leader

A = StoreId("a")
SEGMENT = OpenSegment(SegmentId("0" * 32), 0, 1, 0, (A,))
RULES = Rules(replica_timeout_s=1.0, retry_s=0.5)


def lone_leader() -> Leader:
    def choose(count: int, avoid: frozenset[StoreId], salt: SegmentId) -> tuple[StoreId, ...]:
        return () if A in avoid else (A,)

    return Leader(SEGMENT, 0, 0, RULES, choose, lambda: SegmentId("1" * 32), 0.0)


def test_a_lone_replica_may_be_given_the_next_batch() -> None:
    leader = lone_leader()
    assert leader.lone_replica == A
    leader.took(Entry(0, 3, b"batch", 7))
    assert (leader.high_watermark, leader.log_end) == (3, 3)


def test_nothing_overtakes_an_append_that_is_on_its_way() -> None:
    leader = lone_leader()
    leader.store_lost(A, 0.0)
    (probe,) = leader.tick(0.5)
    assert isinstance(probe, Append)
    lone = [leader.lone_replica]
    leader.acknowledged(A, SEGMENT.id, 0, 0.6)
    lone.append(leader.lone_replica)
    assert lone == [None, A]
    leader.took(Entry(0, 3, b"batch", 7))
    assert leader.tick(2.0) == [], "nobody is missed"
