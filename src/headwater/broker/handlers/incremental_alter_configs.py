"""IncrementalAlterConfigs (44), versions 0 and 1: set, delete, append to or subtract from single configs of topics and
groups, of this broker, of all brokers (the broker without a name) and of this broker's loggers.

The changes to one of them are made together or not at all. Other resources are refused as INVALID_REQUEST.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.config_access import config_refusal
from headwater.broker.access.declared_access import ALTERED_CONFIGS
from headwater.broker.access.group_setting_access import check_of_group
from headwater.broker.api import Api, RequestContext
from headwater.broker.settings.config_resources import ConfigResourceType, changed, refuse_kind
from headwater.broker.settings.topic_alterations import alter_each
from headwater.model.errors import RequestError
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    name="IncrementalAlterConfigs",
    access=ALTERED_CONFIGS,
    min_version=0,
    max_version=1,
)


async def handle(
    broker: "Broker", request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    def refusal(resource_type: int, name: str) -> RequestError | None:
        return config_refusal(context.access, Operation.ALTER_CONFIGS, resource_type, name)

    async def alter(resource: AlterConfigsResource) -> None:
        name, validate_only = resource.resource_name, request.validate_only
        changes = [(config.name, config.config_operation, config.value) for config in resource.configs]
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                topic, defaults = broker.catalog.topic(name), broker.settings.topic_defaults
                await broker.catalog.changes.alter_config(
                    topic, lambda overrides: changed(overrides, changes, defaults), validate_only=validate_only
                )
            case ConfigResourceType.GROUP:
                check = check_of_group(context.access, broker.group_configs, name)
                await broker.group_configs.alter(name, changes, validate_only=validate_only, check=check)
            case ConfigResourceType.BROKER:
                await broker.settings.alter(name, changes, validate_only=validate_only)
            case ConfigResourceType.BROKER_LOGGER:
                broker.settings.check_number(name)
                broker.loggers.alter(changes, validate_only=validate_only)
            case _:
                raise refuse_kind(resource.resource_type)

    return IncrementalAlterConfigsResponse(
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
