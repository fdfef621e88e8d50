"""Base64 of which every sequence of bytes has one text, so that a changed text never means the same bytes."""

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode


class MalformedBase64(ValueError):
    """Not base64 as an encoder writes it."""


def decode_base64(text: str) -> bytes:
    """With padding. Raises MalformedBase64."""
    try:
        data = b64decode(text.encode("ascii"), validate=True)
    except ValueError as error:
        raise MalformedBase64("The text is not base64.") from error
    if b64encode(data).decode() != text:
        raise MalformedBase64("The text is not base64 as an encoder writes it.")
    return data


def decode_base64url(text: str) -> bytes:
    """Without padding, as tokens and keys have it (RFC 7515, section 2). Raises MalformedBase64."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError as error:
        raise MalformedBase64("The text is not base64url.") from error
    if urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        raise MalformedBase64("The text is not base64url as an encoder writes it.")
    return data
