"""Controllers over one metadata store: elections, fail-over, copies, and that a deposed one can do nothing."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.broker.cluster.controller import Controller
from headwater.broker.cluster.controller_election import ControllerElection
from headwater.broker.cluster.peer_pings import PingOptions
from headwater.metadata import keys
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import Is, Put
from headwater.model.cluster import Node, StoreRecord, StoreState, TopicRecord
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId, PartitionId, SegmentId, StoreId
from headwater.model.replica import StoreUnreachable
from headwater.model.segments import Head, OpenSegment, SealedSegment
from headwater.replication.actions import Copy
from headwater.replication.controller import ControllerRules
from headwater.transport.system_clock import SystemClock
from tests.broker.cluster_fakes import CuttableMetaStore, a_session, a_watch, metadata_store, store_of, this_node
from tests.support.eventually import until
from tests.support.tasks import running

TOPIC = uuid.UUID(int=5)
RULES = ControllerRules(recovery_s=600, max_recovery_s=600, stable_s=600, copy_retry_s=0.2, max_copies=2)
"""Nobody here recovers partitions, and nothing is balanced unless a test wants it."""
PINGS = PingOptions(interval_s=0.02, timeout_s=0.2, silence_s=0.5)


class Copies:
    """Remembers what was asked for. Stores that are `broken` fail, and hold nothing."""

    def __init__(self) -> None:
        self.asked: list[Copy] = []
        self.proofs = 0
        """How often it was asked whether a store has all of a segment."""
        self.broken: set[StoreId] = set()

    async def copy(self, action: Copy) -> None:
        self.asked.append(action)
        await asyncio.sleep(0.01)
        if action.target in self.broken:
            raise StoreUnreachable("broken")

    async def is_complete(self, store: StoreId, sealed: SealedSegment) -> bool:
        self.proofs += 1
        return store not in self.broken


class Cluster:
    """Nodes 1 to n with a controller each, over one metadata store."""

    def __init__(self, metadata: CuttableMetaStore, rules: ControllerRules) -> None:
        self.metadata = metadata
        self.rules = rules
        self.controllers: dict[NodeId, Controller] = {}
        self.copies = Copies()
        self.dead: set[NodeId] = set()
        self.hung: set[NodeId] = set()

    async def ping(self, node: Node) -> None:
        if node.node_id in self.hung:
            await asyncio.Event().wait()
        if node.node_id in self.dead:
            raise ConnectionRefusedError

    async def serve(self, node_id: NodeId) -> None:
        session = a_session(self.metadata, this_node(node_id))
        await session.start()
        try:
            async with a_watch(self.metadata) as watch:
                self.controllers[node_id] = controller = Controller(
                    self.metadata, watch, session, self.copies, self.ping, SystemClock(), rules=self.rules, pings=PINGS
                )
                async with running(controller.run(), session.run()):
                    await asyncio.Event().wait()
        finally:
            if node_id not in self.dead:
                await session.close()

    async def lead(self, index: int, leader: NodeId, *on: NodeId, epoch: int = 1) -> PartitionId:
        partition = PartitionId(TOPIC, index)
        segment = OpenSegment(SegmentId(f"{900 + index:032x}"), 0, epoch, 0, tuple(map(store_of, on or (leader,))))
        await self.put(keys.head_key(partition), Head(leader, epoch, 0, segment))
        return partition

    async def seal(self, number: int, *on: NodeId) -> str:
        segment = SealedSegment(
            id=SegmentId(f"{number:032x}"),
            base=number,
            end=number + 1,
            epoch=1,
            epoch_start=number,
            replicas=tuple(map(store_of, on)),
            size_bytes=1000,
            max_timestamp=0,
            crc32c=7,
        )
        key = keys.sealed_key(PartitionId(TOPIC, 0), segment.id)
        await self.put(key, segment)
        return key

    async def put(self, key: str, value: keys.Value) -> None:
        await self.metadata.txn([], [Put(key, keys.encode(value))])

    async def head(self, partition: PartitionId) -> Head:
        found = await self.metadata.get(keys.head_key(partition))
        assert found is not None
        return keys.decode_head(found.value)

    async def sealed(self, key: str) -> SealedSegment:
        found = await self.metadata.get(key)
        assert found is not None
        return keys.decode_sealed(found.value)

    def leading(self) -> list[NodeId]:
        return [id_ for id_, it in self.controllers.items() if it.is_leading and id_ not in self.dead | self.hung]


@asynccontextmanager
async def a_cluster(
    path: Path, nodes: int = 3, replication_factor: int = 2, rules: ControllerRules = RULES
) -> AsyncIterator[Cluster]:
    async with metadata_store(path) as metadata, AsyncExitStack() as stack:
        cluster = Cluster(metadata, rules)
        await cluster.put(keys.topic_key(TOPIC), TopicRecord(TOPIC, "t", 100, replication_factor))
        for node_id in range(1, nodes + 1):
            await stack.enter_async_context(running(cluster.serve(node_id)))
        await until(lambda: len(cluster.leading()) == 1 and len(cluster.controllers) == nodes)
        await until(lambda: all(len(it._cluster.nodes) == nodes for it in cluster.controllers.values()))
        yield cluster


def test_one_of_all_nodes_is_elected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path) as cluster:
            partition = await cluster.lead(0, 77, 1, 2)

            async def has_leader() -> bool:
                return (await cluster.head(partition)).leader in (1, 2, 3)

            await until(has_leader, "a controller has decided something")
            (leader,) = cluster.leading()
            found = await cluster.metadata.get(keys.CONTROLLER_LEADER)
            assert found is not None
            assert keys.decode_controller(found.value).node == leader

    asyncio.run(scenario())


def test_a_controller_that_refuses_is_replaced_before_its_session_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path) as cluster:
            (first,) = cluster.leading()
            cluster.dead.add(first)
            await until(lambda: len(cluster.leading()) == 1)
            assert cluster.leading() != [first]
            nodes = [keys.decode_node(kv.value).node_id for kv in await cluster.metadata.list(keys.NODES)]
            assert first in nodes, "its session has not ended: it was deposed"
            await until(lambda: not cluster.controllers[first].is_leading)

    asyncio.run(scenario())


def test_a_controller_that_hangs_is_replaced_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path) as cluster:
            (first,) = cluster.leading()
            cluster.hung.add(first)
            await until(lambda: len(cluster.leading()) == 1)

    asyncio.run(scenario())


def test_what_a_deposed_controller_decided_is_not_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            old_session, new_session = a_session(metadata, this_node(1)), a_session(metadata, this_node(2))
            await old_session.start()
            await new_session.start()
            old = await ControllerElection(metadata, old_session).stand(frozenset())
            assert old is not None
            election = ControllerElection(metadata, new_session)
            assert await election.stand(frozenset()) is None
            new = await election.stand(frozenset({1}))
            assert new is not None
            assert new.epoch > old.epoch
            assert not (await metadata.txn([old.condition], [Put("p/x", b"")])).ok
            assert (await metadata.txn([new.condition], [Put("p/x", b"")])).ok
            assert not await election.holds(old)
            assert await election.holds(new)
            await ControllerElection(metadata, old_session).resign(old)
            assert await metadata.get(keys.CONTROLLER_LEADER) is not None
            await election.resign(new)
            assert await metadata.get(keys.CONTROLLER_LEADER) is None
            await old_session.close()
            await new_session.close()

    asyncio.run(scenario())


def test_an_election_whose_answer_was_lost_is_found_out_about(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            session = a_session(metadata, this_node(1))
            await session.start()
            election = ControllerElection(metadata, session)
            metadata.answers_to_lose = 1
            with pytest.raises(Exception, match="lost"):
                await election.stand(frozenset())
            mandate = await election.stand(frozenset())
            assert mandate is not None
            assert mandate.epoch == 1
            assert (await metadata.txn([mandate.condition], [Put("p/x", b"")])).ok
            await session.close()

    asyncio.run(scenario())


def test_a_node_that_restarts_does_not_wait_for_its_own_past(tmp_path: Path) -> None:
    async def scenario() -> None:
        dead = await SqliteMetaStore.open(tmp_path / "metadata.db")
        past = a_session(CuttableMetaStore(dead), this_node(1))
        await past.start()
        assert await ControllerElection(dead, past).stand(frozenset()) is not None
        await dead.close()
        async with metadata_store(tmp_path) as metadata:
            session = a_session(metadata, this_node(1))
            await session.start()
            mandate = await ControllerElection(metadata, session).stand(frozenset())
            assert mandate is not None
            assert mandate.epoch == 3
            await session.close()

    asyncio.run(scenario())


def test_a_dead_leader_is_followed_before_its_session_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path) as cluster:
            (controller,) = cluster.leading()
            victim, other = [node for node in (1, 2, 3) if node != controller]
            partitions = [await cluster.lead(index, victim, victim, other) for index in range(100)]
            cluster.dead.add(victim)

            for partition in partitions:  # one after another: looking at all of them keeps the controller from its work

                async def has_moved(partition: PartitionId = partition) -> bool:
                    head = await cluster.head(partition)
                    return head.leader == other and head.epoch == 2

                await until(has_moved)
            nodes = [keys.decode_node(kv.value).node_id for kv in await cluster.metadata.list(keys.NODES)]
            assert victim in nodes

    asyncio.run(scenario())


def test_every_write_names_the_versions_it_was_decided_on_and_the_controllers_epoch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path) as cluster:
            before = len(cluster.metadata.transactions)
            partition = await cluster.lead(0, 77, 1, 2)
            key = await cluster.seal(1, 1)

            async def is_done() -> bool:
                return (await cluster.head(partition)).epoch == 2 and len((await cluster.sealed(key)).replicas) == 2

            await until(is_done)
            written = cluster.metadata.transactions[before + 2 :]  # two were the test's own
            checked = 0
            for conditions, operations in written:
                for operation in operations:
                    if operation.key.startswith(("p/", "s/")):
                        named = {condition.key for condition in conditions if isinstance(condition, Is)}
                        assert {operation.key, keys.CONTROLLER_EPOCH} <= named
                        checked += 1
            assert checked >= 3

    asyncio.run(scenario())


def test_one_stale_move_does_not_keep_the_others_from_moving(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path) as cluster:
            (controller,) = cluster.leading()
            shell = cluster.controllers[controller]
            partitions = [await cluster.lead(index, 1, 1, 2) for index in range(5)]
            await until(lambda: len(shell._cluster.heads.items) == 5)
            term = shell._term
            assert term is not None
            stale = shell._cluster.heads.items[partitions[2]]
            view = shell._view(None)
            moves = [move for partition in partitions for move in term.planner.elect(view, [partition], 0.0)]
            assert len(moves) == 5
            await cluster.lead(2, 1, 1, 2, epoch=8)
            moves[2] = replace(moves[2], version=stale.version)
            moved = await term.writer.move_leaders(moves)
            assert moved == frozenset(partitions) - {partitions[2]}
            assert (await cluster.head(partitions[2])).epoch == 8

    asyncio.run(scenario())


def test_a_segment_with_too_few_replicas_is_copied(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path) as cluster:
            key = await cluster.seal(1, 1)

            async def is_copied() -> bool:
                sealed = await cluster.sealed(key)
                return len(sealed.replicas) == 2 and sealed.adding == ()

            await until(is_copied)
            (copy,) = cluster.copies.asked
            assert copy.donors == (store_of(1),)
            assert copy.sealed.adding == (copy.target,)

    asyncio.run(scenario())


def test_a_copy_that_fails_goes_to_another_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path, nodes=3) as cluster:
            cluster.copies.broken.add(store_of(2))
            held = [await cluster.seal(number, 1) for number in range(6)]

            async def all_copied() -> bool:
                sealed = [await cluster.sealed(key) for key in held]
                return all(it.replicas == (store_of(1), store_of(3)) for it in sealed)

            await until(all_copied)

    asyncio.run(scenario())


def test_a_drained_store_is_emptied_and_its_node_leads_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path, rules=replace(RULES, stable_s=0.2)) as cluster:
            held = [await cluster.seal(number, 1, 2) for number in range(4)]
            partition = await cluster.lead(0, 1, 2, 3)
            await cluster.put(keys.store_key(store_of(1)), StoreRecord(store_of(1), 1, StoreState.DRAINING))

            async def is_empty() -> bool:
                sealed = [await cluster.sealed(key) for key in held]
                return all(set(it.replicas) == {store_of(2), store_of(3)} for it in sealed)

            await until(is_empty)

            async def is_led_elsewhere() -> bool:
                return (await cluster.head(partition)).leader != 1

            await until(is_led_elsewhere)

    asyncio.run(scenario())


def test_a_replica_too_many_stays_if_no_other_store_can_prove_that_it_has_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path, replication_factor=1) as cluster:
            cluster.copies.broken.update(map(store_of, (1, 2, 3)))
            key = await cluster.seal(1, 1, 2)
            await until(lambda: cluster.copies.proofs >= 4)
            assert len((await cluster.sealed(key)).replicas) == 2
            cluster.copies.broken.clear()

            async def is_dropped() -> bool:
                return len((await cluster.sealed(key)).replicas) == 1

            await until(is_dropped)

    asyncio.run(scenario())


def test_an_outage_of_the_metadata_store_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path) as cluster:
            partition = await cluster.lead(0, 77, 1, 2)
            cluster.metadata.is_cut = True
            await until(lambda: "controller_waits" in caplog.text)
            cluster.metadata.is_cut = False

            async def has_leader() -> bool:
                return (await cluster.head(partition)).leader in (1, 2, 3)

            await until(has_leader)

    asyncio.run(scenario())


def test_lost_answers_do_no_harm(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path) as cluster:
            partitions = [await cluster.lead(index, 77, 1, 2, 3) for index in range(60)]
            cluster.metadata.answers_to_lose = 5

            async def all_led() -> bool:
                heads = [await cluster.head(partition) for partition in partitions]
                return all(head.leader in (1, 2, 3) for head in heads)

            await until(all_led)
            leaders = Counter([(await cluster.head(partition)).leader for partition in partitions])
            assert sum(leaders.values()) == 60

    asyncio.run(scenario())


def test_only_the_controller_answers_to_elections_on_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_cluster(tmp_path) as cluster:
            (leading,) = cluster.leading()
            shell = cluster.controllers[leading]
            partitions = [await cluster.lead(index, 1, 1, 2) for index in range(3)]
            await until(lambda: len(shell._cluster.heads.items) == 3)
            elected = await shell.elect_leaders([partitions[0], PartitionId(TOPIC, 88)])
            assert elected == {partitions[0]: True, PartitionId(TOPIC, 88): False}
            assert (await cluster.head(partitions[0])).leader == 2
            other = next(it for id_, it in cluster.controllers.items() if id_ != leading)
            with pytest.raises(RequestError) as refused:
                await other.elect_leaders(partitions)
            assert refused.value.code is ErrorCode.NOT_CONTROLLER

    asyncio.run(scenario())
