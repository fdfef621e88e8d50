"""The server's side of one SCRAM login: two messages in, two out, and no derivation from a password.

A user without a credential is answered as any other, from an invented one, with the same work, and fails at the proof.
The credential is looked up again for the proof, so that a user who was deleted or got a new password meanwhile does not
get in by the old one. The first error ends the exchange.
"""

from base64 import b64encode
from dataclasses import dataclass

from headwater.security.scram import (
    HASHING,
    CredentialLookup,
    InventedCredentials,
    ScramCredential,
    ScramHashing,
    ScramMechanism,
)
from headwater.security.scram_messages import (
    ClientFinal,
    ClientFirst,
    MalformedScram,
    ServerFirst,
    encoded_head,
    exchange_text,
)


class InvalidProof(ValueError):
    """The client does not know the password, or there is no such user."""


@dataclass(frozen=True, slots=True)
class _Begun:
    client: ClientFirst
    server: ServerFirst


class ScramServer:
    def __init__(
        self,
        mechanism: ScramMechanism,
        look_up: CredentialLookup,
        invented: InventedCredentials,
        nonce: str,
        hashing: ScramHashing = HASHING,
    ) -> None:
        """`nonce`: random, printable, and for this exchange alone."""
        self._mechanism = mechanism
        self._look_up = look_up
        self._invented = invented
        self._nonce = nonce
        self._hashing = hashing
        self._begun: _Begun | None = None
        self._has_ended = False
        self.user: str | None = None
        """The user that has proved to know the password."""

    def answer(self, message: bytes) -> bytes:
        """The server's next message. Raises MalformedScram, InvalidProof."""
        if self._has_ended:
            raise MalformedScram("The exchange has ended.")
        self._has_ended = True
        if self._begun is not None:
            return self._finish(self._begun, ClientFinal.parse(message))
        self._begun = self._begin(ClientFirst.parse(message))
        self._has_ended = False
        return self._begun.server.text.encode()

    @property
    def claimed_user(self) -> str:
        """Who the client says it is; `user` is who it has proven to be."""
        return self._begun.client.user if self._begun is not None else ""

    def _begin(self, client: ClientFirst) -> _Begun:
        credential, _ = self._credential_of(client.user)
        server = ServerFirst.make(client.nonce + self._nonce, credential.salt, credential.iterations)
        return _Begun(client, server)

    def _finish(self, begun: _Begun, final: ClientFinal) -> bytes:
        if final.head != encoded_head(begun.client.head):
            raise MalformedScram("The client did not send the head that it says it sent.")
        # librdkafka before 2.6.1 puts its own nonce in front once more. The whole nonce is compared in either form.
        if final.nonce not in (begun.server.nonce, begun.client.nonce + begun.server.nonce):
            raise MalformedScram("The nonce is not that of this exchange.")
        exchange = exchange_text(begun.client.bare, begun.server.text, final.unsigned)
        credential, is_known = self._credential_of(begun.client.user)
        proven = credential.proven_by(final.proof, exchange, self._hashing)
        signature = (proven or credential).signature(exchange, self._hashing)
        if proven is None or not is_known:
            raise InvalidProof("The user is not known, or the proof is not that of its password.")
        self.user = begun.client.user
        return b"v=" + b64encode(signature)

    def _credential_of(self, user: str) -> tuple[ScramCredential, bool]:
        """A credential, and whether it is the user's. The work is the same for both."""
        invented = self._invented.of(user, self._mechanism, self._hashing)
        known = self._look_up(user, self._mechanism)
        return (invented, False) if known is None else (known, True)
