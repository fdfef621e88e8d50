"""Settings of groups: which groups have some, what they are, and changing them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from headwater.client.errors import check
from headwater.client.question import Question, question
from headwater.security.redaction import HIDDEN
from headwater.wire.typed.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headwater.wire.typed.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.wire.typed.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

GROUP_RESOURCE = 32
GROUP_SOURCE = 8
"""Of what a group says itself."""
SET, DELETE = 0, 1
GROUPS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class GroupConfig:
    values: Mapping[str, str]
    """Everything that holds for the group."""
    own: Mapping[str, str]
    """What it says itself."""
    secrets: frozenset[str] = frozenset()
    """Names of what it says itself and people are not shown."""
    withheld: frozenset[str] = frozenset()
    """Those of the secrets that this client is not shown either: their values are empty here."""

    @property
    def shown(self) -> dict[str, str]:
        """What it says itself, for people."""
        return {name: HIDDEN if name in self.secrets else value for name, value in self.own.items()}


def configured_groups() -> Question[list[str]]:
    """Groups with settings of their own, whether or not they were ever used."""

    def read(response: ListConfigResourcesResponse) -> list[str]:
        check(response.error_code, None, "The list of configured groups")
        return [resource.resource_name for resource in response.config_resources]

    return question(ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE]), read)


def group_configs(
    names: Sequence[str], keys: Sequence[str] | None = None
) -> Iterable[Question[dict[str, GroupConfig]]]:
    """Each question is for some of the groups, no more than a request should name."""
    for first in range(0, len(names), GROUPS_AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configuration_keys=keys)
            for name in names[first : first + GROUPS_AT_ONCE]
        ]
        yield question(DescribeConfigsRequest(resources=resources), _read_configs)


def alter_group_config(group: str, *, set: Mapping[str, str] = {}, delete: Iterable[str] = ()) -> Question[None]:
    """All changes together or none. The code is INVALID_CONFIG if a value is wrong."""

    def read(response: IncrementalAlterConfigsResponse) -> None:
        for result in response.responses:
            check(result.error_code, result.error_message, f"Group {group}")

    changes = [AlterableConfig(name=key, config_operation=SET, value=value) for key, value in set.items()]
    changes += [AlterableConfig(name=key, config_operation=DELETE) for key in delete]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=changes)
    return question(IncrementalAlterConfigsRequest(resources=[resource]), read)


def _read_configs(response: DescribeConfigsResponse) -> dict[str, GroupConfig]:
    found = {}
    for result in response.results:
        check(result.error_code, result.error_message, f"Group {result.resource_name}")
        own = [each for each in result.configs if each.config_source == GROUP_SOURCE]
        secrets = [each for each in own if each.is_sensitive]
        found[result.resource_name] = GroupConfig(
            values={each.name: each.value or "" for each in result.configs},
            own={each.name: each.value or "" for each in sorted(own, key=attrgetter("name"))},
            secrets=frozenset(each.name for each in secrets),
            withheld=frozenset(each.name for each in secrets if each.value is None),
        )
    return found
