"""The settings of groups, asked for and changed over the protocol: those of a subscription, its queue and its push."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.gateway.http.problems import Problem, bad_request, unavailable
from headwater.gateway.kafka.brokers import Brokers, Patience, Refused, check
from headwater.gateway.kafka.connection import BrokerGone
from headwater.model.errors import ErrorCode
from headwater.wire.codec import Message

DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES = 32, 44, 74
GROUP_RESOURCE = 32
GROUP_SOURCE = 8
"""Of what a group says itself."""
SET, DELETE = 0, 1
GROUPS_AT_ONCE = 500

TOPIC: Final = "headwater.subscription.topic"
KIND: Final = "headwater.subscription.kind"
RETENTION: Final = "headwater.subscription.retention.ms"
PAUSED: Final = "headwater.subscription.paused"
FILTER: Final = "headwater.filter"
SHARE_ORDER: Final = "headwater.share.order"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
OFFSET_RESET: Final = "share.auto.offset.reset"
STREAM, QUEUE = "stream", "queue"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    values: Mapping[str, str]
    """Everything that holds for the group, of what was asked for."""
    own: Mapping[str, str]
    """What it says itself."""


async def configured_groups(brokers: Brokers) -> list[str]:
    """Groups that say something themselves, whether or not anybody has used them."""
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
            if result.error_code:
                raise Refused(result.error_code, result.error_message, f"Group {result.resource_name}")
            entries = [(each.name, each.value or "", each.config_source) for each in result.configs]
            found[result.resource_name] = GroupConfig(
                {name: value for name, value, _ in entries},
                {name: value for name, value, source in sorted(entries) if source == GROUP_SOURCE},
            )
    return found


async def alter_group(brokers: Brokers, name: str, *, set: Mapping[str, str] = {}, delete: Iterable[str] = ()) -> None:
    """All changes together or none. Raises Refused, with INVALID_CONFIG for what a client got wrong."""
    changes = [Message(name=key, config_operation=SET, value=value) for key, value in set.items()]
    changes += [Message(name=key, config_operation=DELETE, value=None) for key in delete]
    if not changes:
        return
    resource = Message(resource_type=GROUP_RESOURCE, resource_name=name, configs=changes)
    patience = Patience()
    while True:
        try:
            answer = await brokers.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
            for result in answer.responses:
                check(result.error_code, result.error_message, f"Group {name}")
            return
        except (Refused, BrokerGone) as error:
            await patience.pause(error)


_CLIENTS_FAULT = (
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.POLICY_VIOLATION,
)


def problem_of(error: Refused | BrokerGone) -> Problem:
    """As a client of HTTP is told."""
    if isinstance(error, BrokerGone):
        return unavailable(f"The cluster does not answer: {error}.")
    if error.code in _CLIENTS_FAULT:
        return bad_request(f"{error}.")
    if error.code == ErrorCode.NON_EMPTY_GROUP:
        return Problem(409, "Group in use", f"{error}. Stop its members first, or wait until they have left.")
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return Problem(404, "Unknown subscription", f"{error}.")
    return Problem(503, "Cluster unavailable", f"{error}.", headers={"Retry-After": "1"})
