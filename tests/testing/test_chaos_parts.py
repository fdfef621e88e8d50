"""The parts of a run of faults: what they measure, whom they hit, and that they notice what is wrong."""

import asyncio
import random
import subprocess
import sys
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headwater.broker.cluster.followed_secrets import cluster_secrets
from headwater.metadata import keys
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import Put
from headwater.model.cluster import Node, NodeStore
from headwater.model.ids import PartitionId, StoreId, segment_id
from headwater.model.replica import Durability
from headwater.model.segments import Head, OpenSegment, SealedSegment
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.peers.identity import PeerIdentity
from headwater.peers.store_server import StoreServer
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.testing.chaos.faults import Cut
from headwater.testing.chaos.pulse import longest_gap_s
from headwater.testing.chaos.replicas import ReplicaComparison, compare
from headwater.testing.chaos.report import percentile
from headwater.testing.fakes.files import MemoryFiles
from headwater.testing.fakes.network import MACHINE, Network, NoNetwork
from headwater.testing.processes.cluster_state import ClusterState

OPTIONS = StoreOptions(journal_file_bytes=1 << 20, reserve_bytes=0, low_water_bytes=0)
PARTITION = PartitionId(uuid.UUID(int=1), 0)
SEGMENT = segment_id(1, 1)
ECHO = "import socket; s = socket.create_server(('', 7)); print(flush=True)\nwhile True: s.accept()[0].send(b'!')"
REACH = "import socket, sys; socket.create_connection((sys.argv[1], 7), timeout=0.5).recv(1)"


class Silent:
    """Traffic that nobody counts."""

    def connection_opened(self) -> None: ...

    def connection_closed(self) -> None: ...

    def bytes_in(self, count: int) -> None: ...

    def bytes_out(self, count: int) -> None: ...

    def bad_request(self, fact: str) -> None: ...


def test_a_stall_is_the_longest_gap_that_ends_within_the_time() -> None:
    times = [0.0, 1.0, 4.0, 4.5, 9.0]
    assert longest_gap_s(times, 2.0, 5.0) == 3.0, "it had begun before"
    assert longest_gap_s(times, 4.2, 5.0) == 0.5
    assert longest_gap_s(times, 0.0, 10.0) == 4.5
    assert longest_gap_s([], 0.0, 10.0) == 0.0


def test_a_percentile_is_the_nearest_rank() -> None:
    assert [percentile([1.0, 2.0, 3.0, 4.0], percent) for percent in (50, 75, 99)] == [2.0, 3.0, 4.0]


def test_nodes_are_found_by_their_roles() -> None:
    stores = {StoreId(letter * 32): number for number, letter in enumerate("abc", 1)}
    head = Head(2, 0, 0, OpenSegment(SEGMENT, 0, 0, 0, tuple(stores)))
    state = ClusterState({("t", 0): head, ("__consumer_offsets", 0): head}, stores, frozenset({1, 2, 3}), 3)
    roles = ("leader of t-0", "replica of t-0", "controller", "coordinator of g", "leader of t-1")
    assert [state.node(role) for role in roles] == [2, 1, 3, 2, None]
    with pytest.raises(ValueError, match="no role"):
        state.node("the tall one")


def compared(tmp_path: Path, *contents: list[bytes]) -> ReplicaComparison:
    """Of one sealed segment, whose replicas have these values."""

    async def run() -> ReplicaComparison:
        async with AsyncExitStack() as held:
            metadata = await SqliteMetaStore.open(str(tmp_path / "metadata.db"))
            held.push_async_callback(metadata.close)
            identity = PeerIdentity(ClusterSecrets(*await cluster_secrets(metadata)))
            replicas = []
            for number, values in enumerate(contents, 1):
                store = await SegmentStore.open(Path("/data"), files=MemoryFiles(), options=OPTIONS)
                held.push_async_callback(store.close)
                await store.create(SEGMENT, str(PARTITION), 0, 0, b"", Durability.OS)
                for offset, value in enumerate(values):
                    batch = build_batch([Record(None, value)], base_offset=offset, timestamp=1)
                    await store.append(SEGMENT, offset, offset + 1, offset, [batch])
                server = StoreServer(store, identity, Silent())
                held.push_async_callback(server.close)
                address = await server.listen("127.0.0.1", 0)
                node = Node(number, number, "h", 1, *address, stores=(NodeStore(store.store_id, 1, 1),))
                await metadata.txn([], [Put(keys.node_key(number, number), keys.encode(node))])
                replicas.append(store.store_id)
            sealed = SealedSegment(
                id=SEGMENT,
                base=0,
                end=2,
                epoch=0,
                epoch_start=0,
                replicas=tuple(replicas),
                size_bytes=1,
                max_timestamp=1,
                crc32c=None,
            )
            await metadata.txn([], [Put(keys.sealed_key(PARTITION, SEGMENT), keys.encode(sealed))])
            return await compare(metadata, identity)

    return asyncio.run(run())


def test_equal_replicas_are_equal_whatever_one_holds_past_the_end(tmp_path: Path) -> None:
    found = compared(tmp_path, [b"a", b"b"], [b"a", b"b"], [b"a", b"b", b"more"])
    assert (found.segments, found.replicas, found.differences) == (1, 3, [])


def test_a_replica_that_differs_is_noticed(tmp_path: Path) -> None:
    found = compared(tmp_path, [b"a", b"b"], [b"a", b"x"])
    assert len(found.differences) == 1 and "differ" in found.differences[0]


def test_a_replica_that_is_too_short_is_noticed(tmp_path: Path) -> None:
    found = compared(tmp_path, [b"a", b"b"], [b"a"])
    assert len(found.differences) == 1 and "it ends at 1" in found.differences[0]


def test_a_cut_link_loses_packets_in_its_direction_until_it_is_healed() -> None:
    try:
        network = Network.create(["a", "b", "c"])
    except NoNetwork as error:
        pytest.skip(str(error))
    with network:
        server = subprocess.Popen(
            [*network.command_prefix("b"), sys.executable, "-c", ECHO], stdout=subprocess.PIPE
        )  # fmt: skip
        try:
            assert server.stdout is not None and server.stdout.readline(), "it listens"

            def reaches(source: str) -> bool:
                prefix = [] if source == MACHINE else network.command_prefix(source)
                command = [*prefix, sys.executable, "-c", REACH, network.address("b")]
                return subprocess.run(command, capture_output=True, check=False).returncode == 0

            assert reaches("a") and reaches("c") and reaches(MACHINE)
            for way in (("a", "b"), ("b", "a")):
                fault = Cut(network, "a", [way])
                fault.begin()
                assert not reaches("a"), f"{way} is cut"
                assert reaches("c") and reaches(MACHINE)
                assert fault.end()
                assert reaches("a")
            flapping = Cut(network, "a", [("a", "b"), ("b", "a")], random.Random(1))
            flapping.begin()
            network.cut("a", "b")
            assert flapping.end()
            assert not reaches("a"), "somebody else has cut it, too"
            network.heal_all()
            assert reaches("a")
        finally:
            server.kill()
            server.communicate()
