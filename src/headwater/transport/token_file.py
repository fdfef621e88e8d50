"""A token in a file: what HTTP clients must show, as `Authorization: Bearer TOKEN`."""

import hmac
from pathlib import Path
from typing import Final

MAX_TOKEN_BYTES: Final = 4096
MIN_TOKEN_CHARS: Final = 16


class BadToken(ValueError):
    """The file cannot be used; says why."""


def read_token(path: Path) -> bytes:
    """Raises BadToken."""
    try:
        with path.open("rb") as file:
            token = file.read(MAX_TOKEN_BYTES + 1).strip()
    except OSError as error:
        raise BadToken(f"{path}: cannot be read: {error.strerror}") from None
    if len(token) > MAX_TOKEN_BYTES:
        raise BadToken(f"{path}: is longer than {MAX_TOKEN_BYTES} bytes")
    if len(token) < MIN_TOKEN_CHARS or not token.isascii() or b" " in token or b"\n" in token:
        raise BadToken(f"{path}: must hold one token, at least {MIN_TOKEN_CHARS} characters of ASCII without spaces")
    return token


def bears(authorization: bytes, token: bytes) -> bool:
    """Whether the value of a header `Authorization` shows the token."""
    scheme, _, shown = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), token)
