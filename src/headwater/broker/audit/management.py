"""What requests of administrators have changed, by API: from the request and its response, of what succeeded.

An API that changes something for administrators is in MANAGED; a test has the table of all others, so that none is
forgotten. Names of settings are told, values are not: a value may be a secret, or have one in it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headwater.broker.settings.config_resources import ConfigResourceType
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl_words import operation_word, type_word
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey

TOPIC, GROUP, CLUSTER = (type_word(each) for each in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER))
USER: Final = type_word(ResourceType.USER)
_ALTERATIONS: Final = ("set", "delete", "append", "subtract")
"""Kafka's numbers for what is done to a setting."""
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedChange:
    """One thing that was changed."""

    operation: str
    resource_type: str
    name: str
    pattern: str = ""
    changes: tuple[str, ...] = ()


Changes: TypeAlias = Callable[[Any, Any], Iterable[ManagedChange]]
"""Of a request and its response."""


def _created_topics(request: Any, response: Any) -> Iterator[ManagedChange]:
    asked = {topic.name: topic for topic in request.topics}
    for result in _succeeded(response.topics) if not request.validate_only else ():
        configs = tuple(f"set {config.name}" for config in asked[result.name].configs)
        yield ManagedChange(
            operation="create", resource_type=TOPIC, name=result.name,
            changes=(f"partitions {result.num_partitions}", f"replicas {result.replication_factor}", *configs),
        )  # fmt: skip


def _deleted_topics(request: Any, response: Any) -> Iterator[ManagedChange]:
    for result in _succeeded(response.responses):
        yield ManagedChange(operation="delete", resource_type=TOPIC, name=result.name or str(result.topic_id))


def _created_partitions(request: Any, response: Any) -> Iterator[ManagedChange]:
    counts = {topic.name: topic.count for topic in request.topics}
    for result in _succeeded(response.results) if not request.validate_only else ():
        yield ManagedChange(
            operation="create-partitions", resource_type=TOPIC, name=result.name,
            changes=(f"partitions {counts[result.name]}",),
        )  # fmt: skip


def _deleted_records(request: Any, response: Any) -> Iterator[ManagedChange]:
    for topic in response.topics:
        changes = tuple(f"{each.partition_index} below {each.low_watermark}" for each in _succeeded(topic.partitions))
        if changes:
            yield ManagedChange(operation="delete-records", resource_type=TOPIC, name=topic.name, changes=changes)


def _altered_configs(request: Any, response: Any) -> Iterator[ManagedChange]:
    """Of both APIs: the older one replaces all settings, and names those that are set."""
    succeeded = {(each.resource_type, each.resource_name) for each in _succeeded(response.responses)}
    for resource in request.resources if not request.validate_only else ():
        if (resource.resource_type, resource.resource_name) in succeeded:
            yield ManagedChange(
                operation=operation_word(Operation.ALTER_CONFIGS),
                resource_type=_config_type(resource.resource_type),
                name=resource.resource_name,
                changes=tuple(f"{_alteration(each)} {each.name}" for each in resource.configs),
            )


def _created_acls(request: Any, response: Any) -> Iterator[ManagedChange]:
    for creation, result in zip(request.creations, response.results, strict=True):
        if result.error_code == 0:
            yield _binding("create-acl", creation, creation.resource_pattern_type)


def _deleted_acls(request: Any, response: Any) -> Iterator[ManagedChange]:
    for result in _succeeded(response.filter_results):
        for binding in _succeeded(result.matching_acls):
            yield _binding("delete-acl", binding, binding.pattern_type)


def _altered_users(request: Any, response: Any) -> Iterator[ManagedChange]:
    deleted: dict[str, list[str]] = {}
    for each in request.deletions:
        deleted.setdefault(each.name, []).append(f"delete {_MECHANISMS.get(each.mechanism, each.mechanism)}")
    for each in request.upsertions:
        deleted.setdefault(each.name, []).append(f"set {_MECHANISMS.get(each.mechanism, each.mechanism)}")
    for result in _succeeded(response.results):
        yield ManagedChange(
            operation="alter-user", resource_type=USER, name=result.user, changes=tuple(deleted.get(result.user, ()))
        )


def _altered_quotas(request: Any, response: Any) -> Iterator[ManagedChange]:
    operations = {_entity(entry.entity): entry.ops for entry in request.entries}
    for result in _succeeded(response.entries) if not request.validate_only else ():
        name = _entity(result.entity)
        changes = tuple(
            f"delete {each.key}" if each.remove else f"set {each.key}={each.value:g}"
            for each in operations.get(name, ())
        )
        yield ManagedChange(operation="alter-quota", resource_type="quota", name=name, changes=changes)


def _deleted_groups(request: Any, response: Any) -> Iterator[ManagedChange]:
    for result in _succeeded(response.results):
        yield ManagedChange(operation="delete", resource_type=GROUP, name=result.group_id)


def _deleted_offsets(request: Any, response: Any) -> Iterator[ManagedChange]:
    changes = _partitions((topic.name, topic.partitions) for topic in response.topics)
    if response.error_code == 0 and changes:
        yield ManagedChange(operation="delete-offsets", resource_type=GROUP, name=request.group_id, changes=changes)


def _altered_share_offsets(request: Any, response: Any) -> Iterator[ManagedChange]:
    changes = _partitions((topic.topic_name, topic.partitions) for topic in response.responses)
    if response.error_code == 0 and changes:
        yield ManagedChange(operation="alter-offsets", resource_type=GROUP, name=request.group_id, changes=changes)


def _deleted_share_offsets(request: Any, response: Any) -> Iterator[ManagedChange]:
    changes = tuple(topic.topic_name for topic in _succeeded(response.responses))
    if response.error_code == 0 and changes:
        yield ManagedChange(operation="delete-offsets", resource_type=GROUP, name=request.group_id, changes=changes)


def _committed_for_others(request: Any, response: Any) -> Iterator[ManagedChange]:
    """Offsets that are committed without being a member: an administrator moves the group."""
    if request.member_id or request.generation_id_or_member_epoch >= 0:
        return
    changes = _partitions((topic.name or str(topic.topic_id), topic.partitions) for topic in response.topics)
    if changes:
        yield ManagedChange(operation="alter-offsets", resource_type=GROUP, name=request.group_id, changes=changes)


def _reassigned(request: Any, response: Any) -> Iterator[ManagedChange]:
    failed = {
        (topic.name, each.partition_index)
        for topic in response.responses
        for each in topic.partitions
        if each.error_code != 0
    }
    for topic in request.topics if response.error_code == 0 else ():
        changes = tuple(
            f"{each.partition_index} {'cancelled' if each.replicas is None else f'to {[*each.replicas]}'}"
            for each in topic.partitions
            if (topic.name, each.partition_index) not in failed
        )
        if changes:
            yield ManagedChange(operation="reassign", resource_type=TOPIC, name=topic.name, changes=changes)


def _elected(request: Any, response: Any) -> Iterator[ManagedChange]:
    for topic in response.replica_election_results:
        changes = tuple(str(each.partition_id) for each in _succeeded(topic.partition_result))
        if changes:
            yield ManagedChange(operation="elect-leaders", resource_type=TOPIC, name=topic.topic, changes=changes)


def _ended_transactions(request: Any, response: Any) -> Iterator[ManagedChange]:
    commits = {marker.producer_id: marker.transaction_result for marker in request.markers}
    for marker in response.markers:
        word = "commit" if commits.get(marker.producer_id) else "abort"
        for topic in marker.topics:
            changes = tuple(f"{word} of producer {marker.producer_id} in {topic.name} {each.partition_index}"
                            for each in _succeeded(topic.partitions))  # fmt: skip
            if changes:
                yield ManagedChange(operation="end-transaction", resource_type=TOPIC, name=topic.name, changes=changes)


def _unregistered(request: Any, response: Any) -> Iterator[ManagedChange]:
    if response.error_code == 0:
        yield ManagedChange(
            operation="unregister-node", resource_type=CLUSTER, name=CLUSTER_NAME, changes=(str(request.broker_id),)
        )


MANAGED: Final[Mapping[int, Changes]] = {
    ApiKey.CREATE_TOPICS: _created_topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.CREATE_PARTITIONS: _created_partitions,
    ApiKey.DELETE_RECORDS: _deleted_records,
    ApiKey.ALTER_CONFIGS: _altered_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _altered_configs,
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _altered_users,
    ApiKey.ALTER_CLIENT_QUOTAS: _altered_quotas,
    ApiKey.DELETE_GROUPS: _deleted_groups,
    ApiKey.OFFSET_DELETE: _deleted_offsets,
    ApiKey.OFFSET_COMMIT: _committed_for_others,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _altered_share_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _deleted_share_offsets,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassigned,
    ApiKey.ELECT_LEADERS: _elected,
    ApiKey.WRITE_TXN_MARKERS: _ended_transactions,
    ApiKey.UNREGISTER_BROKER: _unregistered,
}


def _succeeded(results: Iterable[Any]) -> list[Any]:
    return [each for each in results if each.error_code == 0]


def _partitions(topics: Iterable[tuple[str, Iterable[Any]]]) -> tuple[str, ...]:
    return tuple(f"{name} {each.partition_index}" for name, partitions in topics for each in _succeeded(partitions))


def _alteration(config: Any) -> str:
    number = getattr(config, "config_operation", 0)
    return _ALTERATIONS[number] if 0 <= number < len(_ALTERATIONS) else str(number)


def _config_type(number: int) -> str:
    try:
        return ConfigResourceType(number).name.lower().replace("_", "-")
    except ValueError:
        return str(number)


def _binding(operation: str, binding: Any, pattern_type: int) -> ManagedChange:
    """Its codes were checked: it is one that exists, or existed."""
    return ManagedChange(
        operation=operation,
        resource_type=type_word(ResourceType(binding.resource_type)),
        name=binding.resource_name,
        pattern=PatternType(pattern_type).name.lower(),
        changes=(
            f"{Permission(binding.permission_type).name.lower()} {binding.principal} "
            f"{operation_word(Operation(binding.operation))} from {binding.host}",
        ),
    )


def _entity(parts: Iterable[Any]) -> str:
    """`user alice, client-id default`, in one order."""
    return ", ".join(
        sorted(
            f"{each.entity_type} {each.entity_name if each.entity_name is not None else 'default'}" for each in parts
        )
    )
