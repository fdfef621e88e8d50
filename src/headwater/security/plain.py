"""The one message of SASL PLAIN (RFC 4616): `[authzid] NUL user NUL password`.

The password is in it as it is, so PLAIN is for encrypted connections.
"""

from dataclasses import dataclass, field
from typing import Final

MAX_PART_BYTES: Final = 255


class MalformedPlain(ValueError):
    """Not a message of PLAIN, or one that asks to act as another user."""


@dataclass(frozen=True, slots=True)
class PlainLogin:
    user: str
    password: str = field(repr=False)


def parse_plain(message: bytes) -> PlainLogin:
    """Raises MalformedPlain."""
    parts = message.split(b"\0", 3)
    if len(parts) != 3:
        raise MalformedPlain("The message does not have three parts.")
    if max(map(len, parts)) > MAX_PART_BYTES:
        raise MalformedPlain(f"A part of the message is longer than {MAX_PART_BYTES} bytes.")
    try:
        authzid, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise MalformedPlain("The message is not UTF-8.") from None  # The cause would carry the password.
    if not user or not password:
        raise MalformedPlain("The message has no user or no password.")
    if authzid not in ("", user):
        raise MalformedPlain("The client logs in as one user, and wants to act as another.")
    return PlainLogin(user, password)


def plain_message(user: str, password: str) -> bytes:
    """Raises MalformedPlain."""
    message = f"\0{user}\0{password}".encode()
    parse_plain(message)
    return message
