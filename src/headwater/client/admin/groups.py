"""Groups of every kind: which there are, who their members are, where queues begin, and deleting them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.client.cluster_view import GROUP, Coordinated
from headwater.client.errors import check
from headwater.client.question import Question, question
from headwater.model.ids import Offset, PartitionName
from headwater.wire.typed.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from headwater.wire.typed.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headwater.wire.typed.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from headwater.wire.typed.list_groups import ListGroupsRequest, ListGroupsResponse
from headwater.wire.typed.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

SHARE = "share"


@dataclass(frozen=True, slots=True)
class GroupListing:
    name: str
    kind: str
    """Kafka's word: classic, consumer, share or streams; empty if the broker does not tell."""
    state: str
    is_simple: bool = False
    """It has committed offsets, and never had partitions assigned."""

    @property
    def is_share(self) -> bool:
        return self.kind == SHARE


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    client_id: str
    host: str
    partitions: tuple[PartitionName, ...]


def list_groups() -> Question[list[GroupListing]]:
    """The groups that one broker coordinates."""

    def read(response: ListGroupsResponse) -> list[GroupListing]:
        check(response.error_code, None, "The list of groups")
        return [
            GroupListing(group.group_id, group.group_type.lower(), _words(group.group_state), group.protocol_type == "")
            for group in response.groups
        ]

    return question(ListGroupsRequest(), read)


def merged(listings: Iterable[list[GroupListing]]) -> dict[str, GroupListing]:
    """The groups that all brokers coordinate, by name."""
    return {group.name: group for listing in listings for group in listing}


def delete_group(group: str) -> Question[None]:
    """With its positions; its settings stay. The code is NON_EMPTY_GROUP while it has members."""

    def read(response: DeleteGroupsResponse) -> None:
        for result in response.results:
            check(result.error_code, None, f"Group {group}")

    return question(DeleteGroupsRequest(groups_names=[group]), read, Coordinated(GROUP, group))


def share_members(group: str) -> Question[list[GroupMember]]:
    def read(response: ShareGroupDescribeResponse) -> list[GroupMember]:
        (described,) = response.groups
        check(described.error_code, described.error_message, f"Group {group}")
        return [
            GroupMember(
                member.member_id,
                member.client_id,
                member.client_host,
                tuple(
                    (topic.topic_name, index)
                    for topic in member.assignment.topic_partitions
                    for index in topic.partitions
                ),
            )
            for member in described.members
        ]

    return question(ShareGroupDescribeRequest(group_ids=[group]), read, Coordinated(GROUP, group))


def share_offsets(group: str) -> Question[dict[PartitionName, tuple[int, int | None]]]:
    """The start offset and, if known, the lag of each partition that a share group has begun to read."""

    def read(response: DescribeShareGroupOffsetsResponse) -> dict[PartitionName, tuple[int, int | None]]:
        (described,) = response.groups
        check(described.error_code, described.error_message, f"Group {group}")
        return {
            (topic.topic_name, each.partition_index): (each.start_offset, each.lag if each.lag >= 0 else None)
            for topic in described.topics
            for each in topic.partitions
            if each.error_code == 0 and each.start_offset >= 0
        }

    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
    )
    return question(request, read, Coordinated(GROUP, group))


def start_share_group(group: str, topic: str, offsets: Mapping[int, int]) -> Question[None]:
    """Set where a share group without members begins in a topic."""

    def read(response: AlterShareGroupOffsetsResponse) -> None:
        check(response.error_code, response.error_message, f"Group {group}")
        for answered in response.responses:
            for each in answered.partitions:
                check(each.error_code, each.error_message, f"Partition {each.partition_index} of {topic}")

    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=Offset(offset))
        for index, offset in sorted(offsets.items())
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
    return question(request, read, Coordinated(GROUP, group))


def _words(state: str) -> str:
    """`PreparingRebalance` as people read it."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in state).strip()
