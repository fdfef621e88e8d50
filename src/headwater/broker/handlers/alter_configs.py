"""AlterConfigs (33), versions 0 to 2: replace all configs of a topic or a group. What the request does not name
goes back to its default, which is why clients use IncrementalAlterConfigs where they can.

Other resources are refused as INVALID_REQUEST.
"""

from typing import TYPE_CHECKING

from headwater.broker.config_resources import AlterOperation, ResourceType, refuse_alteration, replaced
from headwater.broker.dispatch import Api, RequestContext
from headwater.broker.topic_alterations import alter_each
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=33, name="AlterConfigs", min_version=0, max_version=2)


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    async def alter(resource: Message) -> None:
        if resource.resource_type == ResourceType.GROUP:
            configs = [(config.name, AlterOperation.SET, config.value) for config in resource.configs]
            await broker.group_configs.alter(
                resource.resource_name, configs, validate_only=request.validate_only, replaces_all=True
            )
            return
        if resource.resource_type != ResourceType.TOPIC:
            raise refuse_alteration(resource.resource_type)
        topic = broker.catalog.topic(resource.resource_name)
        overrides = replaced((config.name, config.value) for config in resource.configs)
        await broker.catalog.alter_config(topic, lambda _: overrides, validate_only=request.validate_only)

    return Message(responses=await alter_each(request.resources, alter))
