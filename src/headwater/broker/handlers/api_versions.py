"""ApiVersions (18): what this broker serves, taken from the handlers themselves.

The response's header is always version 0, and an unknown version is answered in version 0 (KIP-511), because the client
does not know yet what the broker speaks.
"""

import re
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access
from headwater.broker.api import Api, RequestContext, api_ranges
from headwater.model.errors import ErrorCode
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.API_VERSIONS,
    name="ApiVersions",
    access=Access.open("the first request of every client: it finds out what to speak"),
    min_version=0,
    max_version=4,
)
FEATURES = {"group.version": 1, "share.version": 1, "transaction.version": 2}
"""What clients and tools look for before they use it, with the level that is in force (KIP-584)."""
FEATURES_EPOCH = 0
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: "Broker", request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(name is not None and _SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.client_software = "/".join(names)
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=api_ranges(broker.dispatcher.apis),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=1, max_version=level) for name, level in FEATURES.items()
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ],
    )
