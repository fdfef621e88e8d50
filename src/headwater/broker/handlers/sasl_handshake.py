"""SaslHandshake (17): the mechanism by which a client will say who it is. Versions 0 and 1; after 0 the tokens come as
bare frames. Also the beginning of an authentication again, before a session ends (KIP-368).

Advertised on every listener, as in Kafka; without SASL there is nothing to begin.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.SASL_HANDSHAKE,
    name="SaslHandshake",
    access=Access.open("a client says how it logs in"),
    min_version=0,
    max_version=1,
)


def handle(broker: "Broker", request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    login = context.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return login.handshake(context.api_version, request.mechanism)
