"""AlterUserScramCredentials (51): make, change and remove credentials of users. Version 0 (KIP-554). Each user may
occur once in a request.

What it carries, the salted password, is as good as the password: without TLS it is taken from this machine alone.
"""

import ipaddress
from collections import Counter
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import refused
from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.security.scram import ScramCredential, ScramMechanism, UnacceptableCredential
from headwater.security.user_names import UnacceptableUserName, check_user_name
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    name="AlterUserScramCredentials",
    access=Access.by_handler(on_cluster(Operation.ALTER, refused_at="results[].error_code")),
    min_version=0,
    max_version=0,
)

Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    broker: "Broker", request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    changes: list[Change] = [*request.deletions, *request.upsertions]
    times = Counter(change.name for change in changes)
    by_name = {change.name: change for change in changes}
    refusal = refused(context.access, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    results = []
    for name, change in by_name.items():
        code, message = ErrorCode.NONE, None
        try:
            if refusal is not None:
                raise RequestError(refusal.code, refusal.message)
            _check_listener(context)
            if times[name] > 1:
                raise RequestError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            await _alter(broker, name, change)
        except RequestError as error:
            code, message = error.code, error.message
        results.append(AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message))
    return AlterUserScramCredentialsResponse(results=results)


def _check_listener(context: RequestContext) -> None:
    connection = context.connection
    if connection.listener.tls is None and not _is_here(connection.peer_host):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "This carries what a password is checked by, and the listener is not encrypted: use one with TLS.",
        )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _alter(broker: "Broker", name: str, change: Change) -> None:
    if not name:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError:
        raise RequestError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
    if isinstance(change, ScramCredentialDeletion):
        await broker.users.alter(name, [mechanism], {})
        return
    try:
        check_user_name(name, is_any_name=True)
        credential = ScramCredential.of_salted_password(
            mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
        )
    except (UnacceptableUserName, UnacceptableCredential) as error:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None
    await broker.users.alter(name, (), {mechanism: credential})
