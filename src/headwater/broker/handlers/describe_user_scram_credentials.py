"""DescribeUserScramCredentials (50): which users there are, with mechanisms and iterations; never a salt or a key.
Version 0: a request without users asks for all of them (KIP-554)."""

from collections import Counter
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    name="DescribeUserScramCredentials",
    access=Access.first(on_cluster(Operation.DESCRIBE)),
    min_version=0,
    max_version=0,
)


def handle(
    broker: "Broker", request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    asked = Counter(user.name for user in request.users or ())
    names = asked or Counter(broker.users.names())
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[_describe(broker, name, times) for name, times in names.items()],
    )


def _describe(broker: "Broker", name: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return _refused(name, ErrorCode.DUPLICATE_RESOURCE, "Cannot describe SCRAM credentials for the same user twice")
    user = broker.users.find(name)
    if user is None:
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist")
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE,
        error_message=None,
        credential_infos=[
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism, credential in sorted(user.credentials.items())
        ],
    )


def _refused(name: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message, credential_infos=())
