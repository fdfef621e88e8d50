"""Requests and responses of one connection as bytes: numbered, in versions that both sides speak. There is no socket
here; the blocking and the asyncio connection move the bytes.

Before the first request there is a handshake, in which the broker says what it serves and the client who it is: a
generator that both connections run.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic

from headwater.client.errors import NotLoggedIn
from headwater.client.versions import BrokerVersions
from headwater.model.errors import error_name
from headwater.security.login_errors import LoginFailed, LoginRefused
from headwater.security.oauthbearer import MalformedBearer
from headwater.security.plain import MalformedPlain
from headwater.security.sasl_client import SaslClient
from headwater.wire.message import Records, Request, ResponseT
from headwater.wire.requests import read_response, write_request
from headwater.wire.typed.api_versions import ApiVersionsRequest
from headwater.wire.typed.sasl_authenticate import SaslAuthenticateRequest
from headwater.wire.typed.sasl_handshake import SaslHandshakeRequest

MAX_CORRELATION_ID = 2**31
FIRST_QUESTION_VERSION = 0
"""Of ApiVersions, which every broker serves in this version."""


@dataclass(frozen=True, slots=True)
class Sent(Generic[ResponseT]):
    """A request that is under way."""

    request_class: type[Request[ResponseT]]
    version: int
    correlation_id: int

    def read(self, frame: Records) -> ResponseT:
        """The response to it. Raises MalformedResponse."""
        return read_response(frame, self.request_class, self.version, self.correlation_id)


class Exchange:
    def __init__(self, client_id: str, login: SaslClient | None = None, nonce: bytes = b"") -> None:
        """`nonce`: random bytes for the login, at least 16, new for each connection."""
        self._client_id = client_id
        self._login = login
        self._nonce = nonce
        self._versions: BrokerVersions | None = None
        self._next_id = 0

    def handshake(self) -> Generator[bytearray, Records, None]:
        """Yields what is to be sent, and takes the frame that answers it. Raises NotServed, MalformedResponse and
        NotLoggedIn. With a login a step may take as long as a password is worth guessing, or a token takes to get."""
        sent, data = self._number(ApiVersionsRequest(), FIRST_QUESTION_VERSION)
        self._versions = BrokerVersions(sent.read((yield data)))
        if self._login is not None:
            try:
                yield from self._log_in(self._login)
            except (LoginFailed, MalformedPlain, MalformedBearer) as error:
                raise NotLoggedIn(str(error)) from error

    def _log_in(self, login: SaslClient) -> Generator[bytearray, Records, None]:
        begun, data = self.send(SaslHandshakeRequest(mechanism=login.mechanism.value))
        offer = begun.read((yield data))
        login.check_offer(offer.error_code, offer.mechanisms)
        tokens = login.tokens(self._nonce)
        token = next(tokens)
        while True:
            sent, data = self.send(SaslAuthenticateRequest(auth_bytes=token))
            answer = sent.read((yield data))
            if answer.error_code:
                raise LoginRefused(answer.error_message or error_name(answer.error_code))
            try:
                token = tokens.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def version(self, api_key: int, at_most: int | None = None) -> int:
        """The newest version that both sides speak. Raises NotServed."""
        assert self._versions is not None, "the handshake comes first"
        return self._versions.newest(api_key, at_most)

    def send(self, request: Request[ResponseT], at_most: int | None = None) -> tuple[Sent[ResponseT], bytearray]:
        """The bytes of a request, its length first. `at_most` is the newest version that says what is meant."""
        return self._number(request, self.version(request.API_KEY, at_most))

    def _number(self, request: Request[ResponseT], version: int) -> tuple[Sent[ResponseT], bytearray]:
        number = self._next_id
        self._next_id = (number + 1) % MAX_CORRELATION_ID
        return Sent(type(request), version, number), write_request(request, version, number, self._client_id)
