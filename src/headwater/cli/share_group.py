"""Share groups as the commands see them: asked of the brokers directly, because librdkafka has no calls for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.output import Problem
from headwater.cli.raw_request import ask, brokers, check, coordinator, message

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

LIST_GROUPS, LIST_CONFIG_RESOURCES, SHARE_GROUP_DESCRIBE = 16, 74, 77
DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS = 90, 91
GROUP_RESOURCE = 32
SHARE = "share"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    name: str
    state: str
    kind: str
    """Kafka's word: classic, consumer, share or streams."""
    is_simple: bool = False
    """It keeps offsets, and has never shared out partitions."""

    @property
    def is_share(self) -> bool:
        return self.kind == SHARE


@dataclass(frozen=True, slots=True)
class ShareMember:
    member: str
    client: str
    host: str
    partitions: int


def list_groups(client: "AdminClient") -> dict[str, ListedGroup]:
    """Groups of every kind, by name."""
    found: dict[str, ListedGroup] = {}
    for broker in brokers(client):
        answer = ask(broker, LIST_GROUPS, 5, states_filter=[], types_filter=[])
        check(answer.error_code, None, "The list of groups")
        for group in answer.groups:
            kind = group.group_type.lower() or "unknown"
            is_simple = group.protocol_type == ""
            found[group.group_id] = ListedGroup(group.group_id, _words(group.group_state), kind, is_simple)
    return found


def no_such_group(client: "AdminClient", group: str) -> Problem:
    """For a group that is asked for as a consumer group, and is none."""
    listed = list_groups(client).get(group)
    if listed is not None and listed.is_share:
        return Problem(f"Group {group} is a queue.", f"`headwater queue describe {group}` shows it.")
    return Problem(f"Group {group} does not exist.", "`headwater group list` shows those that do.")


def configured_groups(client: "AdminClient") -> list[str]:
    """Groups that have settings of their own, whether or not anybody has used them."""
    first, *_ = brokers(client)
    answer = ask(first, LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP_RESOURCE])
    check(answer.error_code, None, "The list of configured groups")
    return [resource.resource_name for resource in answer.config_resources]


def share_members(client: "AdminClient", group: str) -> list[ShareMember]:
    return [
        ShareMember(
            member.member_id,
            member.client_id,
            member.client_host,
            sum(len(topic.partitions) for topic in member.assignment.topic_partitions),
        )
        for member in _described_members(client, group)
    ]


def share_assigned(client: "AdminClient", group: str) -> set[tuple[str, int]]:
    """What the members of a group read now."""
    return {
        (topic.topic_name, index)
        for member in _described_members(client, group)
        for topic in member.assignment.topic_partitions
        for index in topic.partitions
    }


def share_offsets(client: "AdminClient", group: str) -> dict[tuple[str, int], tuple[int, int | None]]:
    """The start offset and, if known, the lag, of each partition that the group has begun to read."""
    asked = message(group_id=group, topics=None)
    answer = ask(coordinator(client, group), DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[asked])
    (described,) = answer.groups
    check(described.error_code, described.error_message, f"Group {group}")
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag if each.lag >= 0 else None)
        for topic in described.topics
        for each in topic.partitions
        if each.error_code == 0 and each.start_offset >= 0
    }


def start_share_group(client: "AdminClient", group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Have a group without members begin at these offsets of a topic."""
    if not offsets:
        return
    partitions = [message(partition_index=index, start_offset=offset) for index, offset in sorted(offsets.items())]
    asked = [message(topic_name=topic, partitions=partitions)]
    answer = ask(coordinator(client, group), ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=asked)
    check(answer.error_code, answer.error_message, f"Group {group}")
    for responded in answer.responses:
        for each in responded.partitions:
            check(each.error_code, each.error_message, f"Partition {each.partition_index} of {topic}")


def _described_members(client: "AdminClient", group: str) -> list[Any]:
    answer = ask(coordinator(client, group), SHARE_GROUP_DESCRIBE, 1, group_ids=[group])
    (described,) = answer.groups
    check(described.error_code, described.error_message, f"Group {group}")
    return list(described.members)


def _words(state: str) -> str:
    """`PreparingRebalance` as people read it."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in state).strip()
