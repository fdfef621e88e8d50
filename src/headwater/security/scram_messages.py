"""The four messages of a SCRAM login as text (RFC 5802, section 7).

    client first    n,[a=authzid],n=user,r=nonce[,extensions]
    server first    r=nonce of both,s=salt,i=iterations[,extensions]
    client final    c=the client's head in base64,r=nonce of both[,extensions],p=proof
    server final    v=signature                                                  or e=error

The texts are kept as they came: what is signed is their bytes. An extension that nothing here knows is passed over, and
signed with the rest; `m=` says that it must be known, and `tokenauth=true` that the user is a delegation token.
"""

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final, Self

from headwater.security.gs2 import MalformedGs2, parse_gs2, unescape_name
from headwater.security.strict_base64 import MalformedBase64, decode_base64

MAX_MESSAGE_BYTES: Final = 4096
MAX_NONCE_CHARS: Final = 256
"""Of each side."""
MIN_NONCE_BYTES: Final = 16
"""Of what a nonce is made from."""
_PRINTABLE: Final = frozenset(map(chr, range(0x21, 0x7F))) - {","}
_MAX_ITERATION_DIGITS: Final = 9


class MalformedScram(ValueError):
    """A SCRAM message that is not as RFC 5802 has it, or asks for what is not served."""


def nonce_text(random: bytes) -> str:
    assert len(random) >= MIN_NONCE_BYTES, "a nonce has at least 128 random bits"
    return b64encode(random).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class ClientFirst:
    head: str
    user: str
    nonce: str
    bare: str
    """Without the head."""

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Raises MalformedScram."""
        text = _text(message)
        try:
            head = parse_gs2(text)
            bare = text[head.length :]
            name, nonce, *extensions = bare.split(",") if "," in bare else ("", "")
            user = unescape_name(_value(name, "n"))
        except MalformedGs2 as error:
            raise MalformedScram(str(error)) from error
        if head.authzid not in ("", user):
            raise MalformedScram("The client logs in as one user, and wants to act as another.")
        _check_extensions(extensions)
        return cls(head.text, user, _nonce(nonce, MAX_NONCE_CHARS), bare)


@dataclass(frozen=True, slots=True)
class ServerFirst:
    nonce: str
    salt: bytes
    iterations: int
    text: str

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Raises MalformedScram."""
        text = _text(message)
        nonce, salt, iterations, *extensions = _at_least(text, 3)
        _check_extensions(extensions)
        return cls(_nonce(nonce, 2 * MAX_NONCE_CHARS), _data(_value(salt, "s")), _number(_value(iterations, "i")), text)

    @classmethod
    def make(cls, nonce: str, salt: bytes, iterations: int) -> Self:
        return cls(nonce, salt, iterations, f"r={nonce},s={b64encode(salt).decode()},i={iterations}")


@dataclass(frozen=True, slots=True)
class ClientFinal:
    head: str
    """In base64, as it is compared."""
    nonce: str
    proof: bytes = field(repr=False)
    unsigned: str
    """Without the proof."""

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Raises MalformedScram."""
        text = _text(message)
        head, nonce, *extensions, proof = _at_least(text, 3)
        _check_extensions(extensions)
        unsigned = text[: -len(proof) - 1]
        return cls(_value(head, "c"), _nonce(nonce, 2 * MAX_NONCE_CHARS), _data(_value(proof, "p")), unsigned)


@dataclass(frozen=True, slots=True)
class ServerFinal:
    signature: bytes
    error: str
    """Empty, unless the server refuses."""

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Raises MalformedScram."""
        text = _text(message)
        if text.startswith("e="):
            return cls(b"", _value(text, "e"))
        return cls(_data(_value(text, "v")), "")


def exchange_text(client_first: str, server_first: str, client_final: str) -> bytes:
    """What both sides sign: the first messages, the client's without head, and its last without proof."""
    return f"{client_first},{server_first},{client_final}".encode()


def encoded_head(head: str) -> str:
    return b64encode(head.encode()).decode()


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise MalformedScram(f"A SCRAM message has at most {MAX_MESSAGE_BYTES} bytes, not {len(message)}.")
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise MalformedScram("The message is not UTF-8.") from error
    if "\0" in text:
        raise MalformedScram("The message has a NUL.")
    return text


def _at_least(text: str, count: int) -> list[str]:
    attributes = text.split(",")
    if len(attributes) < count:
        raise MalformedScram(f"The message has {len(attributes)} attributes, not {count}.")
    return attributes


def _value(attribute: str, name: str) -> str:
    found, equals, value = attribute.partition("=")
    if not equals or found != name or not value:
        raise MalformedScram(f"The message has no {name}= where it belongs.")
    return value


def _nonce(attribute: str, max_chars: int) -> str:
    nonce = _value(attribute, "r")
    if len(nonce) > max_chars or not _PRINTABLE.issuperset(nonce):
        raise MalformedScram(f"A nonce has 1 to {max_chars} printable characters and no comma.")
    return nonce


def _data(text: str) -> bytes:
    try:
        return decode_base64(text)
    except MalformedBase64 as error:
        raise MalformedScram(str(error)) from error


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_ITERATION_DIGITS or text.startswith("0"):
        raise MalformedScram("The number of iterations is not a number.")
    return int(text)


def _check_extensions(attributes: list[str]) -> None:
    for each in attributes:
        name, equals, value = each.partition("=")
        if not (equals and value and name.isascii() and name.isalpha()):
            raise MalformedScram("An extension is not of the form name=value.")
        if name == "m":
            raise MalformedScram("The message has an extension that must be known, and is not.")
        if name.lower() == "tokenauth" and value.lower() != "false":
            raise MalformedScram("Delegation tokens are not served.")
