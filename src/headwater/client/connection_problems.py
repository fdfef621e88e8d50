"""Why a connection to a broker was not made, or ended: in words that say what to change."""

import ssl
from typing import Final

_TLS_PROBLEMS: Final = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS there: security.protocol is for another listener",
    "PACKET_LENGTH_TOO_LONG": "it does not speak TLS there: security.protocol is for another listener",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        "it wants a certificate of the client: ssl.certificate.location and ssl.key.location"
    ),
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority that signed the client's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the client's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the client's certificate is revoked",
}
"""By OpenSSL's name of the reason."""
_TLS_ENDS: Final = ssl.SSLEOFError | ssl.SSLZeroReturnError
_UNKNOWN_ISSUERS: Final = frozenset({18, 19, 20, 21})
"""X509_V_ERR_…: self-signed, self-signed in the chain, no issuer here, a leaf alone."""
_WRONG_NAMES: Final = frozenset({62, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


def problem_of(error: BaseException, authorities: str | None = None) -> str:
    """`authorities` is the file of the authorities that were trusted; None: those of this machine."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _mistrust(error, authorities)
    if isinstance(error, _TLS_ENDS):
        return "the broker closed the connection"
    if isinstance(error, ssl.SSLError):
        return _TLS_PROBLEMS.get(error.reason or "", f"TLS failed: {error.reason or error}")
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def handshake_problem_of(error: BaseException, authorities: str | None) -> str:
    """Before TLS is there: a server that does not speak it just goes away."""
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError | _TLS_ENDS):
        return "it ended the TLS handshake: perhaps it does not speak TLS there"
    return problem_of(error, authorities)


def _mistrust(error: ssl.SSLCertVerificationError, authorities: str | None) -> str:
    reason = error.verify_message.rstrip(".")
    if error.verify_code in _UNKNOWN_ISSUERS:
        trusted = authorities or "this machine's list of authorities"
        return f"its certificate is not trusted ({reason}): name the authority with ssl.ca.location, not {trusted}"
    if error.verify_code in _WRONG_NAMES:
        return f"its certificate is for another name ({reason}): use a name that it has"
    return f"its certificate is not trusted: {reason}"
