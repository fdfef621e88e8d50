"""The one directory in which a node keeps its replicas, as clients see it."""

from collections import Counter
from typing import TYPE_CHECKING

from headwater.storage.segment_store import SegmentStore

if TYPE_CHECKING:
    from headwater.broker.settings.broker_config import BrokerConfig


def log_dir(config: "BrokerConfig") -> str:
    return str(config.data_dir.resolve())


def replica_sizes(store: SegmentStore) -> Counter[str]:
    """Bytes by partition, of those that have a replica in the store."""
    sizes = Counter[str]()
    for replica in store.replicas():
        sizes[replica.partition] += replica.size_bytes
    return sizes
