import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.oauthbearer import (
    AFTER_FAILURE,
    MAX_TOKEN_CHARS,
    MalformedBearer,
    bearer_message,
    parse_bearer,
)


def test_a_token_comes_back_out_of_its_message() -> None:
    assert bearer_message("a.b-c_d") == b"n,,\x01auth=Bearer a.b-c_d\x01\x01"
    login = parse_bearer(bearer_message("a.b-c_d"))
    assert (login.authzid, login.token) == ("", "a.b-c_d")


def test_the_scheme_may_be_written_small_and_extensions_may_stand_anywhere() -> None:
    login = parse_bearer(b"n,a=us=2Cer,\x01host=example.com\x01auth=bearer abc==\x01port=9092\x01empty=\x01\x01")
    assert (login.authzid, login.token) == ("us,er", "abc==")


@pytest.mark.parametrize(
    "message",
    [
        b"", AFTER_FAILURE, b"n,,", b"n,,\x01", b"n,,\x01\x01", b"n,,\x01auth=Bearer a\x01",
        b"n,,auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a\x01\x01\x01", b"n,,\x01auth=Bearer a\x01\x01x", b"n,,x\x01auth=Bearer a\x01\x01",
        b"n,,\x01\x01auth=Bearer a\x01\x01", b"y,,\x01auth=Bearer a\x01\x01", b"p=x,,\x01auth=Bearer a\x01\x01",
        b"n,x,\x01auth=Bearer a\x01\x01", b"n,a=,\x01auth=Bearer a\x01\x01", b"n,a=x=,\x01auth=Bearer a\x01\x01",
        b"n,,\x01host=x\x01\x01", b"n,,\x01auth=Bearer\x01\x01", b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic a\x01\x01", b"n,,\x01auth=Bearer  a\x01\x01", b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", b"n,,\x01auth=Bearer a\x01x\x01\x01",
        b"n,,\x01auth=Bearer a\x01=x\x01\x01", b"n,,\x01auth=Bearer a\x01k1=x\x01\x01",
        b"n,,\x01auth=Bearer a\n\x01\x01",
        b"n,,\x01auth=Bearer a\x01k=\x02\x01\x01", b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer \xc3\xa4\x01\x01",
        b"n,,\x01Auth=Bearer a\x01\x01", b"n,,\x01auth=Bearer a=b\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * (MAX_TOKEN_CHARS + 1) + b"\x01\x01",
        b"n,,\x01auth=Bearer a\x01k=" + b"a" * 30_000 + b"\x01\x01", b"\x01" * 20_000,
    ],
)  # fmt: skip
def test_what_is_not_a_token_in_its_frame_is_malformed(message: bytes) -> None:
    with pytest.raises(MalformedBearer):
        parse_bearer(message)


def test_a_token_has_up_to_16_kib() -> None:
    token = "a" * MAX_TOKEN_CHARS
    assert parse_bearer(bearer_message(token)).token == token


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "ä", "a\n"])
def test_a_client_does_not_send_what_is_not_a_token(token: str) -> None:
    with pytest.raises(MalformedBearer):
        bearer_message(token)


def test_no_token_is_shown() -> None:
    assert "secret" not in repr(parse_bearer(bearer_message("secret")))
    with pytest.raises(MalformedBearer) as error:
        parse_bearer(b"n,,\x01auth=Bearer secret\xff\x01\x01")
    assert error.value.__cause__ is None


@given(st.lists(st.sampled_from([b"n", b",", b"a=", b"\x01", b"auth=", b"Bearer ", b"x", b"=", b"\xff"]), max_size=20))
def test_no_bytes_confuse_the_parser(parts: list[bytes]) -> None:
    with contextlib.suppress(MalformedBearer):
        parse_bearer(b"".join(parts))
