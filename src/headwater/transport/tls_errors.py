"""What can be wrong with TLS: the files of a listener, and a handshake."""

import ssl
from collections.abc import Mapping
from typing import Final


class UnusableCertificate(Exception):
    """Files of a listener do not fit together, or cannot be read. The message says which, and what to do."""


NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"})
"""OpenSSL's words for a first byte that begins no handshake."""
_WORDS: Final[Mapping[str, str]] = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side has shown no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side asks for a certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the authority of the certificate that it was shown",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate that the other side was shown has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not take the certificate that it was shown",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not take the certificate that it was shown",
    "UNSUPPORTED_PROTOCOL": "the other side speaks no version of TLS that is allowed here",
    "NO_SHARED_CIPHER": "the other side offers no cipher that is allowed here",
}
"""For OpenSSL's."""


def handshake_problem(error: BaseException) -> str:
    """Why there is no TLS connection, in words for a log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the other side is not valid: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    reason = error.reason or str(error)
    if reason in NOT_TLS:
        return f"{reason}: the other side does not speak TLS"
    return f"{reason}: {_WORDS[reason]}" if reason in _WORDS else reason
