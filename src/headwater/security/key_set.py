"""The public keys of an issuer of tokens, from its JWKS document (RFC 7517).

Each key says which algorithms it fits: by its type and curve, and by its own `alg` if it has one. There is no symmetric
key and no algorithm `none`, so a token cannot talk a public key into being a secret. A key that is not for signatures,
or is of a kind that nothing here knows, is passed over; of two keys with one id the first counts. A document without
any key of use is malformed, so that the set before it is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    SECP384R1,
    SECP521R1,
    EllipticCurve,
    EllipticCurvePublicKey,
    EllipticCurvePublicNumbers,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

from headwater.security.strict_base64 import MalformedBase64, decode_base64url
from headwater.security.strict_json import MalformedJson, parse_object

MAX_DOCUMENT_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 100
MAX_KID_CHARS: Final = 1000
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
_MAX_RSA_EXPONENT: Final = 2**32
"""A larger one makes each verification slow."""
_RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final[Mapping[str, tuple[EllipticCurve, str, int]]] = {
    "P-256": (SECP256R1(), "ES256", 32),
    "P-384": (SECP384R1(), "ES384", 48),
    "P-521": (SECP521R1(), "ES512", 66),
}
"""The algorithm of a curve, and the bytes of a coordinate."""
SUPPORTED_ALGORITHMS: Final = _RSA_ALGORITHMS | {each for _, each, _ in _CURVES.values()} | {"EdDSA"}
_VERIFIERS: Final = {name: jwt.PyJWS().get_algorithm_by_name(name) for name in SUPPORTED_ALGORITHMS}


class MalformedKeySet(ValueError):
    """Not a JWKS document, or one without a key of use."""


class _UnusableKey(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class VerificationKey:
    key: RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey
    algorithms: frozenset[str]

    def has_signed(self, message: bytes, signature: bytes, algorithm: str) -> bool:
        return algorithm in self.algorithms and bool(_VERIFIERS[algorithm].verify(message, self.key, signature))


@dataclass(frozen=True, slots=True)
class KeySet:
    by_kid: Mapping[str, VerificationKey]
    only: VerificationKey | None
    """What a token without a key id is checked with, if there is no choice."""

    @classmethod
    def parse(cls, document: bytes) -> Self:
        """Raises MalformedKeySet."""
        if len(document) > MAX_DOCUMENT_BYTES:
            raise MalformedKeySet(f"The key set has more than {MAX_DOCUMENT_BYTES} bytes.")
        try:
            entries = parse_object(document).get("keys")
        except MalformedJson as error:
            raise MalformedKeySet(f"The key set: {error}") from error
        if not isinstance(entries, list) or len(entries) > MAX_KEYS:
            raise MalformedKeySet(f"The key set has no list of at most {MAX_KEYS} keys.")
        by_kid: dict[str, VerificationKey] = {}
        usable = []
        for entry in entries:
            try:
                kid, key = _kid(entry), _key(entry)
            except (_UnusableKey, MalformedBase64):
                continue
            usable.append(key)
            if kid is not None:
                by_kid.setdefault(kid, key)
        if not usable:
            raise MalformedKeySet("The key set has no key that verifies signatures.")
        return cls(by_kid, usable[0] if len(usable) == 1 else None)

    def find(self, kid: str | None) -> VerificationKey | None:
        return self.only if kid is None else self.by_kid.get(kid)


def _kid(entry: object) -> str | None:
    if not isinstance(entry, dict):
        raise _UnusableKey
    kid = entry.get("kid")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= MAX_KID_CHARS):
        raise _UnusableKey
    return kid


def _key(entry: Mapping[str, Any]) -> VerificationKey:
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise _UnusableKey
    kind = entry.get("kty")
    if kind == "RSA":
        key = VerificationKey(_rsa_key(entry), _RSA_ALGORITHMS)
    elif kind == "EC":
        key = _curve_key(entry)
    elif kind == "OKP" and entry.get("crv") == "Ed25519":
        key = VerificationKey(_edwards_key(entry), frozenset({"EdDSA"}))
    else:
        raise _UnusableKey
    if "alg" not in entry:
        return key
    algorithms = key.algorithms.intersection([entry["alg"]] if isinstance(entry["alg"], str) else [])
    if not algorithms:
        raise _UnusableKey
    return VerificationKey(key.key, algorithms)


def _rsa_key(entry: Mapping[str, Any]) -> RSAPublicKey:
    modulus, exponent = _number(entry, "n"), _number(entry, "e")
    if not MIN_RSA_BITS <= modulus.bit_length() <= MAX_RSA_BITS or not 3 <= exponent < _MAX_RSA_EXPONENT:
        raise _UnusableKey
    try:
        return RSAPublicNumbers(exponent, modulus).public_key()
    except ValueError as error:
        raise _UnusableKey from error


def _curve_key(entry: Mapping[str, Any]) -> VerificationKey:
    name = entry.get("crv")
    if not isinstance(name, str) or name not in _CURVES:
        raise _UnusableKey
    curve, algorithm, coordinate_bytes = _CURVES[name]
    if {len(_bytes(entry, "x")), len(_bytes(entry, "y"))} != {coordinate_bytes}:
        raise _UnusableKey
    try:
        key = EllipticCurvePublicNumbers(_number(entry, "x"), _number(entry, "y"), curve).public_key()
    except ValueError as error:
        raise _UnusableKey from error
    return VerificationKey(key, frozenset({algorithm}))


def _edwards_key(entry: Mapping[str, Any]) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(_bytes(entry, "x"))
    except ValueError as error:
        raise _UnusableKey from error


def _bytes(entry: Mapping[str, Any], name: str) -> bytes:
    text = entry.get(name)
    if not isinstance(text, str):
        raise _UnusableKey
    return decode_base64url(text)


def _number(entry: Mapping[str, Any], name: str) -> int:
    return int.from_bytes(_bytes(entry, name), "big")
