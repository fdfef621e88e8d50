import uuid
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater.groups.assignment import Assignment, count, of_partitions
from headwater.groups.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform

TOPICS = [uuid.UUID(int=number) for number in range(4)]
members = st.integers(1, 6).map(lambda size: [f"m{number}" for number in range(size)])
sizes = st.lists(st.integers(1, 9), min_size=4, max_size=4).map(lambda each: dict(zip(TOPICS, each, strict=True)))
topic_sets = st.frozensets(st.sampled_from(TOPICS), max_size=4)


def subscribers(names: list[str], topics: frozenset[uuid.UUID]) -> list[Subscriber]:
    return [Subscriber(name, None, topics) for name in names]


@st.composite
def any_subscribers(draw: st.DrawFn) -> list[Subscriber]:
    return [Subscriber(name, None, draw(topic_sets)) for name in draw(members)]


@st.composite
def any_previous(draw: st.DrawFn) -> dict[str, Assignment]:
    """What members had, or claim to: also twice, of topics that shrank, and of members that are gone."""
    pairs = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 12)), max_size=12)
    return {f"m{number}": of_partitions(draw(pairs)) for number in range(draw(st.integers(0, 7)))}


def owners(shares: dict[str, Assignment]) -> dict[tuple[uuid.UUID, int], str]:
    found: dict[tuple[uuid.UUID, int], str] = {}
    for member_id, share in shares.items():
        for topic_id, indexes in share.items():
            assert indexes, "a topic without partitions is left out"
            for index in indexes:
                assert (topic_id, index) not in found, "a partition has one owner"
                found[topic_id, index] = member_id
    return found


@given(st.sampled_from(list(ASSIGNORS.values())), any_subscribers(), sizes, any_previous())
def test_every_partition_goes_to_one_subscriber_of_its_topic(
    assign: object, readers: list[Subscriber], partitions: dict[uuid.UUID, int], previous: dict[str, Assignment]
) -> None:
    shares = assign(readers, partitions, previous)  # type: ignore[operator]
    assert set(shares) == {reader.member_id for reader in readers}
    topics = {reader.member_id: reader.topics for reader in readers}
    found = owners(shares)
    assert all(topic_id in topics[member_id] for (topic_id, _), member_id in found.items())
    read = frozenset[uuid.UUID]().union(*topics.values())
    assert set(found) == {(topic_id, index) for topic_id in read for index in range(partitions[topic_id])}


@given(members, topic_sets, sizes, any_previous())
def test_uniform_is_balanced_to_within_one_where_all_read_the_same(
    names: list[str], topics: frozenset[uuid.UUID], partitions: dict[uuid.UUID, int], previous: dict[str, Assignment]
) -> None:
    loads = [count(share) for share in assign_uniform(subscribers(names, topics), partitions, previous).values()]
    assert max(loads) - min(loads) <= 1


@given(any_subscribers(), sizes, any_previous())
def test_uniform_leaves_no_single_move_that_would_even_it_out(
    readers: list[Subscriber], partitions: dict[uuid.UUID, int], previous: dict[str, Assignment]
) -> None:
    shares = assign_uniform(readers, partitions, previous)
    for (topic_id, _), owner in owners(shares).items():
        poorest = min(count(shares[each.member_id]) for each in readers if topic_id in each.topics)
        assert count(shares[owner]) - poorest <= 1


@given(any_subscribers(), sizes, any_previous())
def test_uniform_moves_nothing_when_nothing_changed(
    readers: list[Subscriber], partitions: dict[uuid.UUID, int], previous: dict[str, Assignment]
) -> None:
    once = assign_uniform(readers, partitions, previous)
    assert assign_uniform(readers, partitions, once) == once
    assert assign_uniform(list(reversed(readers)), partitions, once) == once


@given(members, topic_sets, sizes)
def test_uniform_takes_only_what_a_new_member_needs(
    names: list[str], topics: frozenset[uuid.UUID], partitions: dict[uuid.UUID, int]
) -> None:
    before = assign_uniform(subscribers(names, topics), partitions, {})
    after = assign_uniform(subscribers([*names, "new"], topics), partitions, before)
    had, have = owners(before), owners(after)
    assert {partition for partition in had if had[partition] != have[partition]} == {
        partition for partition, owner in have.items() if owner == "new"
    }


@given(members.filter(lambda names: len(names) > 1), topic_sets, sizes)
def test_uniform_takes_nothing_from_those_who_stay_when_one_leaves(
    names: list[str], topics: frozenset[uuid.UUID], partitions: dict[uuid.UUID, int]
) -> None:
    before = assign_uniform(subscribers(names, topics), partitions, {})
    after = assign_uniform(subscribers(names[1:], topics), partitions, before)
    had, have = owners(before), owners(after)
    assert all(have[partition] == owner for partition, owner in had.items() if owner != names[0])


@given(members, st.integers(1, 9))
def test_range_gives_runs_and_cuts_equal_topics_at_the_same_places(names: list[str], size: int) -> None:
    readers = subscribers(names, frozenset(TOPICS[:2]))
    shares = assign_range(readers, dict.fromkeys(TOPICS, size), {})
    for share in shares.values():
        first, second = share.get(TOPICS[0], frozenset()), share.get(TOPICS[1], frozenset())
        assert first == second
        assert not first or sorted(first) == list(range(min(first), max(first) + 1))


def test_range_keeps_the_place_of_an_instance_whatever_its_member_id() -> None:
    topics = frozenset(TOPICS[:1])
    before = assign_range([Subscriber("x", "a", topics), Subscriber("y", "b", topics)], {TOPICS[0]: 4}, {})
    after = assign_range([Subscriber("z", "a", topics), Subscriber("y", "b", topics)], {TOPICS[0]: 4}, {})
    assert after["z"] == before["x"] and after["y"] == before["y"]


def test_uniform_spreads_a_large_group_quickly_and_evenly() -> None:
    topics = [uuid.UUID(int=number) for number in range(200)]
    readers = subscribers([f"m{number:04}" for number in range(500)], frozenset(topics))
    shares = assign_uniform(readers, dict.fromkeys(topics, 20), {})
    assert Counter(count(share) for share in shares.values()) == {8: 500}
