"""ListConfigResources (74): what DescribeConfigs can be asked about. Version 0 lists client metrics alone, of which
there are none; version 1 takes the types to list, and none means all.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.broker.settings.config_resources import ConfigResourceType
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.LIST_CONFIG_RESOURCES,
    name="ListConfigResources",
    access=Access.first(on_cluster(Operation.DESCRIBE_CONFIGS)),
    min_version=0,
    max_version=1,
)


def handle(
    broker: "Broker", request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    if context.api_version == 0:
        return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=())
    wanted = set(request.resource_types) or set(ConfigResourceType)
    if not wanted <= set(ConfigResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=())
    brokers = [str(node.node_id) for node in broker.cluster_nodes.brokers()]
    names = {
        ConfigResourceType.TOPIC: sorted(topic.name for topic in broker.catalog),
        ConfigResourceType.BROKER: brokers,
        ConfigResourceType.BROKER_LOGGER: brokers,
        ConfigResourceType.GROUP: broker.group_configs.names(),
    }
    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind, kind_names in names.items()
        if kind in wanted
        for name in kind_names
    ]
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=found)
