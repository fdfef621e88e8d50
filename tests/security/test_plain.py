import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.plain import MalformedPlain, parse_plain, plain_message


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\0", b"\0\0", b"user", b"user\0password", b"\0user\0", b"\0\0password", b"user\0\0password",
        b"\0user\0password\0", b"\0user\0pass\0word", b"\0\0user\0password", b"a\0b\0c\0d", b"\0" * 1000,
        b"admin\0user\0password", b"User\0user\0password", b"\0" + b"a" * 256 + b"\0password",
        b"\0user\0" + b"a" * 256, b"a" * 256 + b"\0user\0password", b"\0" + "ä".encode() * 128 + b"\0password",
        b"\0us\xffer\0password", b"\0user\0\xff\xfe", b"\0user\0\xed\xa0\x80", b"\0us\xc0\xa0er\0password",
    ],
)  # fmt: skip
def test_what_is_not_a_user_and_a_password_is_malformed(message: bytes) -> None:
    with pytest.raises(MalformedPlain):
        parse_plain(message)


@pytest.mark.parametrize("authzid", [b"", "jörg".encode()])
def test_the_authorization_identity_is_empty_or_the_user(authzid: bytes) -> None:
    login = parse_plain(authzid + b"\0" + "jörg\0päss wörd".encode())
    assert (login.user, login.password) == ("jörg", "päss wörd")


def test_each_part_has_up_to_255_bytes() -> None:
    part = "a" * 255
    assert parse_plain(plain_message(part, part)).password == part
    with pytest.raises(MalformedPlain):
        plain_message(part + "a", part)


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(parse_plain(b"\0user\0secret"))
    with pytest.raises(MalformedPlain) as error:
        parse_plain(b"\0user\0secret\xff")
    assert "secret" not in repr(error.value)
    assert error.value.__cause__ is None


@given(st.binary(max_size=600))
def test_no_bytes_confuse_the_parser(data: bytes) -> None:
    try:
        login = parse_plain(data)
    except MalformedPlain:
        return
    assert data.endswith(plain_message(login.user, login.password))
