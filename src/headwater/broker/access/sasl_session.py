"""The login of one connection: `security/sasl_server` decides, this carries it out.

A client that fails is answered after a moment, and then cut off. Passwords are checked in threads of their own, a
bounded number of them: a flood of logins delays other logins, and nothing else.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from headwater.broker.access.gateway_user import GATEWAY_USER, GatewayUser
from headwater.broker.access.login_outcome import LoginOutcome, RecordLogin, not_recorded
from headwater.broker.access.users import Users
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode
from headwater.model.moment import Moment, moment
from headwater.security.principal import Principal
from headwater.security.sasl_decisions import (
    Challenge,
    CheckPassword,
    Close,
    Failed,
    HandshakeAnswer,
    IllegalState,
    Succeeded,
    TokenDecision,
    VerifyToken,
)
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.sasl_server import SaslRules, SaslServer
from headwater.security.scram import InventedCredentials, ScramCredential, ScramMechanism
from headwater.security.token_identity import InvalidToken, TokenIdentity
from headwater.transport.connection import Answer, CloseConnection, Connection, Pieces
from headwater.wire.typed.sasl_authenticate import SaslAuthenticateResponse
from headwater.wire.typed.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:  # reads keys and signatures, which a broker without [oidc] does not need
    from headwater.broker.access.token_issuer import TokenIssuer

FAILURE_DELAY_S: Final = 0.1
"""Before a failed login is answered, as in Kafka."""
MAX_DELAYED: Final = 1_000
"""Failed logins that wait to be answered; beyond that they are cut off at once."""
PASSWORD_THREADS: Final = 2
PASSWORD_NICENESS: Final = 10
MAX_PASSWORD_CHECKS: Final = 256
"""Passwords that are checked, or wait for it; twice as many, if of an address none is yet: one that floods does not
keep out another."""
NONCE_BYTES: Final = 24


class Logins:
    """What the logins of all connections share."""

    def __init__(
        self,
        *,
        users: Users,
        gateway: GatewayUser | None = None,
        clock: Clock,
        invented: InventedCredentials,
        failed: Callable[[], None],
        issuer: "TokenIssuer | None" = None,
        record: RecordLogin = not_recorded,
    ) -> None:
        """`failed` is called for each login that failed; without an `issuer` no token is believed. `record` is called
        when a login has ended."""
        self._users = users
        self.gateway = gateway
        """None where no listener asks for a login."""
        self._clock = clock
        self._invented = invented
        self._threads = ThreadPoolExecutor(
            PASSWORD_THREADS, thread_name_prefix="password", initializer=_step_back_behind_the_loop
        )
        self._checks = 0
        self._checks_of: Counter[str] = Counter()
        """By address."""
        self._delayed = 0
        self._failed = failed
        self.issuer = issuer
        self.record: Final = record

    def rules(self, mechanisms: tuple[SaslMechanism, ...], reauth_ms: int) -> SaslRules:
        return SaslRules(mechanisms=mechanisms, look_up=self._credential, invented=self._invented, reauth_ms=reauth_ms)

    def _credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        if name == GATEWAY_USER:
            return self.gateway.credential(mechanism) if self.gateway is not None else None
        return self._users.credential(name, mechanism)

    def now(self) -> Moment:
        return moment(self._clock)

    async def is_right(self, check: CheckPassword, host: str) -> bool:
        limit = MAX_PASSWORD_CHECKS if self._checks_of[host] else 2 * MAX_PASSWORD_CHECKS
        if self._checks >= limit:
            raise CloseConnection(f"{self._checks} passwords are being checked: try again")
        self._checks += 1
        self._checks_of[host] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, check.is_right)
        finally:
            self._checks -= 1
            self._checks_of[host] -= 1
            if not self._checks_of[host]:
                del self._checks_of[host]

    async def identify(self, token: str) -> TokenIdentity:
        """Raises InvalidToken."""
        if self.issuer is None:
            raise InvalidToken("The tokens of no issuer are believed here.")
        return await self.issuer.identify(token)

    async def delay_failure(self) -> None:
        self._failed()
        if self._delayed >= MAX_DELAYED:
            raise CloseConnection("too many logins fail")
        self._delayed += 1
        try:
            await asyncio.sleep(FAILURE_DELAY_S)
        finally:
            self._delayed -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class SaslSession:
    def __init__(self, connection: Connection, logins: Logins, rules: SaslRules) -> None:
        self._connection = connection
        self._logins = logins
        self._machine = SaslServer(rules)

    @property
    def is_of_user(self) -> bool:
        """Whether a user of the cluster has logged in, rather than one whom an issuer of tokens knows."""
        return self._machine.mechanism is not SaslMechanism.OAUTHBEARER

    @property
    def expects_raw_token(self) -> bool:
        return self._machine.expects_raw_token

    def admit(self, api_key: int, is_served: bool) -> None:
        """A request has arrived. Raises CloseConnection if the client may not send it now."""
        decision = self._machine.arrived(api_key, self._logins.now(), is_served)
        if isinstance(decision, Close):
            raise CloseConnection(f"{decision.reason}: {decision.hint}")

    def handshake(self, version: int, mechanism: str) -> SaslHandshakeResponse:
        decision = self._machine.handshake(version, mechanism, os.urandom(NONCE_BYTES), self._logins.now())
        if not isinstance(decision, HandshakeAnswer):
            raise CloseConnection(f"{decision.reason}: {decision.hint}")
        if decision.closes:
            self._record("", mechanism, is_let_in=False, reason="unsupported_sasl_mechanism")
            self._connection.close_after_output("unsupported_sasl_mechanism", mechanism[:100])
        return SaslHandshakeResponse(error_code=decision.error, mechanisms=[each.value for each in decision.mechanisms])

    async def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        decision = await self._outcome(self._machine.authenticate(token, self._logins.now()))
        match decision:
            case Challenge():
                return SaslAuthenticateResponse(auth_bytes=decision.token)
            case Succeeded():
                self._let_in(decision)
                return SaslAuthenticateResponse(
                    auth_bytes=decision.token, session_lifetime_ms=decision.session_lifetime_ms
                )
            case Failed():
                self._refused(decision)
                await self._logins.delay_failure()
                self._connection.close_after_output("authentication_failed", decision.reason)
                return SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=decision.message
                )
            case IllegalState():
                return SaslAuthenticateResponse(
                    error_code=ErrorCode.ILLEGAL_SASL_STATE,
                    error_message="SaslHandshake comes first.",
                )
        raise CloseConnection(f"{decision.reason}: {decision.hint}")

    def take_raw(self, frame: bytearray) -> Answer:
        """A frame that is a token, after a handshake of version 0."""
        return asyncio.ensure_future(self._take_raw(bytes(frame)))

    async def _take_raw(self, token: bytes) -> Pieces:
        decision = await self._outcome(self._machine.raw_token(token, self._logins.now()))
        if isinstance(decision, Challenge):
            return [decision.token]
        if isinstance(decision, Succeeded):
            self._let_in(decision)
            return [decision.token]
        if isinstance(decision, Failed):
            self._refused(decision)
            await self._logins.delay_failure()
            raise CloseConnection(f"authentication_failed: {decision.reason}")
        raise CloseConnection("a token came where none was expected")

    async def _outcome(self, decision: TokenDecision) -> Challenge | Succeeded | Failed | IllegalState | Close:
        """The decision, when what it depends on has been found out."""
        match decision:
            case CheckPassword():
                is_right = await self._logins.is_right(decision, self._connection.peer_host)
                return self._machine.password_checked(is_right, self._logins.now())
            case VerifyToken():
                try:
                    identity = await self._logins.identify(decision.token)
                except InvalidToken as error:
                    return self._machine.token_refused(str(error))
                return self._machine.token_verified(identity, self._logins.now())
        return decision

    def _let_in(self, decision: Succeeded) -> None:
        self._connection.identify(decision.principal)
        self._connection.trust()
        mechanism = self._machine.mechanism
        self._record(str(decision.principal), mechanism.value if mechanism is not None else "", is_let_in=True)

    def _refused(self, decision: Failed) -> None:
        claimed = str(Principal.user(decision.claimed_user)) if decision.claimed_user else ""
        mechanism = decision.mechanism.value if decision.mechanism is not None else ""
        self._record(claimed, mechanism, is_let_in=False, reason=decision.reason)

    def _record(self, principal: str, mechanism: str, *, is_let_in: bool, reason: str = "") -> None:
        connection = self._connection
        self._logins.record(
            LoginOutcome(
                is_let_in=is_let_in, listener=connection.listener.name, address=connection.peer_host,
                mechanism=mechanism, principal=principal, reason=reason,
            )
        )  # fmt: skip


def _step_back_behind_the_loop() -> None:
    """Of a machine whose cores are busy, this thread has a tenth of what the event loop has, so that a flood of
    passwords delays passwords. Linux has a priority for each thread."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PASSWORD_NICENESS)
