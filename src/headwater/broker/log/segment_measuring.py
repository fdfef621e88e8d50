"""Sealed segments are measured after the roll that sealed them: a roll knows the size, not the checksum."""

from dataclasses import replace

from headwater.broker.log.node_ports import NodePorts
from headwater.broker.log.partition_metadata import LostLeadership, PartitionMetadata
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.replica import SealedReplica, StoreError, StoreFailed
from headwater.model.segments import SealedSegment


async def measure_segment(ports: NodePorts, register: PartitionMetadata, sealed: SealedSegment) -> Exception | None:
    """Have the stores flush and measure the segment, and write the figures into its key. Returns the last problem: of a
    store, whose replica is then not flushed, or of the metadata. Raises StoreFailed if the own store cannot go on."""
    measured: SealedReplica | None = None
    problem: Exception | None = None
    for store_id in sealed.replicas:
        try:
            replica = await ports.stores.find(store_id).seal(sealed.id, sealed.end)
            measured = measured or replica
        except StoreFailed:
            raise
        except StoreError as error:
            problem = error
    try:
        if measured is not None:
            await register.update(
                sealed.id,
                lambda now: replace(
                    now,
                    size_bytes=measured.size_bytes,
                    max_timestamp=measured.max_timestamp,
                    crc32c=measured.crc32c,
                ),
            )
    except (Unavailable, Unknown, LostLeadership) as error:
        problem = error
    return problem
