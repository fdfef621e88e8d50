"""How two nodes prove to each other that they belong to one cluster, without sending its secret (RFC 2104).

    HELLO  oldest version 1 | newest version 1 | nonce 32        ->  version 1 | nonce 32
    PROVE  proof of the caller 32                                ->  proof of the store 32

A proof is an HMAC of the version and both nonces under the secret, with a different label for each side, so that
neither can be sent back. The caller proves first: a stranger learns nothing but a random number.

The bytes that follow are neither encrypted nor signed: that is TLS's business.
"""

import hmac
import struct
from typing import Final

from headwater.model.replica import StoreError
from headwater.peers.messages import NEWEST_VERSION, OLDEST_VERSION, check_end
from headwater.wire.cursor import Cursor, MalformedRequest

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
MIN_SECRET_BYTES: Final = 16
_CALLER: Final = b"headwater peer: caller"
_STORE: Final = b"headwater peer: store"
_HELLO: Final = struct.Struct(f">BB{NONCE_BYTES}s")
_ANSWER: Final = struct.Struct(f">B{NONCE_BYTES}s")


class NoCommonVersion(StoreError):
    """One of the two nodes is too old for the other."""


def check_secret(secret: bytes) -> None:
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(f"the secret of a cluster has at least {MIN_SECRET_BYTES} bytes, not {len(secret)}")


class CallerSide:
    def __init__(self, secret: bytes, nonce: bytes) -> None:
        check_secret(secret)
        self._secret = secret
        self._nonce = nonce
        self._transcript = b""

    def hello(self) -> bytes:
        return _HELLO.pack(OLDEST_VERSION, NEWEST_VERSION, self._nonce)

    def prove(self, answer: Cursor) -> tuple[int, bytes]:
        """The version to speak, and the proof."""
        version, nonce = _ANSWER.unpack(answer.take(_ANSWER.size))
        check_end(answer)
        if not OLDEST_VERSION <= version <= NEWEST_VERSION:
            raise MalformedRequest(f"the store speaks version {version}, which was not offered")
        self._transcript = bytes([version]) + self._nonce + nonce
        return version, _proof(self._secret, _CALLER, self._transcript)

    def is_proven(self, answer: Cursor) -> bool:
        """Whether the store's proof shows that it knows the secret, too."""
        proof = answer.take(PROOF_BYTES)
        check_end(answer)
        return bool(self._transcript) and hmac.compare_digest(proof, _proof(self._secret, _STORE, self._transcript))


class StoreSide:
    def __init__(self, secret: bytes, nonce: bytes) -> None:
        check_secret(secret)
        self._secret = secret
        self._nonce = nonce
        self._transcript = b""

    def answer(self, hello: Cursor) -> bytes:
        oldest, newest, nonce = _HELLO.unpack(hello.take(_HELLO.size))
        check_end(hello)
        version = min(newest, NEWEST_VERSION)
        if version < max(oldest, OLDEST_VERSION):
            raise NoCommonVersion(
                f"versions {oldest} to {newest} are offered, {OLDEST_VERSION} to {NEWEST_VERSION} are spoken here"
            )
        self._transcript = bytes([version]) + nonce + self._nonce
        return _ANSWER.pack(version, self._nonce)

    def verify(self, proof: Cursor) -> bytes | None:
        """The store's proof, if the caller's is right; else None. A second proof is never accepted."""
        theirs = proof.take(PROOF_BYTES)
        check_end(proof)
        transcript, self._transcript = self._transcript, b""
        if not transcript or not hmac.compare_digest(theirs, _proof(self._secret, _CALLER, transcript)):
            return None
        return _proof(self._secret, _STORE, transcript)


def _proof(secret: bytes, label: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, label + transcript, "sha256")
