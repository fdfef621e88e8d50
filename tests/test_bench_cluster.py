"""What the bench of clusters concludes from what it saw: stalls among gaps, percentiles of few kills, growth."""

import pytest
from bench.cluster_report import Results, goals, linearity, p99
from bench.report import KAFKA, OS
from bench.steady import SHORTEST_GAP_S, Seen

KILLED = "stall, replica killed"


def seen(*gaps: tuple[float, float]) -> Seen:
    return Seen(1000, 0, list(gaps), 1.0, 2.0, 3.0)


def test_a_stall_is_the_longest_gap_that_a_fault_can_have_caused() -> None:
    assert seen((1.0, 1.1), (5.0, 5.4), (5.5, 5.6)).stall_s(5.0, 10.0) == pytest.approx(0.4)


def test_what_of_a_gap_lies_before_the_fault_does_not_count() -> None:
    assert seen((4.0, 5.3)).stall_s(5.0, 10.0) == pytest.approx(0.3)


def test_without_gaps_a_stall_is_the_shortest_that_is_listed() -> None:
    assert seen((1.0, 2.0), (11.0, 12.0)).stall_s(5.0, 10.0) == SHORTEST_GAP_S


@pytest.mark.parametrize(("count", "rank"), [(1, 1), (99, 99), (100, 99), (200, 198)])
def test_the_p99_of_few_is_the_largest(count: int, rank: int) -> None:
    assert p99([float(each) for each in range(count, 0, -1)]) == rank


def test_a_limit_is_judged_by_the_kills_of_all_rounds_and_only_for_ours() -> None:
    fast, slow = {KILLED: [0.1]}, {KILLED: [0.4]}
    found = list(goals(Results(stalls=[{KAFKA: slow, OS: fast}, {KAFKA: slow, OS: slow}])))
    assert found == [f"goal: {KILLED} < 0.3 s, {OS}: missed, p99 of 2 is 0.40 s"]
    assert "reached, p99 of 1 is 0.10 s" in next(goals(Results(stalls=[{OS: fast}])))


@pytest.mark.parametrize(("many", "verdict"), [(10.0, "linear or better"), (16.0, "more than linear")])
def test_growth_is_judged_between_the_two_largest_counts(many: float, verdict: str) -> None:
    by_count = {100: {"create": 9.0}, 1_000: {"create": 1.0}, 10_000: {"create": many}}
    [line] = linearity(by_count)
    assert line.endswith(verdict)
    assert list(linearity({100: {"create": 9.0}})) == []
