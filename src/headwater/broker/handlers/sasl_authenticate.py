"""SaslAuthenticate (36): a token of the mechanism that was agreed on. Versions 0 to 2; from 1 on the response says how
long the session lasts. Only the last one does: librdkafka starts a timer by any other.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.SASL_AUTHENTICATE,
    name="SaslAuthenticate",
    access=Access.open("a client logs in"),
    min_version=0,
    max_version=2,
)


async def handle(
    broker: "Broker", request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    login = context.login
    if login is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="This listener does not ask for SASL."
        )
    return await login.authenticate(bytes(request.auth_bytes))
