"""Whom a token names, and until when. Apart from the rules, which import more than a login by password needs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    name: str
    """Of the principal."""
    expires_at_s: int
    """When the token is not believed any more: what it says, and the skew of the clocks."""
