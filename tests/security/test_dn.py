"""Names of certificates as text, against what Java writes."""

import json
import re
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.security.dn import (
    MAX_SUBJECT_BYTES,
    UnreadableName,
    common_names,
    dn_of_certificate,
    dn_of_der,
    dn_of_name,
    subject_of,
)
from tests.security.subjects import BMP_STRING, COMMON_NAME, ORGANIZATION, UTF8_STRING, certificate, element, name

JAVA = json.loads((Path(__file__).parent / "java_names.json").read_text())["names"]
REPLACED = "\ufffd"
"""What Java writes for bytes that are not UTF-8."""
READABLE = [each for each in JAVA if REPLACED not in each["text"]]
texts = st.text(st.sampled_from(' \r\0\n#,+="\\<>;ab€'), max_size=6)


def test_a_name_is_written_as_java_writes_it() -> None:
    assert {each["case"]: dn_of_der(bytes.fromhex(each["der"])) for each in READABLE} == {
        each["case"]: each["text"] for each in READABLE
    }
    assert len(READABLE) > 60


def test_a_name_for_which_java_would_write_replacements_is_refused() -> None:
    ambiguous = [each for each in JAVA if REPLACED in each["text"]]
    for each in ambiguous:
        with pytest.raises(UnreadableName, match="not UTF-8"):
            dn_of_der(bytes.fromhex(each["der"]))
    assert len(ambiguous) == 6


def test_the_subject_of_a_certificate_is_found_whatever_it_is() -> None:
    for each in JAVA:
        assert subject_of(certificate(bytes.fromhex(each["der"]))).hex() == each["der"], each["case"]


def test_a_certificate_whose_subject_cryptography_refuses_has_a_name() -> None:
    [old] = [each for each in JAVA if each["case"] == "PrintableString with a star"]
    client = certificate(bytes.fromhex(old["der"]))
    with pytest.raises(ValueError):
        x509.load_der_x509_certificate(client)
    assert dn_of_certificate(client) == "CN=*.example.com"


def test_a_name_of_cryptography_is_written_as_java_writes_it() -> None:
    email = x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c")
    duke = x509.NameAttribute(NameOID.COMMON_NAME, "wrüte=user")
    assert dn_of_name(x509.Name([email, duke])) == "CN=wrüte\\=user,1.2.840.113549.1.9.1=#16056140622e63"


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([COMMON_NAME, ORGANIZATION]), texts), min_size=1, max_size=3), max_size=3
    )
)
def test_no_value_looks_like_a_part_of_the_name(steps: list[list[tuple[bytes, str]]]) -> None:
    keywords = {COMMON_NAME: "CN", ORGANIZATION: "O"}
    encoded = name([[(oid, UTF8_STRING, text.encode()) for oid, text in step] for step in steps])
    expected = [sorted((keywords[oid], text) for oid, text in step) for step in steps]
    assert parsed(dn_of_der(encoded)) == expected


def test_common_names_are_without_escapes_and_in_their_order() -> None:
    der = name([
        [(COMMON_NAME, UTF8_STRING, b"a, b")],
        [(ORGANIZATION, UTF8_STRING, b"o")],
        [(COMMON_NAME, BMP_STRING, "wrüte".encode("utf-16-be"))],
    ])  # fmt: skip
    assert common_names(der) == ["a, b", "wrüte"]


@pytest.mark.parametrize(
    ("tag", "value", "what"),
    [(0x02, b"\x05", "not text"), (UTF8_STRING, b"\xff", "not UTF-8"), (BMP_STRING, b"\xd8\x00", "not UTF-16")],
)
def test_a_common_name_that_is_no_text_is_refused(tag: int, value: bytes, what: str) -> None:
    with pytest.raises(UnreadableName, match=what):
        common_names(name([[(COMMON_NAME, tag, value)]]))


def test_a_name_that_is_cut_short_is_refused() -> None:
    for each in JAVA:
        der = bytes.fromhex(each["der"])
        for size in range(0, len(der), 7):
            with pytest.raises(UnreadableName):
                dn_of_der(der[:size])


def test_what_stands_behind_a_name_is_refused() -> None:
    der = name([[(COMMON_NAME, UTF8_STRING, b"a")]])
    with pytest.raises(UnreadableName):
        dn_of_der(der + b"\x05\x00")


@pytest.mark.parametrize(
    "step",
    [
        element(0x31, b""),
        element(0x30, element(0x30, COMMON_NAME + element(UTF8_STRING, b"a"))),
        element(0x31, element(0x30, COMMON_NAME)),
        element(0x31, element(0x30, element(UTF8_STRING, b"a") * 2)),
        element(0x31, element(0x30, COMMON_NAME + element(UTF8_STRING, b"a") * 2)),
        element(0x31, element(0x30, element(0x06, b"") + element(UTF8_STRING, b"a"))),
        element(0x31, element(0x30, element(0x06, b"\x55\x84") + element(UTF8_STRING, b"a"))),
        element(0x31, element(0x30, element(0x06, b"\xff" * 5_000 + b"\x01") + element(UTF8_STRING, b"a"))),
        element(0x31, element(0x30, COMMON_NAME + b"\x1f\x81\x01\x00")),
        element(0x31, element(0x30, COMMON_NAME + b"\x0c\x80a\x00\x00")),
        element(0x31, element(0x30, COMMON_NAME + b"\x0c\x81\x01a")),
        element(0x31, element(0x30, COMMON_NAME + b"\x0c\x82\x00\x81" + b"a" * 0x81)),
        element(0x31, element(0x30, COMMON_NAME + b"\x0c\x85\x01\x00\x00\x00\x00")),
    ],
    ids=str,
)
def test_a_name_of_another_build_is_refused(step: bytes) -> None:
    with pytest.raises(UnreadableName):
        dn_of_der(element(0x30, step))


def test_a_name_has_a_limit() -> None:
    with pytest.raises(UnreadableName, match="limit"):
        dn_of_der(name([[(COMMON_NAME, UTF8_STRING, b"a" * MAX_SUBJECT_BYTES)]]))


@settings(max_examples=200)
@given(st.sampled_from(JAVA), st.data())
def test_hostile_bytes_are_read_or_refused(vector: dict[str, str], data: st.DataObject) -> None:
    der = bytearray.fromhex(vector["der"])
    for _ in range(data.draw(st.integers(1, 4))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    try:
        dn_of_der(bytes(der))
    except UnreadableName:
        return


def parsed(dn: str) -> list[list[tuple[str, str]]]:
    """Back to steps, as RFC 2253 says: what has no backslash before it divides."""
    if not dn:
        return []
    steps: list[list[tuple[str, str]]] = [[]]
    tokens = re.findall(r"\\00|\\.|.", dn, re.DOTALL)
    keyword, value, is_value = "", "", False
    for token in [*tokens, ","]:
        if token in (",", "+"):
            steps[-1].append((keyword, value))
            keyword, value, is_value = "", "", False
            if token == ",":
                steps.append([])
        elif token == "=" and not is_value:
            is_value = True
        elif is_value:
            value += "\0" if token == "\\00" else token[-1]
        else:
            keyword += token
    return [sorted(step) for step in reversed(steps[:-1])]
