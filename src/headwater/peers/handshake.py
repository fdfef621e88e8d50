"""How two nodes prove to each other that they belong to one cluster, without sending its secret (RFC 2104).

    HELLO  oldest version 1 | newest version 1 | nonce 32        ->  version 1 | nonce 32
    PROVE  proof of the caller 32                                ->  proof of the store 32

A proof is an HMAC of the version and both nonces under the secret, with a different label for each side, so that
neither can be sent back. The caller proves first: a stranger learns nothing but a random number.

From version 2 on a proof is also about the TLS connection that it is sent on (`identity.binding`), if there is TLS. So
what stands between two nodes, with a certificate of its own for each side, cannot pass the proofs on. Version 1 is not
spoken over TLS. Without TLS the bytes that follow the proofs are neither encrypted nor signed.
"""

import hmac
import struct
from typing import Final

from headwater.model.replica import Buffer, StoreError
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.peers.messages import NEWEST_VERSION, OLDEST_VERSION, check_end
from headwater.wire.cursor import Cursor, MalformedRequest

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
FIRST_BOUND_VERSION: Final = 2
"""The first version whose proofs are about the connection."""
_CALLER: Final = b"headwater peer: caller"
_STORE: Final = b"headwater peer: store"
_HELLO: Final = struct.Struct(f">BB{NONCE_BYTES}s")
_ANSWER: Final = struct.Struct(f">B{NONCE_BYTES}s")


class NoCommonVersion(StoreError):
    """One of the two nodes is too old for the other."""


class CallerSide:
    """`binding` is empty on a connection without TLS."""

    def __init__(self, secrets: ClusterSecrets, nonce: bytes, binding: bytes = b"") -> None:
        self._secret = secrets.current
        self._nonce = nonce
        self._binding = binding
        self._oldest = _oldest_version(binding)
        self._transcript = b""

    def hello(self) -> bytes:
        return _HELLO.pack(self._oldest, NEWEST_VERSION, self._nonce)

    def prove(self, answer: Cursor) -> tuple[int, bytes]:
        """The version to speak, and the proof."""
        version, nonce = _ANSWER.unpack(answer.take(_ANSWER.size))
        check_end(answer)
        if not self._oldest <= version <= NEWEST_VERSION:
            raise MalformedRequest(f"the store speaks version {version}, which was not offered")
        self._transcript = _transcript(version, self._nonce, nonce, self._binding)
        return version, _proof(self._secret, _CALLER, self._transcript)

    def is_proven(self, answer: Cursor) -> bool:
        """Whether the store's proof shows that it knows the secret, too."""
        proof = answer.take(PROOF_BYTES)
        check_end(answer)
        return bool(self._transcript) and hmac.compare_digest(proof, _proof(self._secret, _STORE, self._transcript))


class StoreSide:
    """`binding` is empty on a connection without TLS."""

    def __init__(self, secrets: ClusterSecrets, nonce: bytes, binding: bytes = b"") -> None:
        self._secrets = secrets
        self._nonce = nonce
        self._binding = binding
        self._oldest = _oldest_version(binding)
        self._transcript = b""
        self.proven: bytes | None = None
        """The secret that the caller has proven to know."""

    def answer(self, hello: Cursor) -> bytes:
        oldest, newest, nonce = _HELLO.unpack(hello.take(_HELLO.size))
        check_end(hello)
        version = min(newest, NEWEST_VERSION)
        if version < max(oldest, self._oldest):
            raise NoCommonVersion(
                f"versions {oldest} to {newest} are offered, {self._oldest} to {NEWEST_VERSION} are spoken here"
            )
        self._transcript = _transcript(version, nonce, self._nonce, self._binding)
        return _ANSWER.pack(version, self._nonce)

    def verify(self, proof: Cursor) -> bytes | None:
        """The store's proof, under the caller's secret, if the caller's proof is right; else None. A second proof is
        never accepted."""
        theirs = proof.take(PROOF_BYTES)
        check_end(proof)
        transcript, self._transcript = self._transcript, b""
        if not transcript:
            return None
        accepted = self._secrets.accepted  # now: one may have been taken away since the HELLO
        self.proven = next((secret for secret in accepted if _is_proof(theirs, secret, transcript)), None)
        return _proof(self.proven, _STORE, transcript) if self.proven is not None else None


def _oldest_version(binding: bytes) -> int:
    return max(OLDEST_VERSION, FIRST_BOUND_VERSION) if binding else OLDEST_VERSION


def _transcript(version: int, caller_nonce: bytes, store_nonce: bytes, binding: bytes) -> bytes:
    return bytes([version]) + caller_nonce + store_nonce + (binding if version >= FIRST_BOUND_VERSION else b"")


def _is_proof(theirs: Buffer, secret: bytes, transcript: bytes) -> bool:
    return hmac.compare_digest(theirs, _proof(secret, _CALLER, transcript))


def _proof(secret: bytes, label: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, label + transcript, "sha256")
