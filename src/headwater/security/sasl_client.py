"""How a client of ours logs in: one mechanism, the configured one, whatever the server offers.

    client = SaslClient(mechanism, PasswordLogin(user, password))
    client.check_offer(error_code, mechanisms)         the answer to SaslHandshake
    tokens = client.tokens(nonce)                      next(tokens) is to be sent, tokens.send(answer) follows

The login has succeeded when the generator ends, and not before, whatever the server says.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.model.errors import ErrorCode
from headwater.security.login_errors import LoginRefused, MechanismNotOffered, UntrustedServer
from headwater.security.oauthbearer import AFTER_FAILURE, bearer_message
from headwater.security.plain import plain_message
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.scram import HASHING, ScramHashing, ScramMechanism
from headwater.security.scram_client import scram_login
from headwater.security.scram_messages import nonce_text

EARLIEST_RENEWAL: Final = 0.85
"""Of a session's lifetime, as in Java's client; all have renewed at 95 %."""
LATEST_RENEWAL: Final = 0.95


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenLogin:
    token: Callable[[], str] = field(repr=False)
    """Called at each login, so that each has a token that is still valid."""


class SaslClient:
    def __init__(
        self, mechanism: SaslMechanism, login: PasswordLogin | TokenLogin, hashing: ScramHashing = HASHING
    ) -> None:
        is_bearer = mechanism is SaslMechanism.OAUTHBEARER
        assert is_bearer == isinstance(login, TokenLogin), "OAUTHBEARER takes a token, the others a password"
        self.mechanism = mechanism
        self._login = login
        self._hashing = hashing

    def check_offer(self, error_code: int, mechanisms: Sequence[str]) -> None:
        """What the server answered to SaslHandshake. Raises MechanismNotOffered, LoginRefused."""
        if error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginRefused("The listener takes no login: its security.protocol is PLAINTEXT or SSL.")
        if error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
            raise LoginRefused(f"The server refuses SASL with error {error_code}.")
        if error_code != ErrorCode.NONE or self.mechanism not in mechanisms:
            offer = ", ".join(repr(each[:100]) for each in mechanisms[:10]) or "none"
            raise MechanismNotOffered(
                f"The server does not offer {self.mechanism}; it offers {offer}. Set the mechanism to one of these only"
                " if you trust it as much."
            )

    def tokens(self, nonce: bytes) -> Generator[bytes, bytes, None]:
        """`nonce`: random bytes, at least 16, new for each login. Raises LoginFailed; and MalformedPlain or
        MalformedBearer, if the login cannot be written."""
        login = self._login
        if isinstance(login, TokenLogin):
            yield from _bearer_login(login.token())
        elif self.mechanism is SaslMechanism.PLAIN:
            yield from _plain_login(login.user, login.password)
        else:
            scram = ScramMechanism[self.mechanism.name]
            yield from scram_login(scram, login.user, login.password, nonce_text(nonce), self._hashing)


def renewal_ms(session_lifetime_ms: int, chance: float) -> int | None:
    """How long after a login to log in again; `chance` is from 0 to 1, so that clients do not come all at once."""
    if session_lifetime_ms <= 0:
        return None
    return int(session_lifetime_ms * (EARLIEST_RENEWAL + (LATEST_RENEWAL - EARLIEST_RENEWAL) * chance))


def _plain_login(user: str, password: str) -> Generator[bytes, bytes, None]:
    if (yield plain_message(user, password)):
        raise UntrustedServer("The server answers PLAIN with a token, which has none.")


def _bearer_login(token: str) -> Generator[bytes, bytes, None]:
    """A server of Kafka's kind answers a token that it refuses with JSON, and says so only to what follows."""
    refusal = yield bearer_message(token)
    if refusal:
        yield AFTER_FAILURE
        raise LoginRefused(f"The server refuses the token: {refusal[:200]!r}.")
