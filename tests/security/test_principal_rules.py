"""Users from names of certificates, against what Kafka makes of them."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.principal import Principal
from headwater.security.principal_rules import (
    MAX_NAME_CHARS,
    CertificatePrincipals,
    MalformedRule,
    NoPrincipal,
    NoRuleApplies,
    PrincipalRules,
    PrincipalSource,
)
from tests.security.subjects import COMMON_NAME, UTF8_STRING, certificate, name

KAFKA = json.loads((Path(__file__).parent / "kafka_principal_rules.json").read_text())
VALID = [each for each in KAFKA["rules"] if each["users"] != "malformed"]
MALFORMED = [each["rules"] for each in KAFKA["rules"] if each["users"] == "malformed"]


@pytest.mark.parametrize("vector", VALID, ids=lambda each: each["rules"])
def test_rules_make_of_a_name_what_kafka_makes_of_it(vector: dict[str, object]) -> None:
    rules = PrincipalRules(str(vector["rules"]))
    expected = [user or None for user in vector["users"]]  # type: ignore[attr-defined]
    assert [user_of(rules, dn) for dn in KAFKA["names"]] == expected


@pytest.mark.parametrize("rules", MALFORMED)
def test_what_kafka_takes_for_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(MalformedRule):
        PrincipalRules(rules)


def test_rules_of_a_list_count_in_its_order() -> None:
    rules = PrincipalRules(["RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "RULE:CN=([^,]+),.*/other-$1/,", "DEFAULT"])
    assert rules.name("CN=Duke,OU=ServiceUsers,O=Org") == "Duke"
    assert rules.name("CN=Duke,OU=Users,O=Org") == "other-Duke"
    assert rules.name("O=Org") == "O=Org"


@pytest.mark.parametrize("rules", ["", " , ,", [], ["", ","]])
def test_without_a_rule_there_is_no_start(rules: str | list[str]) -> None:
    with pytest.raises(MalformedRule, match="DEFAULT"):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    "pattern", ["CN=(?=a)a", "(?<=CN=)a", r"(a)\1", "a++", "(?>a)", "a{2000}", "(a", r"\Z", r"\p{Lower}", "\ud800"]
)
def test_a_pattern_that_re2_does_not_know_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(MalformedRule, match="RE2"):
        PrincipalRules(f"RULE:{pattern}/x/")


@pytest.mark.parametrize(
    "pattern", ["[a-z&&[^b]]", "[a[bc]]", "[[:alpha:]]", r"a\v", r"\Ca", r"\101", "(?U)a*", "(?i-sU:a)"]
)
def test_a_pattern_that_re2_reads_otherwise_than_java_is_refused(pattern: str) -> None:
    with pytest.raises(MalformedRule, match="otherwise than Java"):
        PrincipalRules(f"RULE:{pattern}/x/")


@pytest.mark.parametrize("pattern", [r"\[a&&b\]", r"[\[&]", r"\Q[a&&[b\E", "[]&]", "[^]]a", "a&&b", r"\\v"])
def test_a_pattern_that_only_looks_so_is_taken(pattern: str) -> None:
    assert user_of(PrincipalRules(f"RULE:{pattern}/x/"), "CN=b") is None


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ("RULE:CN=.*/$1/", "no group"),
        ("RULE:CN=(.*)/$x/", "has no number"),
        ("RULE:CN=(.*)/${n}/", "has no number"),
        ("RULE:CN=(.*)/a$/", "has no number"),
        (f"RULE:{'a' * 5_000}/x/", "at most"),
        (f"RULE:a/{'$1' * 5_000}/", "at most"),
    ],
)
def test_a_rule_that_could_only_fail_later_is_refused_at_the_start(rule: str, what: str) -> None:
    with pytest.raises(MalformedRule, match=what):
        PrincipalRules(rule)


def test_no_rule_is_told_apart_from_a_name_that_is_no_user() -> None:
    with pytest.raises(NoRuleApplies, match="CN=x"):
        PrincipalRules("RULE:CN=y/y/").name("CN=x")
    with pytest.raises(NoPrincipal) as refusal:
        PrincipalRules("DEFAULT").name("")
    assert not isinstance(refusal.value, NoRuleApplies)


@pytest.mark.parametrize("user", ["ANONYMOUS", "*", "__gateway", "", "a\nb", "a\x85b", "a\u2028b", "a" * 5_000])
def test_a_certificate_stands_for_no_user_of_the_clusters_own(user: str) -> None:
    with pytest.raises(NoPrincipal):
        PrincipalRules("RULE:CN=(.*)/$1/").name(f"CN={user}")


def test_a_name_cannot_be_made_such_a_user_by_its_case() -> None:
    with pytest.raises(NoPrincipal):
        PrincipalRules("RULE:CN=(.*)/$1/U").name("CN=anonymous")


def test_a_value_with_a_comma_is_not_taken_for_another_attribute() -> None:
    der = name([[(COMMON_NAME, UTF8_STRING, b"duke,OU=ServiceUsers")]])
    principals = CertificatePrincipals(rules=PrincipalRules("RULE:^CN=([^,]*),OU=ServiceUsers.*$/$1/"))
    with pytest.raises(NoRuleApplies):
        principals.of(certificate(der))


def test_a_pattern_takes_no_longer_for_a_hostile_name() -> None:
    rules = PrincipalRules(["RULE:(a*)*b/$1/", "RULE:(.*)(.*)(.*)(.*)(.*)x/$1/", "DEFAULT"])
    dn = "a" * MAX_NAME_CHARS
    assert rules.name(dn) == dn


@given(st.text(st.sampled_from("RULE:DFAT/$1LU,.*()[]\\& \ud800x"), max_size=30), st.text(max_size=10))
def test_any_text_is_rules_or_refused(rules: str, dn: str) -> None:
    try:
        user = PrincipalRules(f"RULE:{rules}").name(dn)
    except (MalformedRule, NoPrincipal):
        return
    assert user


def test_a_certificate_stands_for_its_distinguished_name() -> None:
    der = name([[(COMMON_NAME, UTF8_STRING, "wrüte=user".encode())]])
    assert CertificatePrincipals().of(certificate(der)) == Principal.user("CN=wrüte\\=user")


def test_a_certificate_may_stand_for_its_common_name() -> None:
    client = issued("Duke, the first")
    assert CertificatePrincipals(PrincipalSource.CN).of(client) == Principal.user("Duke, the first")


def test_rules_for_another_name_than_the_distinguished_one_are_refused() -> None:
    with pytest.raises(MalformedRule, match="cn"):
        CertificatePrincipals(PrincipalSource.CN, PrincipalRules("DEFAULT"))


def test_of_two_common_names_none_counts() -> None:
    client = certificate(name([[(COMMON_NAME, UTF8_STRING, each)] for each in (b"duke", b"admin")]))
    with pytest.raises(NoPrincipal, match="2 names"):
        CertificatePrincipals(PrincipalSource.CN).of(client)


def test_the_first_dns_name_counts_in_lower_case() -> None:
    client = issued(
        "x", x509.DNSName("App.Example.com"), x509.DNSName("other"), x509.UniformResourceIdentifier("spiffe://a/b")
    )
    assert CertificatePrincipals(PrincipalSource.SAN_DNS).of(client) == Principal.user("app.example.com")


def test_the_only_uri_counts() -> None:
    spiffe = x509.UniformResourceIdentifier("spiffe://example.com/ns/a")
    assert CertificatePrincipals(PrincipalSource.SAN_URI).of(issued("x", x509.DNSName("a"), spiffe)) == Principal.user(
        "spiffe://example.com/ns/a"
    )
    with pytest.raises(NoPrincipal, match="2 names"):
        CertificatePrincipals(PrincipalSource.SAN_URI).of(
            issued("x", spiffe, x509.UniformResourceIdentifier("spiffe://b"))
        )


@pytest.mark.parametrize("source", [PrincipalSource.SAN_DNS, PrincipalSource.SAN_URI, "san-dns"])
def test_a_certificate_without_the_name_stands_for_no_user(source: PrincipalSource) -> None:
    for client in (issued("x"), issued("x", x509.RFC822Name("a@b.c"))):
        with pytest.raises(NoPrincipal):
            CertificatePrincipals(PrincipalSource(source)).of(client)


@pytest.mark.parametrize("source", PrincipalSource)
def test_a_certificate_whose_names_cannot_be_read_stands_for_no_user(source: PrincipalSource) -> None:
    with pytest.raises(NoPrincipal):
        CertificatePrincipals(source).of(certificate(name([[(COMMON_NAME, UTF8_STRING, b"\xff")]])))


def user_of(rules: PrincipalRules, dn: str) -> str | None:
    """None: no rule applies, or they make nothing of the name."""
    try:
        return rules.name(dn)
    except NoRuleApplies:
        return None
    except NoPrincipal as refusal:
        assert "''" in str(refusal)
        return None


def issued(common_name: str, *alternatives: x509.GeneralName) -> bytes:
    key = ed25519.Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    builder = x509.CertificateBuilder(
        issuer_name=subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=datetime(2025, 1, 1, tzinfo=UTC),
        not_valid_after=datetime(2035, 1, 1, tzinfo=UTC),
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(key, None).public_bytes(Encoding.DER)
