"""IncrementalAlterConfigs (44), versions 0 and 1: set, delete, append to or subtract from single configs of topics
and groups.

The changes to one of them are made together or not at all. Other resources are refused as INVALID_REQUEST.
"""

from typing import TYPE_CHECKING

from headwater.broker.config_resources import ResourceType, changed, refuse_alteration
from headwater.broker.dispatch import Api, RequestContext
from headwater.broker.topic_alterations import alter_each
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=44, name="IncrementalAlterConfigs", min_version=0, max_version=1)


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    async def alter(resource: Message) -> None:
        changes = [(config.name, config.config_operation, config.value) for config in resource.configs]
        if resource.resource_type == ResourceType.GROUP:
            await broker.group_configs.alter(resource.resource_name, changes, validate_only=request.validate_only)
            return
        if resource.resource_type != ResourceType.TOPIC:
            raise refuse_alteration(resource.resource_type)
        topic = broker.catalog.topic(resource.resource_name)
        await broker.catalog.alter_config(
            topic,
            lambda overrides: changed(overrides, changes, broker.config.topic_defaults),
            validate_only=request.validate_only,
        )

    return Message(responses=await alter_each(request.resources, alter))
