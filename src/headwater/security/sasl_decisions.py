"""What the machine of a connection's login decides. The shell does it: answers, closes, computes, and comes back.

An answer with `is_raw` goes out as a bare token behind its length, as the handshake of version 0 has it. In that form a
failure cannot be said: the connection is closed instead.
"""

from dataclasses import dataclass, field
from typing import Final

from headwater.model.errors import ErrorCode
from headwater.security.principal import Principal
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.scram import HASHING, ScramCredential, ScramHashing


@dataclass(frozen=True, slots=True)
class LetThrough:
    """The request is served: by its handler, or by the machine, if it is one of SASL's."""


LET_THROUGH: Final = LetThrough()


@dataclass(frozen=True, slots=True)
class Close:
    """The connection is closed without an answer."""

    reason: str
    """The name of a fact, for the log and the metrics."""
    hint: str


@dataclass(frozen=True, slots=True)
class HandshakeAnswer:
    error: ErrorCode
    mechanisms: tuple[SaslMechanism, ...] = ()
    closes: bool = False


@dataclass(frozen=True, slots=True)
class IllegalState:
    """SaslAuthenticate is answered with ILLEGAL_SASL_STATE, and the connection stays as it is."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The session's lifetime in this answer is 0: librdkafka starts a timer by any other."""

    token: bytes
    is_raw: bool


@dataclass(frozen=True, slots=True)
class Succeeded:
    principal: Principal
    token: bytes
    session_lifetime_ms: int
    """0: without an end."""
    is_raw: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """SaslAuthenticate is answered with SASL_AUTHENTICATION_FAILED after a while, and the connection closed."""

    message: str
    """For the client: the same for an unknown user and a wrong password."""
    reason: str
    """For the audit."""
    is_raw: bool
    mechanism: SaslMechanism | None = field(default=None, compare=False)
    claimed_user: str = field(default="", compare=False)
    """Who the client said it is; empty if it did not get as far."""


@dataclass(frozen=True, slots=True)
class CheckPassword:
    """The shell calls `is_right` in a thread, and then the machine's `password_checked`."""

    user: str
    password: str = field(repr=False)
    credential: ScramCredential
    """Invented, if the user has none."""
    hashing: ScramHashing = field(default=HASHING, repr=False)

    def is_right(self) -> bool:
        """Takes milliseconds. Of an unknown user the answer does not matter; the machine knows."""
        return self.credential.is_of(self.password, self.hashing)


@dataclass(frozen=True, slots=True)
class VerifyToken:
    """The shell verifies the token, and then calls the machine's `token_verified` or `token_refused`."""

    token: str = field(repr=False)


TokenDecision = Challenge | Succeeded | Failed | CheckPassword | VerifyToken | IllegalState | Close
"""What a token leads to."""
EndDecision = Succeeded | Failed
