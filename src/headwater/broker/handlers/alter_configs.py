"""AlterConfigs (33), versions 0 to 2: replace all configs of a topic, of a group, of this broker or of all brokers.
What the request does not name goes back to its default: clients use IncrementalAlterConfigs where they can.

Other resources are refused as INVALID_REQUEST; loggers among them, as in Kafka.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.config_access import config_refusal
from headwater.broker.access.declared_access import ALTERED_CONFIGS
from headwater.broker.access.group_setting_access import check_of_group
from headwater.broker.api import Api, RequestContext
from headwater.broker.settings.config_resources import AlterOperation, ConfigResourceType, refuse_kind, replaced
from headwater.broker.settings.topic_alterations import alter_each
from headwater.model.errors import RequestError
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=ApiKey.ALTER_CONFIGS, name="AlterConfigs", access=ALTERED_CONFIGS, min_version=0, max_version=2)


async def handle(broker: "Broker", request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    def refusal(resource_type: int, name: str) -> RequestError | None:
        return config_refusal(context.access, Operation.ALTER_CONFIGS, resource_type, name)

    async def alter(resource: AlterConfigsResource) -> None:
        name, validate_only = resource.resource_name, request.validate_only
        configs = [(config.name, AlterOperation.SET, config.value) for config in resource.configs]
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                topic = broker.catalog.topic(name)
                overrides = replaced((config.name, config.value) for config in resource.configs)
                await broker.catalog.changes.alter_config(topic, lambda _: overrides, validate_only=validate_only)
            case ConfigResourceType.GROUP:
                check = check_of_group(context.access, broker.group_configs, name)
                await broker.group_configs.alter(
                    name, configs, validate_only=validate_only, replaces_all=True, check=check
                )
            case ConfigResourceType.BROKER:
                await broker.settings.alter(name, configs, validate_only=validate_only, replaces_all=True)
            case _:
                raise refuse_kind(resource.resource_type)

    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=result.error_code,
                error_message=result.error_message,
                resource_type=result.resource_type,
                resource_name=result.resource_name,
            )
            for result in await alter_each(request.resources, refusal, alter)
        ]
    )
