"""Clients that show certificates: who they are by them, and for how long.

TLS has verified the certificate when it comes here. A client whose certificate stands for no user is refused; one
without a certificate, where none is required, is anonymous. A connection ends when its certificate expires, because TLS
looks at the date in the handshake alone.
"""

import asyncio
from typing import Final

from headwater.broker.access.login_outcome import CERTIFICATE, LoginOutcome, RecordLogin, not_recorded
from headwater.model.clock import Clock
from headwater.security.principal_rules import CertificatePrincipals, NoPrincipal
from headwater.transport.connection import CloseConnection, Connection

LONGEST_TIMER_S: Final = 3600.0
"""The date is looked at again at least so often: it is wall-clock time, which may be set."""


class CertificateLogins:
    """Of one listener."""

    def __init__(
        self, clock: Clock, principals: CertificatePrincipals | None, record: RecordLogin = not_recorded
    ) -> None:
        """`principals` is None where a login by SASL says who the client is: its certificate must only be good."""
        self._clock = clock
        self._principals = principals
        self._record = record

    def admit(self, connection: Connection) -> None:
        """A connection was made. Raises CloseConnection."""
        certificate = connection.peer_certificate
        if certificate is None:
            return
        expires_at_s = connection.certificate_expires_at_s
        assert expires_at_s is not None, "TLS has verified the certificate"
        if self._principals is not None:
            try:
                connection.identify(self._principals.of(certificate))
            except NoPrincipal as error:
                self._record(_outcome(connection, is_let_in=False, reason=str(error)))
                raise CloseConnection(str(error)) from error
            self._record(_outcome(connection, is_let_in=True))
        self._close_when_expired(connection, expires_at_s)

    def _close_when_expired(self, connection: Connection, expires_at_s: float) -> None:
        left_s = expires_at_s - self._clock.now_ms() / 1000
        if left_s <= 0:
            connection.close("client_certificate_expired", f"the certificate of {connection.principal}")
            return
        timer = asyncio.get_running_loop().call_later(
            min(left_s, LONGEST_TIMER_S), self._close_when_expired, connection, expires_at_s
        )
        connection.when_closed[self] = timer.cancel


def _outcome(connection: Connection, *, is_let_in: bool, reason: str = "") -> LoginOutcome:
    return LoginOutcome(
        is_let_in=is_let_in, listener=connection.listener.name, address=connection.peer_host, mechanism=CERTIFICATE,
        principal=str(connection.principal) if is_let_in else "", reason=reason,
    )  # fmt: skip
