"""Groups of every kind and their settings, over our own client."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.cli.output import CommandFailed

if TYPE_CHECKING:
    from headwater.client.admin.configs import GroupConfig
    from headwater.client.admin.groups import GroupListing
    from headwater.client.blocking_cluster import BlockingCluster

PATIENCE_S = 8.0
"""How long a change is repeated while nodes and coordinators move."""

SUBSCRIPTION = "headwater.subscription."
TOPIC, KIND = f"{SUBSCRIPTION}topic", f"{SUBSCRIPTION}kind"
RETENTION, PAUSED = f"{SUBSCRIPTION}retention.ms", f"{SUBSCRIPTION}paused"
OFFSET_RESET = "share.auto.offset.reset"


def list_groups(cluster: "BlockingCluster") -> "dict[str, GroupListing]":
    """Groups of every kind, by name."""
    from headwater.client.admin import groups

    return groups.merged(cluster.answer_everywhere(groups.list_groups()))


def no_such_group(cluster: "BlockingCluster", group: str) -> CommandFailed:
    """Why a group cannot be described as a consumer group: it does not exist, or is a queue."""
    listed = list_groups(cluster).get(group)
    if listed is not None and listed.is_share:
        return CommandFailed(f"Group {group} is a queue.", f"`headwater queue describe {group}` shows it.")
    return CommandFailed(f"Group {group} does not exist.", "`headwater group list` shows the existing groups.")


def configured_groups(cluster: "BlockingCluster") -> list[str]:
    """Groups that have settings of their own, whether or not they were used."""
    from headwater.client.admin import configs

    return cluster.answer(configs.configured_groups())


def group_configs(cluster: "BlockingCluster", names: Sequence[str]) -> "dict[str, GroupConfig]":
    from headwater.client.admin import configs

    return {
        name: config for question in configs.group_configs(names) for name, config in cluster.answer(question).items()
    }


def alter_group_config(
    cluster: "BlockingCluster", group: str, *, set: Mapping[str, str] = {}, delete: Iterable[str] = ()
) -> None:
    """Make all changes or none."""
    from headwater.client.admin import configs
    from headwater.client.blocking_cluster import retried

    deleted = list(delete)
    if set or deleted:
        question = configs.alter_group_config(group, set=set, delete=deleted)
        retried(lambda: cluster.answer(question), patience_s=PATIENCE_S)


def share_members(cluster: "BlockingCluster", group: str) -> list[dict[str, object]]:
    """As the commands show them."""
    from headwater.client.admin import groups

    return [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": len(member.partitions),
        }
        for member in cluster.answer(groups.share_members(group))
    ]


def share_assigned(cluster: "BlockingCluster", group: str) -> set[tuple[str, int]]:
    """The partitions that the members of a group read now."""
    from headwater.client.admin import groups

    return {partition for member in cluster.answer(groups.share_members(group)) for partition in member.partitions}


def share_offsets(cluster: "BlockingCluster", group: str) -> dict[tuple[str, int], tuple[int, int | None]]:
    """The start offset and, if known, the lag, of each partition that the group has begun to read."""
    from headwater.client.admin import groups

    return cluster.answer(groups.share_offsets(group))


def start_share_group(cluster: "BlockingCluster", group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Set where a group without members begins in a topic."""
    from headwater.client.admin import groups

    if offsets:
        cluster.answer(groups.start_share_group(group, topic, offsets))
