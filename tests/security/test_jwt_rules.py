import base64
import hmac
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.security.jwt_rules import (
    DEFAULT_ALGORITHMS,
    TokenRules,
    UnknownTokenKey,
    UnusableTokenRules,
)
from headwater.security.key_set import MAX_DOCUMENT_BYTES, SUPPORTED_ALGORITHMS, KeySet, MalformedKeySet
from headwater.security.token_identity import InvalidToken, TokenIdentity

ISSUER, AUDIENCE, NOW_S = "https://id.example.com/", "headwater", 1_800_000_000
RULES = TokenRules(issuer=ISSUER, audience=AUDIENCE, allowed_algorithms=tuple(sorted(SUPPORTED_ALGORITHMS)))
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@cache
def private_key(algorithm: str) -> PrivateKey:
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm in CURVES:
        return ec.generate_private_key(CURVES[algorithm])
    return rsa_key()


@cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def public_entry(algorithm: str, **more: Any) -> dict[str, Any]:
    algorithms = jwt.PyJWS()
    entry = json.loads(algorithms.get_algorithm_by_name(algorithm).to_jwk(private_key(algorithm).public_key()))
    return {**entry, "kid": algorithm, **more}


def key_set(*entries: object) -> KeySet:
    return KeySet.parse(json.dumps({"keys": entries}).encode())


@cache
def all_keys() -> KeySet:
    return key_set(*map(public_entry, ["RS256", "ES256", "ES384", "ES512", "EdDSA"]))


CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": NOW_S - 60, "exp": NOW_S + 600}


def claims(**changes: Any) -> dict[str, Any]:
    """The good ones, changed; without those that are None."""
    return {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}


def signed(
    payload: Mapping[str, Any] | bytes, algorithm: str = "ES256", head: Mapping[str, Any] | bytes | None = None
) -> str:
    """Signed by the right key, whatever it says."""
    head = {"alg": algorithm, "kid": algorithm if algorithm[0] not in "RP" else "RS256"} if head is None else head
    first, second = (text(each if isinstance(each, bytes) else json.dumps(each).encode()) for each in (head, payload))
    message = f"{first}.{second}"
    signature = jwt.PyJWS().get_algorithm_by_name(algorithm).sign(message.encode(), private_key(algorithm))
    return f"{message}.{text(signature)}"


def verified(token: str, now_s: float = NOW_S, rules: TokenRules = RULES, keys: KeySet | None = None) -> TokenIdentity:
    return rules.verify(token, keys or all_keys(), now_s)


# Believed


@pytest.mark.parametrize("algorithm", sorted(SUPPORTED_ALGORITHMS))
def test_a_token_of_the_issuer_names_its_principal(algorithm: str) -> None:
    assert verified(signed(claims(), algorithm)) == TokenIdentity("alice", NOW_S + 600 + 30)


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["other", AUDIENCE]}, {"nbf": NOW_S}, {"nbf": NOW_S + 30}, {"iat": NOW_S + 30}, {"extra": {"a": [1,
        2.5]}},
        {"sub": "auth0|5f7c"}, {"sub": "größe"}, {"sub": "User:*"}, {"iat": NOW_S - 85_800},
    ],
)  # fmt: skip
def test_claims_that_are_within_the_rules_are_accepted(changes: dict[str, Any]) -> None:
    assert verified(signed(claims(**changes))).name == changes.get("sub", "alice")


@pytest.mark.parametrize("type_", ["JWT", "jwt", "at+jwt", "application/at+jwt"])
def test_a_token_for_access_may_say_so(type_: str) -> None:
    assert verified(signed(claims(), head={"alg": "ES256", "kid": "ES256", "typ": type_})).name == "alice"


def test_a_token_expires_when_the_skew_is_over() -> None:
    token = signed(claims())
    assert verified(token, NOW_S + 629.9).expires_at_s == NOW_S + 630
    with pytest.raises(InvalidToken, match="expired"):
        verified(token, NOW_S + 630)


def test_another_claim_may_name_the_principal() -> None:
    rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, principal_claim="email")
    assert verified(signed(claims(email="a@example.com")), rules=rules).name == "a@example.com"
    with pytest.raises(InvalidToken, match="email"):
        verified(signed(claims()), rules=rules)


def test_all_scopes_that_are_asked_for_are_needed() -> None:
    rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, scope="kafka log")
    for enough in ({"scope": "log kafka x"}, {"scp": ["kafka", "log"]}, {"scp": "kafka log"}):
        assert verified(signed(claims(**enough)), rules=rules).name == "alice"
    for few in (None, "kafka", "kafka,log", ["kafka", "log", 1], {"kafka": "log"}):
        with pytest.raises(InvalidToken, match="scope"):
            verified(signed(claims(scope=few)), rules=rules)


def test_a_token_without_key_id_is_checked_with_the_only_key() -> None:
    token = signed(claims(), head={"alg": "ES256"})
    entry = public_entry("ES256")
    del entry["kid"]
    for keys in (key_set(public_entry("ES256")), key_set(entry)):
        assert verified(token, keys=keys).name == "alice"
    with pytest.raises(InvalidToken) as error:
        verified(token)
    assert not isinstance(error.value, UnknownTokenKey)


# Not believed


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": None}, {"exp": NOW_S + 0.5}, {"exp": float(NOW_S + 600)}, {"exp": -1}, {"exp": 2**63},
        {"exp": str(NOW_S + 600)},
        {"exp": True}, {"exp": [NOW_S + 600]}, {"exp": NOW_S - 31}, {"exp": NOW_S - 61}, {"exp": 10**4000},
        {"iat": None}, {"iat": NOW_S + 31}, {"iat": "0"}, {"iat": NOW_S - 60 - 24 * 3600}, {"iat": float(NOW_S)},
        {"iat": NOW_S + 10, "exp": NOW_S + 5}, {"nbf": NOW_S + 31}, {"nbf": "0"}, {"nbf": -1}, {"nbf": 0.5},
        {"nbf": 2**63}, {"nbf": True}, {"iat": NOW_S + 31, "nbf": NOW_S},
        {"iss": None}, {"iss": ISSUER[:-1]}, {"iss": ISSUER + "/"}, {"iss": ISSUER.upper()}, {"iss": [ISSUER]},
        {"iss": 1},
        {"aud": None}, {"aud": []}, {"aud": "head"}, {"aud": "headwater2"}, {"aud": "Headwater"}, {"aud": [AUDIENCE,
        1]},
        {"aud": {AUDIENCE: 1}}, {"aud": [[AUDIENCE]]}, {"aud": "*"}, {"aud": f"{AUDIENCE} other"},
        {"sub": None}, {"sub": ""}, {"sub": "*"}, {"sub": "a\nb"}, {"sub": "a\0"}, {"sub": 7}, {"sub": ["alice"]},
        {"sub": "ANONYMOUS"}, {"sub": "__gateway"}, {"sub": "a" * 257}, {"sub": "\ud800"}, {"sub": "a\u202eb"},
        {"sub": True},
    ],
)  # fmt: skip
def test_claims_that_are_not_within_the_rules_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        verified(signed(claims(**changes)))


@pytest.mark.parametrize(
    "head",
    [
        {"alg": "none"}, {"alg": "None"}, {"alg": "nOnE"}, {"alg": ""}, {"alg": None}, {"alg": ["ES256"]},
        {"alg": "es256"},
        {"alg": "HS256"}, {"alg": "HS512"}, {"alg": "ES256K"}, {"alg": "ES521"}, {"alg": "RSA-OAEP"}, {},
        {"alg": "ES256", "kid": None}, {"alg": "ES256", "kid": 7}, {"alg": "ES256", "kid": ["ES256"]},
        {"alg": "ES256", "kid": "k" * 1001}, {"alg": "ES256", "kid": {"a": 1}},
        {"alg": "ES256", "kid": "ES256", "crit": ["exp"]}, {"alg": "ES256", "kid": "ES256", "crit": []},
        {"alg": "ES256", "kid": "ES256", "crit": None}, {"alg": "ES256", "kid": "ES256", "b64": False, "crit": ["b64"]},
        {"alg": "ES256", "kid": "ES256", "b64": False}, {"alg": "ES256", "kid": "ES256", "b64": True},
        {"alg": "ES256", "kid": "ES256", "typ": "logout+jwt"}, {"alg": "ES256", "kid": "ES256", "typ": None},
        {"alg": "ES256", "kid": "ES256", "typ": 1}, {"alg": "ES384", "kid": "ES256"}, {"alg": "RS256", "kid": "ES256"},
        {"alg": "ES256", "kid": "EdDSA"}, {"alg": "ES256", "kid": "RS256"}, {"alg": "EdDSA", "kid": "ES256"},
    ],
)  # fmt: skip
def test_a_head_that_does_not_fit_the_key_or_the_rules_is_refused(head: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken) as error:
        verified(signed(claims(), head=head))
    assert not isinstance(error.value, UnknownTokenKey)


@pytest.mark.parametrize("kid", ["../../etc/passwd", "' OR 1=1 --", "", "rs256", "http://127.0.0.1/", "k" * 1000])
def test_a_key_that_is_not_in_the_set_is_a_reason_of_its_own(kid: str) -> None:
    with pytest.raises(UnknownTokenKey) as error:
        verified(signed(claims(), head={"alg": "ES256", "kid": kid}))
    assert error.value.kid == kid


def test_a_key_that_the_token_brings_along_is_not_used() -> None:
    """The head names a key in every way there is; there is nothing here that could fetch one."""
    stranger = ec.generate_private_key(ec.SECP256R1())
    own = json.loads(jwt.PyJWS().get_algorithm_by_name("ES256").to_jwk(stranger.public_key()))
    head = {"jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/", "jwk": own, "x5c": ["AAAA"]}
    forged = jwt.encode(claims(), stranger, "ES256", headers={**head, "kid": "ES256"})
    with pytest.raises(InvalidToken, match="signature"):
        verified(forged)
    honest = signed(claims(), head={"alg": "ES256", "kid": "ES256", **head})
    assert verified(honest).name == "alice"


@pytest.mark.parametrize("form", [PublicFormat.SubjectPublicKeyInfo, PublicFormat.PKCS1])
def test_a_public_key_is_not_a_secret(form: PublicFormat) -> None:
    """The oldest of tricks: HS256, with what is public as the secret."""
    secret = rsa_key().public_key().public_bytes(Encoding.PEM, form)
    message = ".".join(text(json.dumps(each).encode()) for each in ({"alg": "HS256", "kid": "RS256"}, claims()))
    tag = hmac.digest(secret, message.encode(), "sha256")
    with pytest.raises(InvalidToken, match="algorithm"):
        verified(f"{message}.{text(tag)}")


@pytest.mark.parametrize("signature", [b"", b"\0", bytes(64), bytes(63), b"\xff" * 64, bytes(256), bytes(300)])
@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES512", "EdDSA"])
def test_a_signature_of_any_length_is_only_wrong(algorithm: str, signature: bytes) -> None:
    message = signed(claims(), algorithm).rpartition(".")[0]
    with pytest.raises(InvalidToken, match="signature"):
        verified(f"{message}.{text(signature)}")


def test_a_signature_of_another_token_is_wrong() -> None:
    message, signature = signed(claims(sub="admin")).rpartition(".")[0], signed(claims()).rpartition(".")[2]
    with pytest.raises(InvalidToken, match="signature"):
        verified(f"{message}.{signature}")


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_that_was_changed_anywhere_is_refused(algorithm: str) -> None:
    token = signed(claims(), algorithm)
    for index, character in enumerate(token):
        changed = token[:index] + ("B" if character == "A" else "A") + token[index + 1 :]
        with pytest.raises(InvalidToken):
            verified(changed)


def test_a_last_character_that_decodes_to_the_same_is_refused() -> None:
    token = signed(claims())
    same = [token[:-1] + each for each in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"]
    believed = [each for each in same if is_believed(each)]
    assert believed == [token]


def is_believed(token: str) -> bool:
    try:
        verified(token)
    except InvalidToken:
        return False
    return True


def test_what_is_not_three_parts_of_base64url_is_refused() -> None:
    token = signed(claims())
    head, payload, signature = token.split(".")
    for each in [
        "", ".", "..", "...", head, f"{head}.{payload}", f"{token}.", f".{token}", f"{token}.a.b",
        f"{head}..{signature}",
        f"{head}.{payload}.", f" {token}", f"{token} ", f"{token}\n", f"{head}.{payload} .{signature}", f"{token}=",
        f"{head}==.{payload}.{signature}", f"{head}.{payload}=.{signature}", f"{head}+.{payload}.{signature}",
        f"{head}/.{payload}.{signature}", f"{head}ä.{payload}.{signature}", f"{token}\ud800", "a" * 16_385,
        "." * 16_384,
        f"{token}{'A' * 16_384}", f"{head}.{payload}.{signature[:-1]}",
    ]:  # fmt: skip
        with pytest.raises(InvalidToken):
            verified(each)


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"null", b"[]", b"1", b"{", b"\xff", b"[" * 10_000, b'{"a":' * 3000, b'{"sub":"alice","sub":"admin"}',
        json.dumps(CLAIMS)[:-1].encode() + b',"sub":"admin"}',
        json.dumps(CLAIMS)[:-1].encode() + b',"x":{"a":1,"a":2}}',
        json.dumps(CLAIMS)[:-1].encode() + b',"x":NaN}', json.dumps(CLAIMS)[:-1].encode() + b',"exp2":Infinity}',
        json.dumps(CLAIMS)[:-1].encode() + b',"x":' + b"9" * 5000 + b"}", json.dumps(CLAIMS).encode("utf-16"),
        json.dumps(CLAIMS).encode() + b"{}", b"\xef\xbb\xbf" + json.dumps(CLAIMS).encode(),
    ],
)  # fmt: skip
def test_a_payload_that_is_not_one_object_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidToken):
        verified(signed(payload))
    with pytest.raises(InvalidToken):
        verified(signed(claims(), head=payload))


def test_an_error_has_nothing_of_the_token() -> None:
    for changes in ({"sub": "canary\n"}, {"iss": "canary"}, {"aud": "canary"}, {"exp": "canary"}):
        with pytest.raises(InvalidToken) as error:
            verified(signed(claims(**changes)))
        assert "canary" not in str(error.value)


@given(st.text("eyJ.-_A=\n ", max_size=40) | st.binary(max_size=60).map(text))
def test_no_text_confuses_the_rules(token: str) -> None:
    head = signed(claims()).partition(".")[0]
    for each in (token, f"{head}.{token}.{token}"):
        with pytest.raises(InvalidToken):
            verified(each)


# Rules


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": ""}, {"audience": ""}, {"principal_claim": ""}, {"allowed_algorithms": ()},
        {"allowed_algorithms": ("none",)}, {"allowed_algorithms": ("ES256", "HS256")},
        {"allowed_algorithms": ("es256",)},
        {"clock_skew_s": -1}, {"clock_skew_s": 301},
    ],
)  # fmt: skip
def test_rules_that_let_in_too_much_do_not_exist(changes: dict[str, Any]) -> None:
    with pytest.raises(UnusableTokenRules):
        TokenRules(**{"issuer": ISSUER, "audience": AUDIENCE, **changes})


def test_an_algorithm_that_is_not_allowed_is_refused_though_the_key_fits() -> None:
    rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, allowed_algorithms=("ES256",))
    with pytest.raises(InvalidToken, match="not allowed"):
        verified(signed(claims(), "RS256"), rules=rules)
    assert SUPPORTED_ALGORITHMS.issuperset(DEFAULT_ALGORITHMS)


# Key sets


@pytest.mark.parametrize(
    "document",
    [
        b"", b"null", b"[]", b"{}", b'{"keys":null}', b'{"keys":{}}', b'{"keys":[]}', b'{"keys":[null,1,"a",[]]}',
        b'{"keys":[{}]}', b'{"keys":[' + b"[" * 100_000, b'{"keys":[],"keys":[]}', b" " * (MAX_DOCUMENT_BYTES + 1),
        b'{"keys":[' + b"{}," * 100 + b"{}]}",
    ],
)  # fmt: skip
def test_a_document_without_a_key_of_use_is_malformed(document: bytes) -> None:
    with pytest.raises(MalformedKeySet):
        KeySet.parse(document)


@pytest.mark.parametrize(
    ("algorithm", "change"),
    [
        ("RS256", {"kty": "oct", "k": "AAAA"}), ("RS256", {"kty": "rsa"}), ("RS256", {"use": "enc"}), ("RS256",
        {"use": None}),
        ("RS256", {"key_ops": ["encrypt"]}), ("RS256", {"key_ops": "verify"}), ("RS256", {"alg": "RSA-OAEP"}),
        ("RS256", {"alg": "HS256"}), ("RS256", {"alg": "none"}), ("RS256", {"alg": ["RS256"]}), ("RS256",
        {"alg": None}),
        ("RS256", {"kid": 7}), ("RS256", {"kid": "k" * 1001}), ("RS256", {"n": 5}), ("RS256", {"n": ""}), ("RS256",
        {"e": "AQ"}),
        ("RS256", {"e": "AAAAAAAAAAAAAAAA"}), ("RS256", {"e": "____________"}), ("RS256", {"e": "AQAB="}), ("RS256",
        {"e": "Ag"}),
        ("RS256", {"n": text(b"\xff" * 128)}), ("RS256", {"n": text(b"\xff" * 2000)}), ("RS256", {"n": "*" * 300}),
        ("ES256", {"crv": "P-384"}), ("ES256", {"crv": "secp256k1"}), ("ES256", {"crv": ["P-256"]}), ("ES256",
        {"x": "AAAA"}),
        ("ES256", {"x": text(bytes(32)), "y": text(bytes(32))}), ("ES256", {"y": text(b"\1" * 32)}), ("ES256",
        {"alg": "ES384"}),
        ("EdDSA", {"crv": "Ed448"}), ("EdDSA", {"crv": "X25519"}), ("EdDSA", {"x": "AAAA"}), ("EdDSA", {"x": None}),
    ],
)  # fmt: skip
def test_a_key_that_is_not_of_use_is_passed_over(algorithm: str, change: dict[str, Any]) -> None:
    with pytest.raises(MalformedKeySet):
        key_set(public_entry(algorithm, **change))
    keys = key_set(public_entry(algorithm, **change), public_entry("ES384"))
    assert set(keys.by_kid) == {"ES384"}


def test_a_coordinate_has_the_length_of_its_curve() -> None:
    entry = public_entry("ES256")
    for change in ({"x": "AAAA" + entry["x"]}, {"y": text(b"\0" + base64.urlsafe_b64decode(entry["y"] + "="))}):
        with pytest.raises(MalformedKeySet):
            key_set(entry | change)


def test_keys_below_2048_bits_are_passed_over() -> None:
    numbers = rsa_key(1024).public_key().public_numbers()
    entry = {"kty": "RSA", "n": text(numbers.n.to_bytes(128, "big")), "e": "AQAB", "kid": "small"}
    with pytest.raises(MalformedKeySet):
        key_set(entry)


def test_the_algorithm_of_a_key_binds_its_tokens() -> None:
    keys = key_set(public_entry("RS256", alg="RS256", use="sig", key_ops=["verify"]))
    assert verified(signed(claims(), "RS256"), keys=keys).name == "alice"
    with pytest.raises(InvalidToken, match="does not fit"):
        verified(signed(claims(), "PS256"), keys=keys)


def test_of_a_private_key_that_an_issuer_shows_the_public_part_counts() -> None:
    entry = json.loads(jwt.PyJWS().get_algorithm_by_name("ES256").to_jwk(private_key("ES256")))
    keys = key_set(entry | {"kid": "ES256"})
    assert isinstance(keys.by_kid["ES256"].key, ec.EllipticCurvePublicKey)
    assert verified(signed(claims()), keys=keys).name == "alice"


def test_of_two_keys_with_one_id_the_first_counts() -> None:
    keys = key_set(public_entry("ES256"), public_entry("EdDSA", kid="ES256"))
    assert verified(signed(claims()), keys=keys).name == "alice"


def test_a_key_of_a_kind_to_come_does_not_hide_the_others() -> None:
    stranger = ed448.Ed448PrivateKey.generate().public_key().public_bytes_raw()
    strangers = {"kty": "AKP", "alg": "ML-DSA-65", "pub": "AAAA"}, {"kty": "OKP", "crv": "Ed448", "x": text(stranger)}
    keys = key_set(*strangers, public_entry("EdDSA"))
    assert verified(signed(claims(), "EdDSA"), keys=keys).name == "alice"


@given(st.dictionaries(st.sampled_from(["kty", "kid", "n", "e", "x", "y", "crv", "alg", "use", "key_ops", "d"]),
                       st.none() | st.integers() | st.sampled_from(["RSA", "EC", "OKP", "P-256", "Ed25519", "AQAB",
        "sig"])
                       | st.lists(st.just("verify"), max_size=2)))  # fmt: skip
@settings(max_examples=100)
def test_no_entry_confuses_a_key_set(entry: dict[str, Any]) -> None:
    keys = key_set(entry, public_entry("ES256", kid="good"))
    assert "good" in keys.by_kid
