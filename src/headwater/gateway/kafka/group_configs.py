"""The settings of groups, described and changed over the protocol. Everything raises BrokerRefused and BrokerGone."""

from collections.abc import Iterable, Mapping, Sequence

from headwater.gateway.kafka.blocking import GROUP_SOURCE, GROUPS_AT_ONCE, GroupConfig
from headwater.gateway.kafka.brokers import Brokers, RequestBackoff, check
from headwater.gateway.kafka.errors import BrokerGone, BrokerRefused
from headwater.wire.message import Message

DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES = 32, 44, 74
GROUP_RESOURCE = 32
SET, DELETE = 0, 1


async def configured_groups(brokers: Brokers) -> list[str]:
    """Groups with settings of their own, whether or not they were ever used."""
    answer = await brokers.ask(LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP_RESOURCE])
    check(answer.error_code, None, "The list of configured groups")
    return [resource.resource_name for resource in answer.config_resources]


async def group_configs(
    brokers: Brokers, names: Sequence[str], keys: Sequence[str] | None = None
) -> dict[str, GroupConfig]:
    found = {}
    for first in range(0, len(names), GROUPS_AT_ONCE):
        asked = [
            Message(resource_type=GROUP_RESOURCE, resource_name=name, configuration_keys=keys)
            for name in names[first : first + GROUPS_AT_ONCE]
        ]
        answer = await brokers.ask(
            DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=False, include_documentation=False
        )
        for result in answer.results:
            check(result.error_code, result.error_message, f"Group {result.resource_name}")
            entries = [(each.name, each.value or "", each.config_source) for each in result.configs]
            found[result.resource_name] = GroupConfig(
                {name: value for name, value, _ in entries},
                {name: value for name, value, source in sorted(entries) if source == GROUP_SOURCE},
            )
    return found


async def alter_group(brokers: Brokers, name: str, *, set: Mapping[str, str] = {}, delete: Iterable[str] = ()) -> None:
    """All changes together or none. The code is INVALID_CONFIG if a value is wrong."""
    changes = [Message(name=key, config_operation=SET, value=value) for key, value in set.items()]
    changes += [Message(name=key, config_operation=DELETE, value=None) for key in delete]
    if not changes:
        return
    resource = Message(resource_type=GROUP_RESOURCE, resource_name=name, configs=changes)
    backoff = RequestBackoff()
    while True:
        try:
            answer = await brokers.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
            for result in answer.responses:
                check(result.error_code, result.error_message, f"Group {name}")
            return
        except (BrokerRefused, BrokerGone) as error:
            await backoff.pause(error)
