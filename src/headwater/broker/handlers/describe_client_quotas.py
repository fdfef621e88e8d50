"""DescribeClientQuotas (48): the quotas of the entities that a filter means. Versions 0 and 1 (KIP-546)."""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation
from headwater.security.quota_entities import QuotaFilter
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_CLIENT_QUOTAS,
    name="DescribeClientQuotas",
    access=Access.first(on_cluster(Operation.DESCRIBE_CONFIGS)),
    min_version=0,
    max_version=1,
)


def handle(
    broker: "Broker", request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    components = ((each.entity_type, each.match_type, each.match) for each in request.components)
    try:
        quota_filter = QuotaFilter.of(components, request.strict)
    except RequestError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind.value, entity_name=name) for kind, name in entity.parts],
                values=[ValueData(key=key.value, value=value) for key, value in sorted(quotas.items())],
            )
            for entity, quotas in broker.quotas.table.describe(quota_filter)
        ],
    )
