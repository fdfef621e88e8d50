"""A replica that answers fences and cannot be read. Found by the simulator: the takeover asked it again for ever."""

from headwater.model.ids import SegmentId, StoreId
from headwater.model.replica import ReplicaState
from headwater.model.segments import Head, OpenSegment
from headwater.replication.effects import Fence, Replay, Rules
from headwater.replication.takeover import Takeover

A, B = StoreId("a"), StoreId("b")
OLD = OpenSegment(SegmentId("0" * 32), 10, 1, 10, (A, B))
RULES = Rules(replication_factor=2, bad_store_s=5.0)


def replica(end: int, *, in_doubt: bool = False) -> ReplicaState:
    return ReplicaState(
        segment=OLD.id,
        partition="p",
        base=10,
        end=end,
        epoch=1,
        lac=10,
        size_bytes=100,
        max_timestamp=0,
        is_fenced=True,
        in_doubt=in_doubt,
        is_sealed=False,
        instance=1,
        header=b"",
    )


def takeover() -> Takeover:
    machine = Takeover(
        Head(1, 2, 0, OLD), RULES, lambda count, avoid, salt: (A, B)[:count], lambda: SegmentId("1" * 32)
    )
    assert machine.start(0.0) == [Fence(A, OLD.id), Fence(B, OLD.id)]
    return machine


def test_a_replica_that_cannot_be_read_is_done_without() -> None:
    machine = takeover()
    machine.fenced(B, replica(20), 0.0)
    assert machine.fenced(A, replica(22), 0.0) == [Replay(A, OLD, 10, 22)]
    assert machine.replay_failed(A, 1.0) == [Fence(B, OLD.id)]
    machine.fenced(A, replica(22, in_doubt=True), 1.0)
    machine.fenced(B, replica(20), 1.0)
    assert machine.tick(1.0 + RULES.grace_s) == [Replay(B, OLD, 10, 20)]


def test_a_replica_that_was_only_away_is_asked_again() -> None:
    machine = takeover()
    machine.fenced(B, replica(15, in_doubt=True), 0.0)
    assert machine.fenced(A, replica(22), 0.0) == [Replay(A, OLD, 10, 22)]
    machine.replay_failed(A, 1.0)
    assert machine.fenced(B, replica(15, in_doubt=True), 1.0) == [], "what is in doubt decides nothing alone"
    assert machine.deadline == 1.0 + RULES.bad_store_s
    assert machine.tick(6.0) == [Fence(A, OLD.id)]
    assert machine.fenced(A, replica(22), 6.0) == [Replay(A, OLD, 10, 22)]


def test_two_that_cannot_be_read_do_not_take_turns_while_a_sound_one_waits() -> None:
    c = StoreId("c")
    old = OpenSegment(SegmentId("0" * 32), 10, 1, 10, (A, B, c))
    machine = Takeover(Head(1, 2, 0, old), RULES, lambda count, avoid, salt: (A, B), lambda: SegmentId("1" * 32))
    machine.start(0.0)
    machine.fenced(c, replica(12), 0.0)
    machine.fenced(B, replica(20), 0.0)
    assert machine.fenced(A, replica(20, in_doubt=True), 0.0) == [Replay(B, old, 10, 20)]
    machine.replay_failed(B, 0.0)
    machine.fenced(c, replica(12), 0.0)
    machine.fenced(A, replica(20, in_doubt=True), 0.0)
    now = RULES.bad_store_s
    assert machine.tick(now) == [Fence(B, old.id), Replay(A, old, 10, 20)]
    machine.replay_failed(A, now)
    machine.fenced(B, replica(20, in_doubt=True), now)  # its rest is over
    assert machine.fenced(c, replica(12), now) == []
    assert machine.tick(now + RULES.grace_s) == [Replay(c, old, 10, 12)]
