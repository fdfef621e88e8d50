"""The settings of groups as the commands read and change them: resources of type GROUP."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.cli.client import REQUEST_TIMEOUT_S, explain

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

GROUP_CONFIG = 8
"""The source of what a group says itself, in the numbers of the protocol."""
GROUPS_AT_ONCE = 500

SUBSCRIPTION = "headwater.subscription."
TOPIC, KIND = f"{SUBSCRIPTION}topic", f"{SUBSCRIPTION}kind"
RETENTION, PAUSED = f"{SUBSCRIPTION}retention.ms", f"{SUBSCRIPTION}paused"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    values: Mapping[str, str]
    """Everything that holds for the group."""
    own: Mapping[str, str]
    """What it says itself."""


def group_configs(client: "AdminClient", names: Iterable[str]) -> dict[str, GroupConfig]:
    from confluent_kafka.admin import ConfigResource, ResourceType

    found: dict[str, GroupConfig] = {}
    wanted = list(names)
    for first in range(0, len(wanted), GROUPS_AT_ONCE):
        resources = [ConfigResource(ResourceType.GROUP, name) for name in wanted[first : first + GROUPS_AT_ONCE]]
        for resource, future in client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S).items():
            entries = future.result()
            found[resource.name] = GroupConfig(
                {name: entry.value for name, entry in entries.items()},
                {name: entry.value for name, entry in sorted(entries.items()) if entry.source == GROUP_CONFIG},
            )
    return found


def alter_group_config(
    client: "AdminClient", group: str, bootstrap: str, *, set: Mapping[str, str] = {}, delete: Iterable[str] = ()
) -> None:
    """All changes together or none."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in set.items()]
    changes += [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in delete]
    if not changes:
        return
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=changes)
    (future,) = client.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
    try:
        future.result()
    except KafkaException as error:
        raise explain(error.args[0], bootstrap, group=group) from error
