"""How much disk partitions and brokers take."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.client.address import BrokerAddress
    from headwater.client.blocking_cluster import BlockingCluster


def partition_sizes(cluster: "BlockingCluster", brokers: "Iterable[BrokerAddress]") -> dict[tuple[str, int], int]:
    """Bytes by topic and partition, of the largest replica. A broker that does not answer is left out."""
    from headwater.client.admin.log_dirs import disk_usage, largest_replicas
    from headwater.client.errors import ClientError

    usages = []
    for broker in brokers:
        try:
            usages.append(cluster.answer_at(broker, disk_usage()))
        except ClientError:
            continue
    return largest_replicas(usages)
