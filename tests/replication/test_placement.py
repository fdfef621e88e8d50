from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.cluster import StoreState
from headwater.model.ids import SegmentId, StoreId
from headwater.replication.placement import LeaderCandidate, StoreInfo, choose, choose_leader
from tests.replication.cluster_world import GB, segment_name, store_of, stores

NOBODY: frozenset[StoreId] = frozenset()


def info(node: int, *, rack: str | None = None, free: int = 50, state: StoreState = StoreState.ACTIVE,
          is_alive: bool = True) -> StoreInfo:  # fmt: skip
    return StoreInfo(
        store_id=store_of(node),
        node_id=node,
        rack=rack,
        free_bytes=free * GB,
        total_bytes=100 * GB,
        state=state,
        is_alive=is_alive,
    )


def test_the_leaders_own_store_comes_first() -> None:
    everyone = [info(node) for node in range(5)]
    for number in range(50):
        chosen = choose(everyone, 3, store_of(4), NOBODY, segment_name(number))
        assert chosen[0] == store_of(4)
        assert len(set(chosen)) == 3


def test_replicas_are_spread_over_racks_before_anything_else() -> None:
    everyone = [info(1, rack="x", free=90), info(2, rack="x", free=90), info(3, rack="y", free=10)]
    for number in range(50):
        assert store_of(3) in choose(everyone, 2, store_of(1), NOBODY, segment_name(number))


def test_a_new_replica_keeps_away_from_the_racks_of_those_that_are_there() -> None:
    everyone = [info(1, rack="x"), info(2, rack="x", free=99), info(3, rack="y")]
    assert choose(everyone, 1, None, NOBODY, segment_name(1), beside=[store_of(1)]) == stores(3)


def test_two_stores_of_one_node_are_the_last_resort() -> None:
    twin = StoreInfo(
        store_id=StoreId("f" * 32),
        node_id=1,
        rack=None,
        free_bytes=99 * GB,
        total_bytes=100 * GB,
        state=StoreState.ACTIVE,
        is_alive=True,
    )
    for number in range(50):
        assert set(choose([info(1), twin, info(2)], 2, store_of(1), NOBODY, segment_name(number))) == set(stores(1, 2))
    assert len(choose([info(1), twin], 2, store_of(1), NOBODY, segment_name(1))) == 2


def test_draining_lost_dead_avoided_and_nearly_full_stores_get_nothing() -> None:
    everyone = [
        info(1, state=StoreState.DRAINING),
        info(2, state=StoreState.LOST),
        info(3, is_alive=False),
        info(4),
        info(5, free=0),
        info(6),
    ]
    assert choose(everyone, 3, store_of(1), frozenset(stores(4)), segment_name(1)) == stores(6)


def test_a_store_is_nearly_full_below_a_share_of_a_small_disk_and_below_a_segment_of_a_large_one() -> None:
    def is_usable(free_bytes: int, total_bytes: int) -> bool:
        return StoreInfo(
            store_id=store_of(1),
            node_id=1,
            rack=None,
            free_bytes=free_bytes,
            total_bytes=total_bytes,
            state=StoreState.ACTIVE,
            is_alive=True,
        ).is_usable

    assert [is_usable(free << 20, 2 << 30) for free in (102, 103)] == [False, True]
    assert [is_usable(free << 20, 4 << 40) for free in (1023, 1024)] == [False, True]


def test_preferred_nodes_come_before_all_others_and_others_are_better_than_none() -> None:
    everyone = [info(node) for node in range(1, 6)]
    preferred = frozenset({3, 4})
    for number in range(20):
        chosen = choose(everyone, 3, store_of(1), NOBODY, segment_name(number), preferred=preferred)
        assert set(chosen[:2]) == set(stores(3, 4))
        assert len(chosen) == 3


def test_the_segments_of_a_partition_spread_over_all_stores_by_their_free_space() -> None:
    everyone = [info(1, free=10), info(2, free=20), info(3, free=40)]
    count = Counter(choose(everyone, 1, None, NOBODY, segment_name(number))[0] for number in range(3500))
    assert 350 < count[store_of(1)] < 650
    assert 800 < count[store_of(2)] < 1200
    assert 1800 < count[store_of(3)] < 2200


def test_one_store_more_changes_only_what_goes_to_it() -> None:
    four, five = [info(node) for node in range(4)], [info(node) for node in range(5)]
    for number in range(200):
        before = choose(four, 1, None, NOBODY, segment_name(number))
        assert choose(five, 1, None, NOBODY, segment_name(number)) in (before, stores(4))


@given(
    st.lists(
        st.builds(info, st.integers(0, 30), rack=st.sampled_from([None, "x", "y"]), free=st.integers(0, 100),
                  state=st.sampled_from(StoreState), is_alive=st.booleans()),
        unique_by=lambda it: it.store_id,
    ),
    st.integers(0, 5),
    st.sets(st.integers(0, 30).map(store_of)),
    st.integers(0, 30).map(store_of),
    st.integers(0, 1 << 100).map(segment_name),
)  # fmt: skip
def test_the_choice_is_as_large_as_can_be_and_does_not_depend_on_the_order_of_the_facts(
    everyone: list[StoreInfo], count: int, avoid: set[StoreId], first: StoreId, salt: SegmentId
) -> None:
    usable = {it.store_id for it in everyone if it.is_usable} - avoid
    chosen = choose(everyone, count, first, frozenset(avoid), salt)
    assert usable.issuperset(chosen)
    assert len(set(chosen)) == len(chosen) == min(count, len(usable))
    assert chosen == choose(everyone[::-1], count, first, frozenset(avoid), salt)
    if first in chosen:
        assert chosen[0] == first


def test_who_has_the_data_leads_and_among_them_who_leads_least() -> None:
    candidates = [LeaderCandidate(1, 9, True), LeaderCandidate(2, 5, True), LeaderCandidate(3, 0, False)]
    assert choose_leader(candidates, frozenset(), "p") == 2


def test_who_failed_lately_comes_last_but_is_better_than_nobody() -> None:
    candidates = [LeaderCandidate(1, 0, True), LeaderCandidate(2, 5, False)]
    assert choose_leader(candidates, frozenset({1}), "p") == 2
    assert choose_leader(candidates[:1], frozenset({1}), "p") == 1
    assert choose_leader([], frozenset(), "p") is None


def test_equal_candidates_share_the_partitions() -> None:
    candidates = [LeaderCandidate(node, 0, True) for node in range(3)]
    count = Counter(choose_leader(candidates, frozenset(), f"p{number}") for number in range(300))
    assert min(count.values()) > 60
