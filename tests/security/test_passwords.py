import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.passwords import RANDOM_BYTES, generated_password
from headwater.security.plain import parse_plain, plain_message


@given(st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES))
def test_a_password_has_24_characters_that_need_no_quoting(random: bytes) -> None:
    password = generated_password(random)
    assert len(password) == 24
    assert password.isascii() and password.isalnum()
    assert not set(password) & set("0O1Il")
    assert parse_plain(plain_message("alice", password)).password == password


def test_each_password_has_140_bits() -> None:
    """The last characters change with the first bytes: nothing of what is random is thrown away early."""
    alphabet = {character for byte in range(256) for character in generated_password(bytes([byte]) * RANDOM_BYTES)}
    assert 24 * math.log2(len(alphabet)) > 139.9
    assert len({generated_password(number.to_bytes(32, "big")) for number in range(1000)}) == 1000


def test_too_little_randomness_is_not_taken() -> None:
    with pytest.raises(AssertionError):
        generated_password(bytes(16))
