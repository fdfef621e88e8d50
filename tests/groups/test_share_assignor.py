"""The simple assignor: nobody is idle, nothing is unread, and little moves."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater.groups.share_assignor import Assignment, assign

T = frozenset({"t"})


def members(count: int, topics: frozenset[str] = T) -> dict[str, frozenset[str]]:
    return {f"m{number:03}": topics for number in range(count)}


def sharing(assignment: Assignment) -> Counter[tuple[str, int]]:
    return Counter(each for held in assignment.values() for each in held)


def test_more_members_than_partitions_share_them_evenly() -> None:
    found = assign(members(8), {"t": 2}, {})
    assert all(len(held) == 1 for held in found.values())
    assert sharing(found) == {("t", 0): 4, ("t", 1): 4}


def test_fewer_members_than_partitions_have_several_each() -> None:
    found = assign(members(3), {"t": 8}, {})
    assert sorted(len(held) for held in found.values()) == [2, 3, 3]
    assert set(sharing(found).values()) == {1}


def test_a_member_that_joins_moves_as_little_as_it_can() -> None:
    before = assign(members(3), {"t": 9}, {})
    after = assign(members(4), {"t": 9}, before)
    moved = sum(len(before[member] - after[member]) for member in before)
    assert moved == 2
    assert sorted(len(held) for held in after.values()) == [2, 2, 2, 3]


def test_members_that_leave_a_partition_to_itself_are_replaced() -> None:
    before = assign(members(6), {"t": 3}, {})
    alone = {member: T for member, held in before.items() if held != {("t", 0)}}
    assert set(sharing(assign(alone, {"t": 3}, before))) == {("t", 0), ("t", 1), ("t", 2)}


def test_topics_that_do_not_exist_are_left_out() -> None:
    assert assign({"a": frozenset({"t", "none"}), "b": frozenset({"none"})}, {"t": 1}, {}) == {
        "a": frozenset({("t", 0)}),
        "b": frozenset(),
    }


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3), st.frozensets(st.sampled_from("xyz"), min_size=1), max_size=20
    ),
    st.dictionaries(st.sampled_from("xyz"), st.integers(1, 12), max_size=3),
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3), st.frozensets(st.sampled_from("xyz"), min_size=1), max_size=20
    ),
)
def test_every_partition_is_read_and_every_member_reads(
    first: dict[str, frozenset[str]], partitions: dict[str, int], then: dict[str, frozenset[str]]
) -> None:
    found = assign(then, partitions, assign(first, partitions, {}))
    assert set(found) == set(then)
    for member, held in found.items():
        assert {topic for topic, _ in held} <= then[member]
        assert bool(held) == any(topic in partitions for topic in then[member])
    wanted = {topic for topics in then.values() for topic in topics}
    assert set(sharing(found)) == {
        (topic, index) for topic, count in partitions.items() if topic in wanted for index in range(count)
    }


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_loads_differ_by_one_at_most_when_all_subscribe_alike(first: int, then: int, count: int) -> None:
    found = assign(members(then), {"t": count}, assign(members(first), {"t": count}, {}))
    loads = [len(held) for held in found.values()]
    assert max(loads) - min(loads) <= 1
    shared = sharing(found).values()
    assert max(shared) - min(shared) <= 1
