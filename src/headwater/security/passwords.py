"""Passwords that are made here: long enough that no number of iterations matters, and easy to copy by hand."""

from typing import Final

PASSWORD_CHARS: Final = 24
RANDOM_BYTES: Final = 32
"""More than a password has, so that each character is as likely as any other."""
_ALPHABET: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""57 letters and digits: 140 bits in 24. Without 0 and O, 1, I and l."""


def generated_password(random: bytes) -> str:
    """From random bytes, of which there are 32."""
    assert len(random) == RANDOM_BYTES, "a password is made from 256 random bits"
    number = int.from_bytes(random, "big")
    characters = []
    for _ in range(PASSWORD_CHARS):
        number, index = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[index])
    return "".join(characters)
