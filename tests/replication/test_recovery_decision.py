from headwater.model.ids import SegmentId, StoreId
from headwater.model.replica import ReplicaState
from headwater.replication.recovery import Recovered, answers_needed, decide

A, B, C = StoreId("a"), StoreId("b"), StoreId("c")


def replica(end: int, lac: int, *, in_doubt: bool = False) -> ReplicaState:
    return ReplicaState(
        segment=SegmentId("s" * 32),
        partition="p",
        base=10,
        end=end,
        epoch=3,
        lac=lac,
        size_bytes=100,
        max_timestamp=0,
        is_fenced=True,
        in_doubt=in_doubt,
        is_sealed=False,
        instance=1,
        header=b"",
    )


def test_one_sound_answer_is_enough_when_all_must_acknowledge() -> None:
    assert answers_needed(3, 3) == 1
    assert decide([A, B, C], {B: replica(20, 15)}) == Recovered(15, 20, B)


def test_the_longest_answer_is_taken_and_the_largest_commit_known() -> None:
    answers = {A: replica(20, 12), B: replica(22, 11)}
    assert decide([A, B], answers) == Recovered(12, 22, B)


def test_a_doubtful_answer_alone_decides_nothing() -> None:
    assert decide([A, B], {A: replica(20, 15, in_doubt=True)}) is None


def test_doubtful_answers_of_everybody_decide() -> None:
    answers = {A: replica(20, 15, in_doubt=True), B: replica(19, 15, in_doubt=True)}
    assert decide([A, B], answers) == Recovered(15, 20, A)


def test_a_replica_that_lost_committed_bytes_does_not_end_past_itself() -> None:
    assert decide([A], {A: replica(14, 18, in_doubt=True)}) == Recovered(14, 14, A)


def test_nothing_is_committed_before_the_segment_begins() -> None:
    assert decide([A], {A: replica(10, 0)}) == Recovered(10, 10, A)
