"""Who is at the other end of one connection: from its first request to a principal, and again before that expires.

    NEW ──ApiVersions──> VERSIONS_DONE ──SaslHandshake──> AUTHENTICATE ──SaslAuthenticate or raw tokens──> READY
                                       READY ──SaslHandshake──> REAUTH ──SaslAuthenticate──> READY
                                       READY ──time──> EXPIRED ──SaslHandshake──> REAUTH

Any error in AUTHENTICATE or REAUTH leads to FAILED, where nothing is served. What a state does not expect closes the
connection: a request before the login is never served by accident.

- For each frame the shell calls `arrived` first; or `raw_token`, if `expects_raw_token`: such a frame has no header.
- Until `is_ready` the shell starts one request at a time, and nothing behind it. After CheckPassword or VerifyToken it
  comes back with the outcome; what arrives before that closes the connection.
- An authentication again keeps mechanism and principal, and begins at least a second after the one before it.
- Deadlines are monotonic time; the expiry of a token is wall-clock time.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from headwater.model.errors import ErrorCode
from headwater.model.moment import Moment
from headwater.security.oauthbearer import MAX_MESSAGE_BYTES, BearerLogin, MalformedBearer, parse_bearer
from headwater.security.plain import MalformedPlain, parse_plain
from headwater.security.principal import Principal
from headwater.security.sasl_decisions import (
    LET_THROUGH,
    Challenge,
    CheckPassword,
    Close,
    EndDecision,
    Failed,
    HandshakeAnswer,
    IllegalState,
    LetThrough,
    Succeeded,
    TokenDecision,
    VerifyToken,
)
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.scram import (
    HASHING,
    CredentialLookup,
    InventedCredentials,
    ScramCredential,
    ScramHashing,
    ScramMechanism,
)
from headwater.security.scram_messages import MalformedScram, nonce_text
from headwater.security.scram_server import InvalidProof, ScramServer
from headwater.security.token_identity import TokenIdentity

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36

MAX_VERSION_QUESTIONS: Final = 2
"""ApiVersions that are served before the login; Kafka serves one."""
MAX_LOGIN_REQUESTS: Final = 8
"""Requests and raw tokens of one login."""
MIN_REAUTH_INTERVAL_MS: Final = 1000

_FRAMED_VERSION: Final = 1
"""Of SaslHandshake, from which on tokens come in SaslAuthenticate."""


class SaslState(Enum):
    NEW = auto()
    VERSIONS_DONE = auto()
    AUTHENTICATE = auto()
    READY = auto()
    REAUTH = auto()
    EXPIRED = auto()
    FAILED = auto()


_EXPECTED: Final = {
    SaslState.NEW: (API_VERSIONS, SASL_HANDSHAKE),
    SaslState.VERSIONS_DONE: (API_VERSIONS, SASL_HANDSHAKE),
    SaslState.AUTHENTICATE: (SASL_AUTHENTICATE,),
    SaslState.REAUTH: (SASL_AUTHENTICATE,),
    SaslState.EXPIRED: (SASL_HANDSHAKE,),
    SaslState.FAILED: (),
}
_EXPECTED_SASL: Final = Close(
    "expected_sasl",
    "The listener asks for SASL: set security.protocol to SASL_SSL or SASL_PLAINTEXT, as the listener has it.",
)
_UNEXPECTED: Final = {
    SaslState.NEW: _EXPECTED_SASL,
    SaslState.VERSIONS_DONE: _EXPECTED_SASL,
    SaslState.AUTHENTICATE: Close("expected_sasl_token", "A login was under way, and another request came."),
    SaslState.REAUTH: Close("expected_sasl_token", "An authentication again was under way, and another request came."),
    SaslState.EXPIRED: Close("session_expired", "The client did not authenticate again before its session expired."),
    SaslState.FAILED: Close("authentication_failed", "The login had failed, and another request came."),
}
_TOO_MANY_REQUESTS: Final = Close("too_many_login_requests", f"A login takes at most {MAX_LOGIN_REQUESTS} requests.")
_OUTCOME_PENDING: Final = Close("request_behind_login", "A request came before the login was answered.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslRules:
    """What a listener asks for, and where credentials come from."""

    mechanisms: tuple[SaslMechanism, ...]
    look_up: CredentialLookup
    """None for users that are disabled, too."""
    invented: InventedCredentials
    reauth_ms: int = 0
    """The longest session; 0: no limit."""
    hashing: ScramHashing = HASHING


@dataclass(frozen=True, slots=True)
class _Login:
    """An authentication under way."""

    mechanism: SaslMechanism
    is_raw: bool
    scram: ScramServer | None


@dataclass(frozen=True, slots=True)
class _PasswordCheck:
    user: str
    credential: ScramCredential


class SaslServer:
    def __init__(self, rules: SaslRules) -> None:
        self._rules = rules
        self._state = SaslState.NEW
        self._version_questions = 0
        self._requests = 0
        self._login: _Login | None = None
        self._pending: _PasswordCheck | BearerLogin | None = None
        self._began_at_ms = 0
        self._expires_at_ms: int | None = None
        self.principal: Principal | None = None
        """Of the last login that succeeded."""
        self.mechanism: SaslMechanism | None = None

    def state(self, now: Moment) -> SaslState:
        expires_at_ms = self._expires_at_ms
        if self._state is SaslState.READY and expires_at_ms is not None and now.monotonic_ms > expires_at_ms:
            return SaslState.EXPIRED
        return self._state

    @property
    def is_ready(self) -> bool:
        """Whether requests may overlap."""
        return self._state is SaslState.READY

    @property
    def expires_at_ms(self) -> int | None:
        """In monotonic time, when the session of the last login ends."""
        return self._expires_at_ms

    @property
    def expects_raw_token(self) -> bool:
        """Whether the next frame is a token without a header."""
        return self._state is SaslState.AUTHENTICATE and self._login is not None and self._login.is_raw

    # What arrives

    def arrived(self, api_key: int, now: Moment, is_served: bool = True) -> LetThrough | Close:
        """A request. `is_served`: the broker serves its version."""
        state = self.state(now)
        if state is SaslState.READY:
            return LET_THROUGH
        refusal = self._refusal(state, api_key, now)
        if refusal is not None:
            return refusal
        if api_key == API_VERSIONS and is_served:
            self._version_questions += 1
            if self._version_questions > MAX_VERSION_QUESTIONS:
                return self._fail(_EXPECTED_SASL)
            self._state = SaslState.VERSIONS_DONE
        elif api_key != API_VERSIONS and not is_served:
            return self._fail(_UNEXPECTED[state])
        return LET_THROUGH

    def _refusal(self, state: SaslState, api_key: int, now: Moment) -> Close | None:
        if self._pending is not None:
            return self._fail(_OUTCOME_PENDING)
        if api_key not in _EXPECTED[state] or self.expects_raw_token:
            return self._fail(_UNEXPECTED[state])
        if state is SaslState.EXPIRED:
            return None if self._may_begin_again(now) else self._fail(_UNEXPECTED[state])
        self._requests += 1
        return self._fail(_TOO_MANY_REQUESTS) if self._requests > MAX_LOGIN_REQUESTS else None

    def handshake(self, version: int, mechanism: str, nonce: bytes, now: Moment) -> HandshakeAnswer | Close:
        """A SaslHandshake that was let through. `nonce`: random bytes, at least 16, new for each handshake."""
        state = self.state(now)
        is_first = state in (SaslState.NEW, SaslState.VERSIONS_DONE)
        if not is_first and state not in (SaslState.READY, SaslState.EXPIRED):
            return self._fail(_UNEXPECTED[state])
        if not is_first and (version < _FRAMED_VERSION or not self._may_begin_again(now)):
            return HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE)
        rules = self._rules
        if mechanism not in rules.mechanisms:
            self._state = SaslState.FAILED
            return HandshakeAnswer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, rules.mechanisms, closes=True)
        self._login = self._begin(SaslMechanism(mechanism), version < _FRAMED_VERSION, nonce)
        self._state = SaslState.AUTHENTICATE if is_first else SaslState.REAUTH
        self._began_at_ms = now.monotonic_ms
        if not is_first:
            self._requests = 0
        return HandshakeAnswer(ErrorCode.NONE, rules.mechanisms)

    def authenticate(self, token: bytes, now: Moment) -> TokenDecision:
        """The token of a SaslAuthenticate that was let through."""
        state = self.state(now)
        if state is SaslState.READY:
            return IllegalState()
        login = self._login
        if state not in (SaslState.AUTHENTICATE, SaslState.REAUTH) or login is None or login.is_raw:
            return self._fail(_UNEXPECTED[state])
        if self._pending is not None:
            return self._fail(_OUTCOME_PENDING)
        return self._take(login, token, now)

    def raw_token(self, token: bytes, now: Moment) -> TokenDecision:
        """A frame without a header, which a client sends after a handshake of version 0."""
        if not self.expects_raw_token or self._login is None:
            return self._fail(_UNEXPECTED.get(self.state(now), _EXPECTED_SASL))
        if self._pending is not None:
            return self._fail(_OUTCOME_PENDING)
        self._requests += 1
        if self._requests > MAX_LOGIN_REQUESTS:
            return self._fail(_TOO_MANY_REQUESTS)
        return self._take(self._login, token, now)

    # What the shell found out

    def password_checked(self, is_right: bool, now: Moment) -> EndDecision:
        """The outcome of CheckPassword. The user may have been deleted meanwhile, or have got another password."""
        check, self._pending = self._pending, None
        if not isinstance(check, _PasswordCheck):
            return self._failed("no_password_under_way")
        current, is_known = self._password_record(check.user)
        if not (is_right and is_known) or current.replaces(check.credential):
            return self._failed("invalid_credentials", claimed_user=check.user)
        return self._succeeded(check.user, b"", None, now)

    def token_verified(self, identity: TokenIdentity, now: Moment) -> EndDecision:
        bearer, self._pending = self._pending, None
        if not isinstance(bearer, BearerLogin):
            return self._failed("no_token_under_way")
        if bearer.authzid not in ("", identity.name):
            return self._failed("other_authorization_identity", claimed_user=identity.name)
        return self._succeeded(identity.name, b"", identity.expires_at_s * 1000, now)

    def token_refused(self, reason: str) -> Failed:
        """`reason` is for the audit and for the client, which has the token: it has nothing to guess."""
        self._pending = None
        return self._failed(f"invalid_token: {reason}", f"The token is refused: {reason}")

    # The mechanisms

    def _begin(self, mechanism: SaslMechanism, is_raw: bool, nonce: bytes) -> _Login:
        rules = self._rules
        if mechanism.name not in ScramMechanism.__members__:
            return _Login(mechanism, is_raw, None)
        scram, own = ScramMechanism[mechanism.name], nonce_text(nonce)
        return _Login(mechanism, is_raw, ScramServer(scram, rules.look_up, rules.invented, own, rules.hashing))

    def _take(self, login: _Login, token: bytes, now: Moment) -> TokenDecision:
        if self._state is SaslState.REAUTH and login.mechanism is not self.mechanism:
            return self._failed("other_mechanism", "A connection keeps its SASL mechanism when it authenticates again.")
        if len(token) > MAX_MESSAGE_BYTES:
            return self._failed("malformed: the token is too long")
        try:
            if login.scram is not None:
                return self._take_scram(login.scram, login.is_raw, token, now)
            if login.mechanism is SaslMechanism.PLAIN:
                return self._take_plain(token)
            self._pending = bearer = parse_bearer(token)
            return VerifyToken(bearer.token)
        except InvalidProof:
            return self._failed("invalid_credentials")
        except (MalformedScram, MalformedPlain, MalformedBearer) as error:
            return self._failed(f"malformed: {error}")

    def _take_scram(self, scram: ScramServer, is_raw: bool, token: bytes, now: Moment) -> TokenDecision:
        answer = scram.answer(token)
        return Challenge(answer, is_raw) if scram.user is None else self._succeeded(scram.user, answer, None, now)

    def _take_plain(self, token: bytes) -> CheckPassword:
        plain = parse_plain(token)
        credential, _ = self._password_record(plain.user)
        self._pending = _PasswordCheck(plain.user, credential)
        return CheckPassword(plain.user, plain.password, credential, self._rules.hashing)

    def _password_record(self, user: str) -> tuple[ScramCredential, bool]:
        """The record that a password is checked by, and whether it is the user's. The work is the same for both."""
        rules = self._rules
        invented = rules.invented.of(user, ScramMechanism.SCRAM_SHA_256, rules.hashing)
        shorter, longer = [rules.look_up(user, each) for each in ScramMechanism]
        known = shorter or longer
        return (invented, False) if known is None else (known, True)

    # How a login ends

    def _may_begin_again(self, now: Moment) -> bool:
        return self._expires_at_ms is not None and now.monotonic_ms - self._began_at_ms >= MIN_REAUTH_INTERVAL_MS

    def _succeeded(self, user: str, token: bytes, expires_at_ms: int | None, now: Moment) -> EndDecision:
        login, principal = self._login, Principal.user(user)
        assert login is not None, "a login that succeeds was begun"
        if self._state is SaslState.REAUTH and principal != self.principal:
            message = "A connection keeps its principal when it authenticates again."
            return self._failed("other_principal", message, claimed_user=user)
        limits = [self._rules.reauth_ms] if self._rules.reauth_ms else []
        if expires_at_ms is not None:
            limits.append(expires_at_ms - now.wall_ms)
        if limits and min(limits) <= 0:
            return self._failed("expired_credential", claimed_user=user)
        self._expires_at_ms = now.monotonic_ms + min(limits) if limits else None
        self._state, self._login = SaslState.READY, None
        self.principal, self.mechanism = principal, login.mechanism
        return Succeeded(principal, token, min(limits, default=0), login.is_raw)

    def _failed(self, reason: str, message: str | None = None, *, claimed_user: str = "") -> Failed:
        login, self._login = self._login, None
        self._state = SaslState.FAILED
        name = "none" if login is None else login.mechanism
        said = (
            message
            or f"Authentication failed during authentication due to invalid credentials with SASL mechanism {name}"
        )
        if login is None:
            return Failed(said, reason, False)
        if login.scram is not None:
            claimed_user = claimed_user or login.scram.claimed_user
        return Failed(said, reason, login.is_raw, login.mechanism, claimed_user)

    def _fail(self, close: Close) -> Close:
        self._state, self._pending, self._login = SaslState.FAILED, None, None
        return close
