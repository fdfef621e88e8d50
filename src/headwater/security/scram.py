"""What the broker keeps of a password, for SCRAM (RFC 5802, RFC 7677): enough to check it, too little to log in with.

    SaltedPassword = PBKDF2(password, salt, iterations)
    StoredKey      = H(HMAC(SaltedPassword, "Client Key"))        proves the client
    ServerKey      = HMAC(SaltedPassword, "Server Key")           proves the server

A user without a credential has an invented one, always the same, so that neither an answer nor the work for it tells
which users exist. The salted password itself is as good as the password: it is never kept.
"""

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Self

from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.strict_base64 import MalformedBase64, decode_base64

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
"""Of a credential that is kept, as in Kafka: a login by PLAIN costs the broker that many."""
DEFAULT_ITERATIONS: Final = 8192
MAX_SALT_BYTES: Final = 64
SALT_BYTES: Final = 16
"""Of the salts that are made here."""


class UnacceptableCredential(ValueError):
    """A credential that is not kept; the message says why."""


class ScramMechanism(IntEnum):
    """By Kafka's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl(self) -> SaslMechanism:
        return SaslMechanism[self.name]

    @property
    def hash_name(self) -> str:
        return _HASH_NAMES[self]

    @property
    def hash_bytes(self) -> int:
        return _HASH_BYTES[self]

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()


_HASH_NAMES: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}
_HASH_BYTES: Final = {ScramMechanism.SCRAM_SHA_256: 32, ScramMechanism.SCRAM_SHA_512: 64}


@dataclass(frozen=True, slots=True)
class ScramHashing:
    """The functions that cost something, so that a test can count them."""

    mac: Callable[[bytes, bytes, str], bytes] = hmac.digest
    """Key, message, name of the hash."""
    derive: Callable[[str, bytes, bytes, int], bytes] = hashlib.pbkdf2_hmac
    """Name of the hash, password, salt, iterations."""


HASHING: Final = ScramHashing()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """Raises UnacceptableCredential when it is made with what is not kept."""

    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    also: Self | None = None
    """Another that the user may prove instead, with the same salt and iterations: of a password that is being
    replaced."""

    def __post_init__(self) -> None:
        assert self.also is None or (self.also.salt, self.also.iterations) == (self.salt, self.iterations), (
            "what the server says first is the same for both"
        )
        if not 1 <= len(self.salt) <= MAX_SALT_BYTES:
            raise UnacceptableCredential(f"A salt has 1 to {MAX_SALT_BYTES} bytes, not {len(self.salt)}.")
        _check_iterations(self.iterations)
        if {len(self.stored_key), len(self.server_key)} != {self.mechanism.hash_bytes}:
            raise UnacceptableCredential(f"A key of {self.mechanism.sasl} has {self.mechanism.hash_bytes} bytes.")

    @classmethod
    def of_password(
        cls,
        mechanism: ScramMechanism,
        password: str,
        salt: bytes,
        iterations: int = DEFAULT_ITERATIONS,
        hashing: ScramHashing = HASHING,
    ) -> Self:
        """Takes milliseconds. Raises UnacceptableCredential."""
        _check_iterations(iterations)
        salted = hashing.derive(mechanism.hash_name, password.encode(), salt, iterations)
        return cls.of_salted_password(mechanism, salted, salt, iterations, hashing)

    @classmethod
    def of_salted_password(
        cls,
        mechanism: ScramMechanism,
        salted_password: bytes,
        salt: bytes,
        iterations: int,
        hashing: ScramHashing = HASHING,
    ) -> Self:
        """From what AlterUserScramCredentials carries. Raises UnacceptableCredential."""
        if len(salted_password) != mechanism.hash_bytes:
            raise UnacceptableCredential(f"A salted password of {mechanism.sasl} has {mechanism.hash_bytes} bytes.")
        return cls(
            mechanism=mechanism,
            salt=salt,
            iterations=iterations,
            stored_key=mechanism.hash(client_key(mechanism, salted_password, hashing)),
            server_key=server_key(mechanism, salted_password, hashing),
        )

    @classmethod
    def from_json(cls, mechanism: ScramMechanism, value: Mapping[str, Any]) -> Self:
        """Raises UnacceptableCredential."""
        try:
            salt, stored, server = (decode_base64(value[name]) for name in ("salt", "stored_key", "server_key"))
            iterations = value["iterations"]
        except (KeyError, AttributeError, MalformedBase64) as error:
            raise UnacceptableCredential(
                "The stored credential lacks a field, or has one that is not base64."
            ) from error
        if type(iterations) is not int:
            raise UnacceptableCredential("The iterations of the stored credential are not a whole number.")
        return cls(mechanism=mechanism, salt=salt, iterations=iterations, stored_key=stored, server_key=server)

    def to_json(self) -> dict[str, str | int]:
        return {
            "salt": b64encode(self.salt).decode(),
            "iterations": self.iterations,
            "stored_key": b64encode(self.stored_key).decode(),
            "server_key": b64encode(self.server_key).decode(),
        }

    def is_of(self, password: str, hashing: ScramHashing = HASHING) -> bool:
        """Whether it is the credential of this password. Takes milliseconds: not for an event loop."""
        salted = hashing.derive(self.mechanism.hash_name, password.encode(), self.salt, self.iterations)
        stored = self.mechanism.hash(client_key(self.mechanism, salted, hashing))
        return hmac.compare_digest(stored, self.stored_key)

    def has_proof(self, proof: bytes, exchange: bytes, hashing: ScramHashing = HASHING) -> bool:
        """Whether the sender of this proof knows the password; `exchange` is what both sides have said."""
        signature = hashing.mac(self.stored_key, exchange, self.mechanism.hash_name)
        if len(proof) != len(signature):
            return False
        return hmac.compare_digest(self.mechanism.hash(exclusive_or(proof, signature)), self.stored_key)

    def proven_by(self, proof: bytes, exchange: bytes, hashing: ScramHashing = HASHING) -> Self | None:
        """Which of the credentials the proof is for."""
        fitting = [each for each in (self, self.also) if each is not None and each.has_proof(proof, exchange, hashing)]
        return fitting[0] if fitting else None

    def signature(self, exchange: bytes, hashing: ScramHashing = HASHING) -> bytes:
        """What proves the server to the client."""
        return hashing.mac(self.server_key, exchange, self.mechanism.hash_name)

    def replaces(self, other: Self) -> bool:
        """Whether a login that began with the other credential may not end with this one."""
        is_same = hmac.compare_digest(self.stored_key, other.stored_key)
        return not (is_same and self.salt == other.salt and self.iterations == other.iterations)


CredentialLookup = Callable[[str, ScramMechanism], ScramCredential | None]
"""The credential of a user who may log in."""


@dataclass(frozen=True, slots=True)
class InventedCredentials:
    """Credentials of users who have none. No password fits them, and without the key they look like any other."""

    key: bytes = field(repr=False)
    """Random, and the same on every node of a cluster: the same user has the same salt everywhere."""
    iterations: int = DEFAULT_ITERATIONS

    def of(self, user: str, mechanism: ScramMechanism, hashing: ScramHashing = HASHING) -> ScramCredential:
        noise = hashing.mac(self.key, f"{mechanism.sasl}\0{user}".encode(), mechanism.hash_name)
        unknown = mechanism.hash(noise)
        return ScramCredential(
            mechanism=mechanism,
            salt=noise[:SALT_BYTES],
            iterations=self.iterations,
            stored_key=unknown,
            server_key=unknown,
        )


def client_key(mechanism: ScramMechanism, salted_password: bytes, hashing: ScramHashing = HASHING) -> bytes:
    return hashing.mac(salted_password, b"Client Key", mechanism.hash_name)


def server_key(mechanism: ScramMechanism, salted_password: bytes, hashing: ScramHashing = HASHING) -> bytes:
    return hashing.mac(salted_password, b"Server Key", mechanism.hash_name)


def exclusive_or(left: bytes, right: bytes) -> bytes:
    assert len(left) == len(right), "a proof is as long as a key"
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")


def _check_iterations(iterations: int) -> None:
    """In Kafka's words. Raises UnacceptableCredential."""
    if iterations < MIN_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if iterations > MAX_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")
