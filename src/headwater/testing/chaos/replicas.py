"""Are all replicas of a sealed segment the same, byte for byte? Each is read from its own store, as a peer would."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headwater.broker.cluster.followed_secrets import FollowedSecrets
from headwater.broker.cluster.peer_identity import open_peer_tls
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import MetaStore
from headwater.model.ids import PartitionId, StoreId
from headwater.model.replica import StoreError
from headwater.model.segments import SealedSegment
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import PeerAddress
from headwater.peers.remote_store import RemoteStore
from headwater.records.batch import split
from headwater.testing.processes.cluster import ProcessCluster

READ_BYTES: Final = 4 * 1024 * 1024


@dataclass(slots=True)
class ReplicaComparison:
    segments: int = 0
    replicas: int = 0
    size_bytes: int = 0
    differences: list[str] = field(default_factory=list)


def compare_replicas(cluster: ProcessCluster) -> ReplicaComparison:
    """Of every sealed segment in the cluster. A replica that cannot be read is a difference."""
    return asyncio.run(_connect_and_compare(cluster))


async def _connect_and_compare(cluster: ProcessCluster) -> ReplicaComparison:
    metadata = await open_metadata(cluster.metadata_url)
    try:
        return await compare(metadata, await _identity(cluster, metadata))
    finally:
        await metadata.close()


async def _identity(cluster: ProcessCluster, metadata: MetaStore) -> PeerIdentity:
    """As its first node has it: stores answer nodes of their cluster alone."""
    config = BrokerConfig.load(None, **cluster.node_config(cluster.nodes[0]))
    secrets = await FollowedSecrets.open(metadata, config.cluster_secret_file)
    return PeerIdentity(secrets.current, await open_peer_tls(config))


async def compare(metadata: MetaStore, identity: PeerIdentity) -> ReplicaComparison:
    stores = {store: RemoteStore(store, address, identity) for store, address in (await _addresses(metadata)).items()}
    found = ReplicaComparison()
    try:
        for kv in await metadata.list(keys.SEALED):
            partition = PartitionId.parse(kv.key.removeprefix(keys.SEALED).split("/")[0])
            await _compare_segment(found, partition, keys.decode_sealed(kv.value), stores)
    finally:
        for store in stores.values():
            store.close()
    return found


async def _addresses(metadata: MetaStore) -> dict[StoreId, PeerAddress]:
    nodes = [keys.decode_node(kv.value) for kv in await metadata.list(keys.NODES)]
    return {store: PeerAddress(node.peer_host, node.peer_port) for node in nodes for store in node.store_ids}


async def _compare_segment(
    found: ReplicaComparison, partition: PartitionId, segment: SealedSegment, stores: Mapping[StoreId, RemoteStore]
) -> None:
    found.segments += 1
    digests: dict[StoreId, str] = {}
    for store_id in segment.replicas:
        try:
            if store_id not in stores:
                raise StoreError("no node serves the store")
            digest, size_bytes = await _digest(stores[store_id], segment)
        except StoreError as error:
            found.differences.append(
                f"segment {segment.id} [{segment.base}, {segment.end}) of {partition}: the replica in store {store_id} "
                f"cannot be read: {type(error).__name__}: {error}"
            )
            continue
        found.replicas += 1
        found.size_bytes += size_bytes
        digests[store_id] = digest
    if len(set(digests.values())) > 1:
        found.differences.append(
            f"segment {segment.id} [{segment.base}, {segment.end}) of {partition} has replicas that differ: {digests}"
        )


async def _digest(store: RemoteStore, segment: SealedSegment) -> tuple[str, int]:
    digest, offset, size_bytes = hashlib.sha256(), segment.base, 0
    while offset < segment.end:
        data = await store.read(segment.id, offset, segment.end, READ_BYTES)
        batches = split(data)
        if not batches:
            raise StoreError(f"it ends at {offset}")
        for header, batch in batches:
            digest.update(batch)
            size_bytes += len(batch)
            offset = header.last_offset + 1
    return digest.hexdigest(), size_bytes
