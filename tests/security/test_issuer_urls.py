import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.security.issuer_urls import (
    MAX_URL_CHARS,
    MalformedMetadata,
    UnusableUrl,
    check_url,
    keys_url,
    metadata_url,
    redirected,
)
from tests.support.effort import amount

ISSUER = "https://id.example.com/realms/a"
KEYS = "https://id.example.com/keys"
PIECES = [
    "https:",
    "http:",
    "//",
    "/",
    "\\",
    "@",
    "#",
    "?",
    ":",
    "443",
    "a",
    "id.example.com",
    "127.0.0.1",
    "[::1]",
    "é",
]


def metadata(**changes: Any) -> bytes:
    return json.dumps({"issuer": ISSUER, "jwks_uri": KEYS, **changes}).encode()


@pytest.mark.parametrize(
    "url",
    [
        KEYS, "https://[2001:db8::1]:8443/keys?x=1", "HTTPS://ID.example.com", "http://127.0.0.1:8080/keys",
        "http://localhost/keys", "http://[::1]:1/", "http://127.8.9.1",
    ],
)  # fmt: skip
def test_keys_are_fetched_over_https_or_from_this_machine(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "", "id.example.com", "http://id.example.com/keys", "http://10.0.0.1/", "http://169.254.169.254/",
        "file:///etc/passwd", "ftp://127.0.0.1/", "https://", "https:///keys", "https://user@id.example.com/",
        "https://user:secret@id.example.com/", "https://id.example.com/#keys", "https://id.example.com:99999/",
        "https://id.example.com:x/", "https://id.example.com:0/", "https://id.example.com\\@127.0.0.1/",
        "http://localhost.example.com/", "http://127.0.0.1.example.com/", "http://localhost\\.example.com/",
        "https://id.example.com/a b", "https://id.example.com/\n", " https://id.example.com/", "https://größe.de/",
        "http://127.0.0.1@id.example.com/", "http://0x7f000001/", "http://[::1/", "https://" + "a" * MAX_URL_CHARS,
    ],
)  # fmt: skip
def test_keys_are_fetched_from_nowhere_else(url: str) -> None:
    with pytest.raises(UnusableUrl):
        check_url(url)


def test_the_metadata_of_an_issuer_is_behind_its_name() -> None:
    assert metadata_url(ISSUER) == metadata_url(ISSUER + "/") == ISSUER + "/.well-known/openid-configuration"
    for issuer in ("accounts.example.com", ISSUER + "?tenant=a"):
        with pytest.raises(UnusableUrl):
            metadata_url(issuer)


def test_the_metadata_says_where_the_keys_are() -> None:
    assert keys_url(metadata(), ISSUER) == KEYS
    assert keys_url(metadata(jwks_uri="https://keys.example.net/"), ISSUER) == "https://keys.example.net/"
    local = "http://127.0.0.1:1/"
    assert keys_url(metadata(issuer=local, jwks_uri=local + "keys"), local) == local + "keys"


@pytest.mark.parametrize(
    "document",
    [
        metadata(issuer=ISSUER + "/"), metadata(issuer=None), metadata(issuer=[ISSUER]), metadata(jwks_uri=None),
        metadata(jwks_uri=[KEYS]), b"", b"[]", b'"x"', b"\xff", metadata()[:-1] + b',"issuer":"https://other"}',
    ],
)  # fmt: skip
def test_metadata_of_another_issuer_or_without_keys_is_refused(document: bytes) -> None:
    with pytest.raises(MalformedMetadata):
        keys_url(document, ISSUER)


@pytest.mark.parametrize("url", ["http://id.example.com/keys", "http://127.0.0.1/keys", "file:///keys"])
def test_an_issuer_with_https_has_its_keys_there_too(url: str) -> None:
    with pytest.raises(UnusableUrl):
        keys_url(metadata(jwks_uri=url), ISSUER)


@pytest.mark.parametrize(
    "location", ["/moved", "moved", KEYS + "/2", "https://id.example.com:443/", "?x", "", "//ID.example.com/x"]
)
def test_a_redirect_may_lead_to_the_same_host(location: str) -> None:
    assert urlsplit(redirected(KEYS, location)).hostname == "id.example.com"


@pytest.mark.parametrize(
    "location",
    [
        "https://other.example.com/keys", "//other.example.com/", "http://id.example.com/keys", "http://127.0.0.1/",
        "https://id.example.com:8443/", "https://id.example.com@127.0.0.1/", "/\\127.0.0.1/x", "file:///etc/passwd",
        "https://id.example.com.evil.net/", "https://[", "/" + "x" * MAX_URL_CHARS,
    ],
)  # fmt: skip
def test_a_redirect_may_not_lead_elsewhere(location: str) -> None:
    with pytest.raises(UnusableUrl):
        redirected(KEYS, location)


@settings(max_examples=amount(3_000, 100))
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(max_size=50))
def test_no_redirect_leads_to_another_host(location: str) -> None:
    try:
        target = redirected(KEYS, location)
    except UnusableUrl:
        return
    parts = urlsplit(target)
    assert (parts.scheme, parts.hostname, parts.port or 443) == ("https", "id.example.com", 443)


@settings(max_examples=amount(3_000, 100))
@given(
    st.binary(max_size=100)
    | st.dictionaries(
        st.sampled_from(["issuer", "jwks_uri", "x"]),
        st.sampled_from([ISSUER, KEYS]) | st.none() | st.text(max_size=20) | st.lists(st.integers()),
    ).map(lambda values: json.dumps(values).encode())
)
def test_any_document_gives_an_https_url_or_is_refused(document: bytes) -> None:
    try:
        url = keys_url(document, ISSUER)
    except (MalformedMetadata, UnusableUrl):
        return
    assert urlsplit(url).scheme == "https"
