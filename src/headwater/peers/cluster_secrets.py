"""The secret of a cluster, which its nodes prove to each other that they know; two, while it is being replaced.

A node proves that it knows the first, and takes a proof of any. So a new secret is put behind the old one on all nodes,
then before it on all nodes, and then the old one is taken away: at every moment any two nodes understand each other.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import Final

MIN_SECRET_BYTES: Final = 16
MAX_SECRETS: Final = 2
ID_CHARS: Final = 16
_LABEL: Final = b"headwater: which secret"


class ClusterSecrets:
    def __init__(self, *secrets: bytes) -> None:
        """Raises ValueError for none, too many, or one that is too short."""
        check_secrets(secrets)
        self._secrets = secrets
        self.has_lost_one = False
        """Whether a secret that was accepted before the last change is not accepted any more."""
        self.watchers: list[Callable[[], None]] = []
        """Called after they were replaced."""

    def __repr__(self) -> str:
        return f"ClusterSecrets({', '.join(self.ids)})"

    @property
    def current(self) -> bytes:
        """What this node proves that it knows."""
        return self._secrets[0]

    @property
    def accepted(self) -> tuple[bytes, ...]:
        return self._secrets

    @property
    def ids(self) -> tuple[str, ...]:
        """Of each secret, the current one first: which it is, and nothing about what it is."""
        return tuple(map(secret_id, self._secrets))

    def replace(self, secrets: Sequence[bytes]) -> bool:
        """From now on it is these; returns whether they are others than before. Raises ValueError, as at first."""
        check_secrets(secrets)
        if tuple(secrets) == self._secrets:
            return False
        self.has_lost_one = not set(self._secrets) <= set(secrets)
        self._secrets = tuple(secrets)
        for watcher in self.watchers:
            watcher()
        return True


def check_secrets(secrets: Sequence[bytes]) -> None:
    if not 1 <= len(secrets) <= MAX_SECRETS:
        raise ValueError(f"a cluster has one secret, or two while it is being replaced, not {len(secrets)}")
    for secret in secrets:
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(f"the secret of a cluster has at least {MIN_SECRET_BYTES} bytes, not {len(secret)}")
    if len(set(secrets)) < len(secrets):
        raise ValueError("the two secrets of a cluster are the same")


def secret_id(secret: bytes) -> str:
    return hmac.digest(secret, _LABEL, hashlib.sha256).hex()[:ID_CHARS]
