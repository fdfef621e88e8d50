"""What comes of a token: whom it names and until when, or that it is not believed. Apart from the rules, which import
more than a login by password needs."""

from dataclasses import dataclass


class InvalidToken(ValueError):
    """A token that is not believed; the message says why, and has nothing of the token."""


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    name: str
    """Of the principal."""
    expires_at_s: int
    """When the token is not believed any more: what it says, and the skew of the clocks."""
