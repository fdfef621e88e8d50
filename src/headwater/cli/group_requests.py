"""Requests about groups that librdkafka has no calls for, sent to the brokers directly, and the settings of groups."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.client import explain
from headwater.cli.output import CommandFailed
from headwater.cli.raw_request import ask, brokers, check, coordinator, message
from headwater.gateway.kafka import blocking

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

LIST_GROUPS, LIST_CONFIG_RESOURCES, SHARE_GROUP_DESCRIBE = 16, 74, 77
DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS = 90, 91
GROUP_RESOURCE = 32
SHARE = "share"

SUBSCRIPTION = "headwater.subscription."
TOPIC, KIND = f"{SUBSCRIPTION}topic", f"{SUBSCRIPTION}kind"
RETENTION, PAUSED = f"{SUBSCRIPTION}retention.ms", f"{SUBSCRIPTION}paused"
OFFSET_RESET = "share.auto.offset.reset"


@dataclass(frozen=True, slots=True)
class GroupListing:
    name: str
    state: str
    kind: str
    """Kafka's word: classic, consumer, share or streams."""
    is_simple: bool = False
    """It has committed offsets, and never had partitions assigned."""

    @property
    def is_share(self) -> bool:
        return self.kind == SHARE


@dataclass(frozen=True, slots=True)
class ShareMemberSummary:
    member: str
    client: str
    host: str
    partitions: int


def list_groups(client: "AdminClient") -> dict[str, GroupListing]:
    """Groups of every kind, by name."""
    found: dict[str, GroupListing] = {}
    for broker in brokers(client):
        answer = ask(broker, LIST_GROUPS, 5, states_filter=[], types_filter=[])
        check(answer.error_code, None, "The list of groups")
        for group in answer.groups:
            kind = group.group_type.lower() or "unknown"
            is_simple = group.protocol_type == ""
            found[group.group_id] = GroupListing(group.group_id, _words(group.group_state), kind, is_simple)
    return found


def no_such_group(client: "AdminClient", group: str) -> CommandFailed:
    """Why a group cannot be described as a consumer group: it does not exist, or is a queue."""
    listed = list_groups(client).get(group)
    if listed is not None and listed.is_share:
        return CommandFailed(f"Group {group} is a queue.", f"`headwater queue describe {group}` shows it.")
    return CommandFailed(f"Group {group} does not exist.", "`headwater group list` shows the existing groups.")


def configured_groups(client: "AdminClient") -> list[str]:
    """Groups that have settings of their own, whether or not they were used."""
    first, *_ = brokers(client)
    answer = ask(first, LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP_RESOURCE])
    check(answer.error_code, None, "The list of configured groups")
    return [resource.resource_name for resource in answer.config_resources]


def alter_group_config(
    client: "AdminClient", group: str, bootstrap: str, *, set: Mapping[str, str] = {}, delete: Iterable[str] = ()
) -> None:
    """Make all changes or none. Raises CommandFailed."""
    from confluent_kafka import KafkaException

    try:
        blocking.alter_group_config(client, group, set=set, delete=delete)
    except KafkaException as error:
        raise explain(error.args[0], bootstrap, group=group) from error


def share_members(client: "AdminClient", group: str) -> list[ShareMemberSummary]:
    return [
        ShareMemberSummary(
            member.member_id,
            member.client_id,
            member.client_host,
            sum(len(topic.partitions) for topic in member.assignment.topic_partitions),
        )
        for member in _described_members(client, group)
    ]


def share_assigned(client: "AdminClient", group: str) -> set[tuple[str, int]]:
    """The partitions that the members of a group read now."""
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
    """Set where a group without members begins in a topic. Raises CommandFailed."""
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
