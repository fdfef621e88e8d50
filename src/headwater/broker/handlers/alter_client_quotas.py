"""AlterClientQuotas (49): set and remove limits of users, client ids and addresses. Versions 0 and 1 (KIP-546).

Each entity is altered as a whole or not at all, and may be named once in a request. Changes are in force on this node
when the response leaves, and on others within moments.
"""

from collections import Counter
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.security.quota_entities import QuotaEntity
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    ResponseEntryData,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.ALTER_CLIENT_QUOTAS,
    name="AlterClientQuotas",
    access=Access.by_handler(on_cluster(Operation.ALTER_CONFIGS, refused_at="entries[].error_code")),
    min_version=0,
    max_version=1,
)


async def handle(
    broker: "Broker", request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    try:
        context.access.require(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    except RequestError as error:
        return AlterClientQuotasResponse(entries=[_result(entry, error) for entry in request.entries])
    entities = [_entity(entry) for entry in request.entries]
    times = Counter(each for each in entities if isinstance(each, QuotaEntity))
    results = []
    for entry, entity in zip(request.entries, entities, strict=True):
        try:
            if isinstance(entity, RequestError):
                raise entity
            if times[entity] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"The quotas of {entity} are altered twice.")
            alterations = [(each.key, None if each.remove else each.value) for each in entry.ops]
            await broker.quotas.alter(entity, alterations, validate_only=request.validate_only)
        except RequestError as error:
            results.append(_result(entry, error))
        else:
            results.append(_result(entry))
    return AlterClientQuotasResponse(entries=results)


def _entity(entry: EntryData) -> QuotaEntity | RequestError:
    try:
        return QuotaEntity.of((each.entity_type, each.entity_name) for each in entry.entity)
    except RequestError as error:
        return error


def _result(entry: EntryData, error: RequestError | None = None) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=error.code if error is not None else ErrorCode.NONE,
        error_message=error.message if error is not None else None,
        entity=entry.entity,
    )
