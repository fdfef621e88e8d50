"""Tokens that were verified, by their SHA-256, until they expire: a client that comes back costs no signature.

It belongs to one key set: with the next one it is cleared, so that a key that was taken away does not live on here.
"""

import hashlib
from typing import Final

from headwater.security.token_identity import TokenIdentity

MAX_TOKENS: Final = 10_000


class TokenCache:
    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._identities: dict[bytes, TokenIdentity] = {}
        """The longest known first."""

    def __len__(self) -> int:
        return len(self._identities)

    def find(self, token: str, now_s: float) -> TokenIdentity | None:
        digest = _digest(token)
        identity = self._identities.get(digest)
        if identity is not None and now_s >= identity.expires_at_s:
            del self._identities[digest]
            return None
        return identity

    def add(self, token: str, identity: TokenIdentity) -> None:
        self._identities[_digest(token)] = identity
        if len(self._identities) > self._max_tokens:
            del self._identities[next(iter(self._identities))]

    def clear(self) -> None:
        self._identities.clear()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
