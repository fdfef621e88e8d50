"""Encodings of names and of certificates around them, also of those that `cryptography` would not write."""

from collections.abc import Iterable
from functools import cache

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

UTF8_STRING = 0x0C
BMP_STRING = 0x1E
COMMON_NAME = bytes.fromhex("0603550403")
ORGANIZATION = bytes.fromhex("060355040a")
_ECDSA = bytes.fromhex("300a06082a8648ce3d040302")


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(octets)]) + octets + content


def name(steps: Iterable[Iterable[tuple[bytes, int, bytes]]]) -> bytes:
    """Each step has attributes: an encoded object identifier, a type, and the bytes of the value."""
    encoded = (
        sorted(element(0x30, oid + element(tag, value)) for oid, tag, value in attributes) for attributes in steps
    )
    return element(0x30, b"".join(element(0x31, b"".join(step)) for step in encoded))


def certificate(subject: bytes) -> bytes:
    """Its signature is none; to be read, not to be trusted."""
    issuer = name([[(COMMON_NAME, UTF8_STRING, b"ca")]])
    validity = element(0x30, element(0x17, b"250101000000Z") + element(0x17, b"350101000000Z"))
    version = element(0xA0, element(0x02, b"\x02"))
    fields = version + element(0x02, b"\x01") + _ECDSA + issuer + validity + subject + _public_key()
    signature = element(0x03, b"\0" + element(0x30, element(0x02, b"\x01") * 2))
    return element(0x30, element(0x30, fields) + _ECDSA + signature)


@cache
def _public_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
