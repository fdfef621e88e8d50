"""What a node tells clients of its cluster: whom to ask, who is in sync, and who ought to be."""

from dataclasses import replace

from headwater.broker.cluster.cluster_nodes import ClusterNodes
from headwater.model.cluster import Node, NodeStore, Role, StoreRecord, StoreState
from headwater.model.ids import NodeId, SegmentId, StoreId
from headwater.model.segments import Head, OpenSegment

GB = 1 << 30


def store_of(node: NodeId) -> StoreId:
    return StoreId(f"{node:032x}")


def node(number: NodeId, *roles: Role) -> Node:
    stores = (NodeStore(store_of(number), GB, GB),) if Role.STORE in roles or not roles else ()
    return Node(
        node_id=number,
        epoch=1,
        host="host",
        port=number,
        peer_host="host",
        peer_port=0,
        roles=roles or tuple(Role),
        stores=stores,
    )


def cluster_nodes(alive: list[Node], stores: dict[NodeId, StoreState], controller: NodeId = 1) -> ClusterNodes:
    records = {store_of(number): StoreRecord(store_of(number), number, state) for number, state in stores.items()}
    return ClusterNodes(
        alive[0], {each.node_id: each for each in alive}, records, controller, own_space=lambda: (GB, GB)
    )


def head(leader: NodeId, *members: NodeId) -> Head:
    replicas = tuple(map(store_of, members))
    return Head(leader, 3, 0, OpenSegment(SegmentId("0" * 32), 0, 3, 0, replicas))


ACTIVE, DRAINING = StoreState.ACTIVE, StoreState.DRAINING


def test_replicas_that_are_missing_are_those_that_went_away_first() -> None:
    known = cluster_nodes([node(1), node(2), node(4)], {1: ACTIVE, 2: ACTIVE, 3: ACTIVE, 4: ACTIVE})
    assert known.in_sync_nodes(head(2, 1, 2)) == [2, 1]
    assert known.missing_nodes(head(2, 1, 2), 3) == [3]
    assert known.missing_nodes(head(2, 1, 2), 4) == [3, 4]
    assert known.missing_nodes(head(2, 1, 2), 3, preferred=(4,)) == [4]
    assert known.missing_nodes(head(2, 1, 2), 2) == []


def test_nothing_is_missing_where_no_store_could_take_it() -> None:
    known = cluster_nodes([node(1), node(2)], {1: ACTIVE, 2: ACTIVE, 3: DRAINING, 4: StoreState.LOST})
    assert known.missing_nodes(head(1, 1, 2), 3) == []
    assert known.storing() == {1, 2}
    assert known.is_lost(store_of(4))
    assert not known.is_lost(store_of(3))
    assert not known.is_lost(store_of(77))


def test_a_leader_without_a_store_comes_first_and_replaces_nobody() -> None:
    known = cluster_nodes([node(1), node(2), node(9, Role.BROKER)], {1: ACTIVE, 2: ACTIVE})
    assert known.in_sync_nodes(head(9, 1, 2)) == [9, 1, 2]
    assert known.missing_nodes(head(9, 1, 2), 2) == []


def test_clients_are_told_of_brokers_and_of_the_controller() -> None:
    keeper, chief = node(5, Role.STORE), node(6, Role.STORE, Role.CONTROLLER)
    known = cluster_nodes([node(1), keeper, chief], {1: ACTIVE, 5: ACTIVE, 6: ACTIVE}, controller=6)
    assert [each.node_id for each, _, _ in known.listed("PLAINTEXT")] == [1, 6]
    assert [each.node_id for each in known.brokers()] == [1]


def test_a_preferred_node_is_chosen_before_the_own_store() -> None:
    known = cluster_nodes([node(1), node(2), node(3)], {1: ACTIVE, 2: ACTIVE, 3: ACTIVE})
    salt = SegmentId("ab" * 16)
    assert known.choose(1, frozenset(), salt) == (store_of(1),)
    assert known.choose(1, frozenset(), salt, frozenset({3})) == (store_of(3),)
    assert set(known.choose(2, frozenset(), salt, frozenset({2, 3}))) == {store_of(2), store_of(3)}


def test_a_format_is_everybodys_when_the_last_node_has_it_and_none_is_away() -> None:
    old, new = node(1), [replace(node(number), state_format=1) for number in (1, 2, 3)]
    both = {1: ACTIVE, 2: ACTIVE}
    assert cluster_nodes([old, new[1]], both).state_format == 0
    assert cluster_nodes([new[1]], both).state_format == 0, "what reads the node that is away?"
    assert cluster_nodes(new[:2], both).state_format == 1
    assert cluster_nodes(new[:2], {**both, 3: StoreState.LOST}).state_format == 1
