"""The messages of SASL OAUTHBEARER (RFC 7628).

    n,[a=authzid],^Aauth=Bearer token^A[key=value^A]*^A

where ^A is the byte 1. A server may answer a token that it refuses with JSON; the client then sends a lone ^A, and is
told the error.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from headwater.security.gs2 import MalformedGs2, gs2_head, parse_gs2

MAX_TOKEN_CHARS: Final = 16_384
MAX_MESSAGE_BYTES: Final = MAX_TOKEN_CHARS + 4096
AFTER_FAILURE: Final = b"\x01"
"""What a client sends when it was answered with an error in JSON."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)
_KEY: Final = re.compile(r"[A-Za-z]+", re.ASCII)
_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]*", re.ASCII)


class MalformedBearer(ValueError):
    """Not a message of OAUTHBEARER, or one without a token."""


@dataclass(frozen=True, slots=True)
class BearerLogin:
    authzid: str
    """Empty, or the name that the token must give."""
    token: str = field(repr=False)


def parse_bearer(message: bytes) -> BearerLogin:
    """Raises MalformedBearer."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise MalformedBearer(f"The message has more than {MAX_MESSAGE_BYTES} bytes.")
    try:
        text = message.decode()
        head = parse_gs2(text[: text.find("\x01")])
    except UnicodeDecodeError:
        raise MalformedBearer("The message is not UTF-8.") from None  # The cause would carry the token.
    except MalformedGs2 as error:
        raise MalformedBearer(str(error)) from None
    before, *pairs, end, behind = text[head.length :].split("\x01") if text.count("\x01") > 2 else ("?", "", "")
    if before or end or behind:
        raise MalformedBearer("The message is not framed by the byte 1.")
    values = dict(map(_pair, pairs))
    if len(values) != len(pairs):
        raise MalformedBearer("The message has a key twice.")
    return BearerLogin(head.authzid, _token(values.get("auth", "")))


def bearer_message(token: str) -> bytes:
    """Raises MalformedBearer."""
    message = f"{gs2_head()}\x01auth=Bearer {token}\x01\x01".encode()
    parse_bearer(message)
    return message


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
        raise MalformedBearer("The message has something that is not key=value.")
    return key, value


def _token(credentials: str) -> str:
    scheme, space, token = credentials.partition(" ")
    if scheme.lower() != "bearer" or not space:
        raise MalformedBearer("The message has no bearer token.")
    if len(token) > MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
        raise MalformedBearer(f"A token has at most {MAX_TOKEN_CHARS} characters, and no others than those of base64.")
    return token
