"""Which tokens of an issuer are believed (RFC 7519, RFC 8725), and whom they name.

A token is signed by a key of the issuer's set, with an algorithm that is allowed and fits the key. What its head says
about keys beyond their id (`jku`, `x5u`, `jwk`, `x5c`) is not looked at, and what it says must be understood (`crit`)
is refused. It is from the issuer, for this audience, valid now, and for no longer than a day.

The time is wall-clock time, in seconds. PyJWT computes the signatures; the rest is read here, once, and strictly: no
text can be read in two ways.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.security.key_set import MAX_KID_CHARS, SUPPORTED_ALGORITHMS, KeySet
from headwater.security.oauthbearer import MAX_TOKEN_CHARS
from headwater.security.strict_base64 import MalformedBase64, decode_base64url
from headwater.security.strict_json import MalformedJson, parse_object
from headwater.security.token_identity import InvalidToken, TokenIdentity
from headwater.security.user_names import UnacceptableUserName, check_principal_name

MAX_LIFETIME_S: Final = 24 * 3600
MAX_CLOCK_SKEW_S: Final = 300
DEFAULT_ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
_MAX_TIME_S: Final = 2**53
_TYPES: Final = ("jwt", "at+jwt", "application/at+jwt")
"""Of tokens for access. An issuer signs others with the same keys, such as those that end a session."""


class UnusableTokenRules(ValueError):
    """Rules that would let in too much, or nothing."""


class UnknownTokenKey(InvalidToken):
    """The token is signed by a key that is not in the set; a newer set may have it."""

    def __init__(self, kid: str) -> None:
        super().__init__("The key of the token is not in the key set.")
        self.kid = kid


@dataclass(frozen=True, slots=True)
class _SignedToken:
    algorithm: str
    kid: str | None
    signed: bytes
    signature: bytes = field(repr=False)
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """Raises UnusableTokenRules when it is made."""

    issuer: str
    audience: str
    principal_claim: str = "sub"
    scope: str = ""
    """Scopes that a token must have, all of them, with spaces between."""
    clock_skew_s: int = 30
    allowed_algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS

    def __post_init__(self) -> None:
        if not (self.issuer and self.audience and self.principal_claim):
            raise UnusableTokenRules("Tokens need an issuer, an audience, and a claim that names the principal.")
        if not self.allowed_algorithms or not SUPPORTED_ALGORITHMS.issuperset(self.allowed_algorithms):
            raise UnusableTokenRules(f"The algorithms of tokens are one or more of {sorted(SUPPORTED_ALGORITHMS)}.")
        if not 0 <= self.clock_skew_s <= MAX_CLOCK_SKEW_S:
            raise UnusableTokenRules(f"The skew of clocks is from 0 to {MAX_CLOCK_SKEW_S} seconds.")

    def verify(self, token: str, keys: KeySet, now_s: float) -> TokenIdentity:
        """Raises UnknownTokenKey, InvalidToken."""
        parsed = self._parse(token)
        key = keys.find(parsed.kid)
        if key is None:
            if parsed.kid is None:
                raise InvalidToken("The token does not say which of the issuer's keys has signed it.")
            raise UnknownTokenKey(parsed.kid)
        if not key.has_signed(parsed.signed, parsed.signature, parsed.algorithm):
            raise InvalidToken("The signature is not that of the key, or the algorithm does not fit the key.")
        claims = _object(parsed.payload)
        self._check_purpose(claims)
        return TokenIdentity(self._name(claims), self._expiry(claims, now_s))

    def _parse(self, token: str) -> _SignedToken:
        if len(token) > MAX_TOKEN_CHARS:
            raise InvalidToken(f"The token has more than {MAX_TOKEN_CHARS} characters.")
        if token.count(".") != 2:
            raise InvalidToken("The token does not have three parts.")
        head_text, payload_text, signature_text = token.split(".")
        try:
            head, payload, signature = map(decode_base64url, (head_text, payload_text, signature_text))
        except MalformedBase64:
            raise InvalidToken("A part of the token is not base64url.") from None
        algorithm, kid = self._check_head(_object(head))
        return _SignedToken(algorithm, kid, f"{head_text}.{payload_text}".encode(), signature, payload)

    def _check_head(self, head: Mapping[str, Any]) -> tuple[str, str | None]:
        """The algorithm, and the id of the key."""
        algorithm, kid, type_ = head.get("alg"), head.get("kid"), head.get("typ", "JWT")
        if not isinstance(algorithm, str) or algorithm not in self.allowed_algorithms:
            raise InvalidToken("The algorithm of the token is not allowed.")
        if "crit" in head or "b64" in head:
            raise InvalidToken("The token has an extension that must be understood.")
        if not isinstance(type_, str) or type_.lower() not in _TYPES:
            raise InvalidToken("The token is not one for access.")
        if "kid" in head and not (isinstance(kid, str) and len(kid) <= MAX_KID_CHARS):
            raise InvalidToken(f"The id of the token's key is not a text of at most {MAX_KID_CHARS} characters.")
        return algorithm, kid

    def _check_purpose(self, claims: Mapping[str, Any]) -> None:
        if claims.get("iss") != self.issuer:
            raise InvalidToken("The token is from another issuer.")
        if self.audience not in _texts(claims.get("aud")):
            raise InvalidToken("The token is for another audience.")
        if not set(self.scope.split()).issubset(_scopes(claims)):
            raise InvalidToken("The token does not have the scope that is needed.")

    def _name(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self.principal_claim)
        if not isinstance(name, str):
            raise InvalidToken(f"The token has no text as {self.principal_claim}.")
        try:
            check_principal_name(name)
        except UnacceptableUserName:
            raise InvalidToken(f"The {self.principal_claim} of the token cannot name a principal.") from None
        return name

    def _expiry(self, claims: Mapping[str, Any], now_s: float) -> int:
        issued_s, expires_s = _time(claims, "iat"), _time(claims, "exp")
        begins_s = _time(claims, "nbf") if "nbf" in claims else issued_s
        if now_s >= expires_s + self.clock_skew_s:
            raise InvalidToken("The token has expired.")
        if now_s + self.clock_skew_s < max(issued_s, begins_s):
            raise InvalidToken("The token is not valid yet.")
        if not 0 <= expires_s - issued_s <= MAX_LIFETIME_S:
            raise InvalidToken(f"The token is valid for longer than {MAX_LIFETIME_S} seconds, or for less than none.")
        return expires_s + self.clock_skew_s


def _object(data: bytes) -> dict[str, Any]:
    try:
        return parse_object(data)
    except MalformedJson as error:
        raise InvalidToken(f"The token: {error}") from None


def _time(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if type(value) is not int or not 0 <= value < _MAX_TIME_S:
        raise InvalidToken(f"The token has no time in whole seconds as {name}.")
    return value


def _texts(value: object) -> list[str]:
    """A text, or a list of texts and of nothing else."""
    values = value if isinstance(value, list) else [value]
    texts = [each for each in values if isinstance(each, str)]
    return texts if len(texts) == len(values) else []


def _scopes(claims: Mapping[str, Any]) -> set[str]:
    """As RFC 8693 has them, or in the claim that older issuers use."""
    return {scope for name in ("scope", "scp") for text in _texts(claims.get(name)) for scope in text.split()}
