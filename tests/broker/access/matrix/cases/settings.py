"""Requests for settings: of topics, groups and brokers."""

from collections.abc import Awaitable, Callable

from headwater.security.access_codes import ResourceType
from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.case import Case, Fields
from tests.broker.access.matrix.scene import Scene
from tests.support.messages import nested

TOPIC, BROKER, GROUP = 2, 4, 32
"""Kafka's numbers for resources that have settings."""
SET = 0
KINDS = {ResourceType.TOPIC: "of a topic", ResourceType.GROUP: "of a group", ResourceType.CLUSTER: "of a broker"}


async def _resources(scene: Scene, resource_type: ResourceType) -> tuple[int, list[str], str, str]:
    """The number, the names, a setting and a value for it."""
    if resource_type is ResourceType.TOPIC:
        return TOPIC, [each.name for each in await scene.topics()], "retention.ms", "86400000"
    if resource_type is ResourceType.GROUP:
        return GROUP, scene.groups(), "share.auto.offset.reset", "earliest"
    return BROKER, [str(scene.world.node_id)], "max.connections", "10000"


def described(resource_type: ResourceType) -> Callable[[Scene, int], Awaitable[Fields]]:
    async def build(scene: Scene, version: int) -> Fields:
        number, names, _, _ = await _resources(scene, resource_type)
        resources = [nested(resource_type=number, resource_name=name, configuration_keys=None) for name in names]
        return {"resources": resources, "include_synonyms": True, "include_documentation": False}

    return build


def replaced(resource_type: ResourceType) -> Callable[[Scene, int], Awaitable[Fields]]:
    async def build(scene: Scene, version: int) -> Fields:
        number, names, setting, value = await _resources(scene, resource_type)
        configs = [nested(name=setting, value=value)]
        resources = [nested(resource_type=number, resource_name=name, configs=configs) for name in names]
        return {"resources": resources, "validate_only": False}

    return build


def altered(resource_type: ResourceType) -> Callable[[Scene, int], Awaitable[Fields]]:
    async def build(scene: Scene, version: int) -> Fields:
        number, names, setting, value = await _resources(scene, resource_type)
        configs = [nested(name=setting, config_operation=SET, value=value)]
        resources = [nested(resource_type=number, resource_name=name, configs=configs) for name in names]
        return {"resources": resources, "validate_only": False}

    return build


async def resources_listed(scene: Scene, version: int) -> Fields:
    await scene.topics()
    return {"resource_types": [TOPIC]}


def _of_kind(api_key: ApiKey, shape: Callable[[ResourceType], Callable[[Scene, int], Awaitable[Fields]]]) -> list[Case]:
    return [
        Case(
            api_key=api_key, title=title, build=shape(kind),
            picks=lambda check, kind=kind: check.resource_type is kind,  # type: ignore[misc]
        )
        for kind, title in KINDS.items()
    ]  # fmt: skip


CASES = (
    *_of_kind(ApiKey.DESCRIBE_CONFIGS, described),
    *_of_kind(ApiKey.ALTER_CONFIGS, replaced),
    *_of_kind(ApiKey.INCREMENTAL_ALTER_CONFIGS, altered),
    Case(api_key=ApiKey.LIST_CONFIG_RESOURCES, title="", build=resources_listed),
)
