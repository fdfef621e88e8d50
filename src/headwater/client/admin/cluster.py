"""The nodes of a cluster, including those that are gone and missed (fenced)."""

from headwater.client.errors import check
from headwater.client.question import Question, question
from headwater.wire.typed.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headwater.wire.typed.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)

METADATA_TOPIC = "__cluster_metadata"


def describe_cluster() -> Question[DescribeClusterResponse]:
    def read(response: DescribeClusterResponse) -> DescribeClusterResponse:
        check(response.error_code, response.error_message, "The description of the cluster")
        return response

    return question(DescribeClusterRequest(include_fenced_brokers=True), read)


def last_seen_ms() -> Question[dict[int, int]]:
    """Of nodes that are gone and missed, when they were noticed to be."""

    def read(response: DescribeQuorumResponse) -> dict[int, int]:
        check(response.error_code, response.error_message, "The description of the quorum")
        return {
            node.replica_id: node.last_fetch_timestamp
            for topic in response.topics
            for partition in topic.partitions
            for node in partition.observers
            if node.last_fetch_timestamp >= 0
        }

    topic = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
    return question(DescribeQuorumRequest(topics=[topic]), read)
