"""The client's side of one SCRAM login, as a generator: it yields what is to be sent, and is sent what comes back.

The login has succeeded when the generator ends, and not before: then the server has proved that it knows the password,
too. A server that breaks the rules is an UntrustedServer. The bounds on iterations are those of Kafka's clients: with
fewer, a server that only pretends could guess the password from the proof; with more, it could stop the client.
"""

import hmac
from base64 import b64encode
from collections.abc import Generator
from typing import Final

from headwater.security.gs2 import escape_name, gs2_head
from headwater.security.login_errors import LoginRefused, UntrustedServer
from headwater.security.scram import (
    HASHING,
    MIN_ITERATIONS,
    ScramHashing,
    ScramMechanism,
    client_key,
    exclusive_or,
    server_key,
)
from headwater.security.scram_messages import (
    MalformedScram,
    ServerFinal,
    ServerFirst,
    encoded_head,
    exchange_text,
)

MAX_CLIENT_ITERATIONS: Final = 1_000_000


def scram_login(
    mechanism: ScramMechanism, user: str, password: str, nonce: str, hashing: ScramHashing = HASHING
) -> Generator[bytes, bytes, None]:
    """`nonce`: random, printable, and for this login alone. The step after the first answer takes as long as the
    server's iterations do. Raises UntrustedServer, LoginRefused."""
    bare = f"n={escape_name(user)},r={nonce}"
    first = _first(nonce, (yield f"{gs2_head()}{bare}".encode()))

    salted = hashing.derive(mechanism.hash_name, password.encode(), first.salt, first.iterations)
    unsigned = f"c={encoded_head(gs2_head())},r={first.nonce}"
    exchange = exchange_text(bare, first.text, unsigned)
    key = client_key(mechanism, salted, hashing)
    proof = exclusive_or(key, hashing.mac(mechanism.hash(key), exchange, mechanism.hash_name))
    final = _final((yield f"{unsigned},p={b64encode(proof).decode()}".encode()))

    signature = hashing.mac(server_key(mechanism, salted, hashing), exchange, mechanism.hash_name)
    if not hmac.compare_digest(signature, final.signature):
        raise UntrustedServer("The server does not know the password either: its signature is wrong.")


def _first(own_nonce: str, message: bytes) -> ServerFirst:
    try:
        first = ServerFirst.parse(message)
    except MalformedScram as error:
        raise UntrustedServer(f"The server's first message: {error}") from error
    if not first.nonce.startswith(own_nonce) or len(first.nonce) == len(own_nonce):
        raise UntrustedServer("The server's nonce does not begin with the client's, or adds nothing to it.")
    if not MIN_ITERATIONS <= first.iterations <= MAX_CLIENT_ITERATIONS:
        raise UntrustedServer(
            f"The server asks for {first.iterations} iterations: below {MIN_ITERATIONS} a password could be guessed,"
            f" and above {MAX_CLIENT_ITERATIONS} a login takes too long."
        )
    return first


def _final(message: bytes) -> ServerFinal:
    try:
        final = ServerFinal.parse(message)
    except MalformedScram as error:
        raise UntrustedServer(f"The server's last message: {error}") from error
    if final.error:
        raise LoginRefused(f"The server refuses the login: {final.error[:100]!r}.")
    return final
