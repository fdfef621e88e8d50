import contextlib
import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.security.login_errors import LoginFailed, LoginRefused, UntrustedServer
from headwater.security.scram import (
    InventedCredentials,
    ScramCredential,
    ScramHashing,
    ScramMechanism,
    UnacceptableCredential,
    client_key,
    exclusive_or,
)
from headwater.security.scram_client import MAX_CLIENT_ITERATIONS, scram_login
from headwater.security.scram_messages import (
    MAX_MESSAGE_BYTES,
    ClientFinal,
    ClientFirst,
    MalformedScram,
    ServerFinal,
    ServerFirst,
    exchange_text,
    nonce_text,
)
from headwater.security.scram_server import InvalidProof, ScramServer

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
INVENTED = InventedCredentials(b"k" * 32, iterations=4096)
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHARACTERS = "aZ0 ,='\"\\\x01\x7fßø日\U0001f600"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def quick_derivation(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """With one iteration: these tests are about messages, and not about guessing."""
    return hashlib.pbkdf2_hmac(hash_name, password, salt + iterations.to_bytes(4, "big"), 1)


QUICK = ScramHashing(derive=quick_derivation)


class Users:
    """A look-up that counts, and whose credentials change."""

    def __init__(self, *credentials: tuple[str, ScramCredential]) -> None:
        self.credentials = {(user, each.mechanism): each for user, each in credentials}
        self.count = 0

    def __call__(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        self.count += 1
        return self.credentials.get((user, mechanism))


def credential(
    password: str = "pencil", mechanism: ScramMechanism = SHA_256, hashing: ScramHashing = QUICK
) -> ScramCredential:
    return ScramCredential.of_password(mechanism, password, SALT, 4096, hashing)


def server(users: Users, mechanism: ScramMechanism = SHA_256, hashing: ScramHashing = QUICK) -> ScramServer:
    return ScramServer(mechanism, users, INVENTED, SERVER_NONCE, hashing)


def logged_in(server: ScramServer, user: str, password: str, mechanism: ScramMechanism = SHA_256) -> None:
    """Both sides, to the end."""
    tokens = scram_login(mechanism, user, password, CLIENT_NONCE, QUICK)
    final = tokens.send(server.answer(next(tokens)))
    with pytest.raises(StopIteration):
        tokens.send(server.answer(final))


# Vectors


@pytest.mark.parametrize(
    ("mechanism", "proof", "signature"),
    [
        (SHA_256, "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
        (
            SHA_512,
            "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ==",
            "ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw==",
        ),
    ],
)
def test_the_exchange_of_rfc_7677_is_word_for_word_its_own(
    mechanism: ScramMechanism, proof: str, signature: str
) -> None:
    users = Users(("user", ScramCredential.of_password(mechanism, "pencil", SALT, 4096)))
    both = ScramServer(mechanism, users, INVENTED, SERVER_NONCE)
    tokens = scram_login(mechanism, "user", "pencil", CLIENT_NONCE)
    first = next(tokens)
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    answer = both.answer(first)
    nonce = CLIENT_NONCE + SERVER_NONCE
    assert answer.decode() == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = tokens.send(answer)
    assert final.decode() == f"c=biws,r={nonce},p={proof}"
    assert both.answer(final).decode() == f"v={signature}"
    assert both.user == "user"
    with pytest.raises(StopIteration):
        tokens.send(f"v={signature}".encode())


class Sha1:
    """The mechanism of RFC 5802, which nothing here serves: for its numbers alone."""

    hash_name = "sha1"

    @staticmethod
    def hash(data: bytes) -> bytes:
        return hashlib.sha1(data).digest()


def test_the_formula_gives_the_numbers_of_rfc_5802() -> None:
    tokens = scram_login(cast(ScramMechanism, Sha1()), "user", "pencil", "fyko+d2lbbFgONRv9qkxdawL")
    next(tokens)
    final = tokens.send(b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096")
    assert final.endswith(b",p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=")
    with pytest.raises(StopIteration):
        tokens.send(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


# Credentials


def test_a_mechanism_has_kafkas_number_and_the_name_of_sasl() -> None:
    assert [(int(each), each.sasl) for each in ScramMechanism] == [(1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512")]


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_salted_password_gives_the_credential_of_its_password(mechanism: ScramMechanism) -> None:
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, b"pencil", b"salt", 10_000)
    given_salted = ScramCredential.of_salted_password(mechanism, salted, b"salt", 10_000)
    assert given_salted == ScramCredential.of_password(mechanism, "pencil", b"salt", 10_000)
    assert given_salted.is_of("pencil")
    assert not given_salted.is_of("pencil ")


def test_a_credential_survives_the_metadata_store() -> None:
    before = credential()
    text = json.dumps(before.to_json())
    assert ScramCredential.from_json(SHA_256, json.loads(text)) == before


@pytest.mark.parametrize(
    "change",
    [
        {"salt": None}, {"salt": ""}, {"salt": "****"}, {"salt": b64encode(bytes(65)).decode()},
        {"iterations": 4095}, {"iterations": 16_385}, {"iterations": "4096"}, {"iterations": True},
        {"stored_key": ""}, {"stored_key": b64encode(bytes(64)).decode()},
        {"server_key": b64encode(bytes(31)).decode()},
        {"server_key": 1},
    ],
)  # fmt: skip
def test_a_damaged_record_is_not_a_credential(change: dict[str, object]) -> None:
    with pytest.raises(UnacceptableCredential):
        ScramCredential.from_json(SHA_256, credential().to_json() | change)


def test_a_record_without_a_field_is_not_a_credential() -> None:
    for name in credential().to_json():
        record = credential().to_json()
        del record[name]
        with pytest.raises(UnacceptableCredential):
            ScramCredential.from_json(SHA_256, record)


@pytest.mark.parametrize(
    ("salt", "iterations", "message"),
    [(b"salt", 4095, "Too few iterations"), (b"salt", 16_385, "Too many iterations"), (b"", 4096, "salt")],
)
def test_a_credential_that_is_too_weak_or_too_dear_is_refused(salt: bytes, iterations: int, message: str) -> None:
    with pytest.raises(UnacceptableCredential, match=message):
        ScramCredential.of_salted_password(SHA_256, bytes(32), salt, iterations)
    with pytest.raises(UnacceptableCredential, match=message):
        ScramCredential.of_password(SHA_256, "pencil", salt, iterations, QUICK)


def test_too_many_iterations_are_refused_before_they_are_done() -> None:
    def never(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        raise AssertionError("derived")

    with pytest.raises(UnacceptableCredential):
        ScramCredential.of_password(SHA_256, "pencil", SALT, 2**31, ScramHashing(derive=never))


def test_a_salted_password_is_as_long_as_the_hash() -> None:
    with pytest.raises(UnacceptableCredential, match="32 bytes"):
        ScramCredential.of_salted_password(SHA_256, bytes(64), b"salt", 4096)


def test_a_credential_does_not_show_its_keys() -> None:
    shown = repr(credential())
    assert "key" not in shown
    assert "iterations=4096" in shown
    assert "kkk" not in repr(INVENTED)


# Both sides


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a,b=c", "=2C", "größe", "日本", "a b"])
def test_a_client_with_the_password_logs_in(mechanism: ScramMechanism, user: str) -> None:
    users = Users((user, credential("pässword,=", mechanism)))
    machine = server(users, mechanism)
    logged_in(machine, user, "pässword,=", mechanism)
    assert machine.user == user


@given(user=st.text(CHARACTERS, min_size=1), password=st.text(CHARACTERS))
@settings(max_examples=50, deadline=None)
def test_any_user_name_and_password_logs_in(user: str, password: str) -> None:
    machine = server(Users((user, credential(password))))
    logged_in(machine, user, password)
    assert machine.user == user


@pytest.mark.parametrize(
    ("user", "password"), [("user", "Pencil"), ("user", ""), ("User", "pencil"), ("ghost", "pencil")]
)
def test_a_wrong_password_and_an_unknown_user_fail_at_the_same_step(user: str, password: str) -> None:
    machine = server(Users(("user", credential())))
    tokens = scram_login(SHA_256, user, password, CLIENT_NONCE, QUICK)
    final = tokens.send(machine.answer(next(tokens)))
    with pytest.raises(InvalidProof):
        machine.answer(final)
    assert machine.user is None


def test_a_user_of_the_other_mechanism_is_unknown() -> None:
    machine = server(Users(("user", credential(mechanism=SHA_512))))
    with pytest.raises(InvalidProof):
        logged_in(machine, "user", "pencil")


def test_an_invented_salt_is_always_the_same_and_its_users_own() -> None:
    salts = [INVENTED.of(user, each).salt for user in ("alice", "bob") for each in ScramMechanism]
    again = [INVENTED.of(user, each).salt for user in ("alice", "bob") for each in ScramMechanism]
    assert salts == again
    assert len({*salts, InventedCredentials(b"other key" * 4).of("alice", SHA_256).salt}) == 5
    assert {len(each) for each in salts} == {16}


def test_even_the_key_of_inventions_does_not_log_in() -> None:
    """Who knows it can compute a proof that fits an invented credential. There still is no such user."""
    machine = server(Users())
    answer = machine.answer(b"n,,n=ghost,r=abc").decode()
    noise = hmac.digest(INVENTED.key, b"SCRAM-SHA-256\0ghost", "sha256")
    unsigned = f"c=biws,r=abc{SERVER_NONCE}"
    exchange = f"n=ghost,r=abc,{answer},{unsigned}".encode()
    invented = INVENTED.of("ghost", SHA_256)
    proof = exclusive_or(noise, hmac.digest(invented.stored_key, exchange, "sha256"))
    assert invented.has_proof(proof, exchange)
    with pytest.raises(InvalidProof):
        machine.answer(f"{unsigned},p={b64encode(proof).decode()}".encode())


def test_a_user_that_is_deleted_meanwhile_does_not_log_in() -> None:
    users = Users(("user", credential()))
    machine = server(users)
    tokens = scram_login(SHA_256, "user", "pencil", CLIENT_NONCE, QUICK)
    final = tokens.send(machine.answer(next(tokens)))
    users.credentials.clear()
    with pytest.raises(InvalidProof):
        machine.answer(final)


def test_a_head_that_was_changed_on_the_way_is_noticed() -> None:
    """It is not signed but for being repeated: here the authorization identity was put in."""
    users = Users(("user", credential()))
    machine = server(users)
    tokens = scram_login(SHA_256, "user", "pencil", CLIENT_NONCE, QUICK)
    final = tokens.send(machine.answer(next(tokens).replace(b"n,,", b"n,a=user,", 1)))
    with pytest.raises(MalformedScram, match="head"):
        machine.answer(final)


def test_a_new_password_ends_a_login_that_began_with_the_old_one() -> None:
    users = Users(("user", credential()))
    machine = server(users)
    tokens = scram_login(SHA_256, "user", "pencil", CLIENT_NONCE, QUICK)
    final = tokens.send(machine.answer(next(tokens)))
    users.credentials["user", SHA_256] = credential("other")
    with pytest.raises(InvalidProof):
        machine.answer(final)


def test_the_work_is_the_same_for_known_and_unknown_users() -> None:
    counts = []
    for user, password in [("user", "pencil"), ("user", "wrong"), ("ghost", "pencil")]:
        calls: list[str] = []

        def mac(key: bytes, message: bytes, hash_name: str, calls: list[str] = calls) -> bytes:
            calls.append(hash_name)
            return hmac.digest(key, message, hash_name)

        def never(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
            raise AssertionError("the server derives nothing")

        users = Users(("user", credential()))
        machine = server(users, hashing=ScramHashing(mac, never))
        tokens = scram_login(SHA_256, user, password, CLIENT_NONCE, QUICK)
        final = tokens.send(machine.answer(next(tokens)))
        with contextlib.suppress(InvalidProof):
            machine.answer(final)
        counts.append((calls, users.count))
    assert counts[0] == counts[1] == counts[2]
    assert counts[0][1] == 2


def changed(message: bytes) -> Iterator[bytes]:
    """With one byte changed, taken away or added, everywhere."""
    for index in range(len(message)):
        for each in [message[index] ^ (1 << bit) for bit in range(8)] + list(b"\0\n,=aA0"):
            if each != message[index]:
                yield message[:index] + bytes([each]) + message[index + 1 :]
        yield message[:index] + message[index + 1 :]
    for index in range(len(message) + 1):
        for each in b"=,A\0":
            yield message[:index] + bytes([each]) + message[index:]


@pytest.mark.parametrize("step", range(4))
def test_a_message_that_was_changed_by_a_byte_does_not_authenticate(step: int) -> None:
    users = Users(("user", credential()))
    honest = recorded(users)
    for message in changed(honest[step]):
        machine = server(users)
        tokens = scram_login(SHA_256, "user", "pencil", CLIENT_NONCE, QUICK)
        try:
            final = tokens.send(machine.answer(next(tokens)) if step > 1 else between(machine, tokens, step, message))
            answer = machine.answer(message if step == 2 else final)
            assert step == 3, f"the server takes {message!r}"
            with pytest.raises(LoginFailed):
                tokens.send(message)
            assert answer == honest[3]
        except (MalformedScram, InvalidProof, LoginFailed):
            assert machine.user is None


def between(machine: ScramServer, tokens: Iterator[bytes], step: int, message: bytes) -> bytes:
    """The server's first message, of which either it or the question for it was changed."""
    first = next(tokens)
    answer = machine.answer(message if step == 0 else first)
    return answer if step == 0 else message


def recorded(users: Users) -> tuple[bytes, bytes, bytes, bytes]:
    machine = server(users)
    tokens = scram_login(SHA_256, "user", "pencil", CLIENT_NONCE, QUICK)
    first = next(tokens)
    answer = machine.answer(first)
    final = tokens.send(answer)
    return first, answer, final, machine.answer(final)


def test_an_exchange_that_failed_or_ended_takes_nothing_more() -> None:
    users = Users(("user", credential()))
    first, _, final, _ = recorded(users)
    machine = server(users)
    machine.answer(first)
    with pytest.raises(MalformedScram):
        machine.answer(b"rubbish")
    with pytest.raises(MalformedScram, match="ended"):
        machine.answer(final)
    machine = server(users)
    machine.answer(first)
    machine.answer(final)
    with pytest.raises(MalformedScram, match="ended"):
        machine.answer(final)


def test_a_recorded_login_does_not_work_with_another_nonce() -> None:
    users = Users(("user", credential()))
    first, _, final, _ = recorded(users)
    machine = ScramServer(SHA_256, users, INVENTED, "another", QUICK)
    machine.answer(first)
    with pytest.raises(MalformedScram, match="nonce"):
        machine.answer(final)


@pytest.mark.parametrize(("prefix", "is_taken"), [("", True), ("mine", True), ("other", False), ("minemine", False)])
def test_the_nonce_may_have_the_clients_own_in_front_once_more_and_nothing_else(prefix: str, is_taken: bool) -> None:
    """As librdkafka before 2.6.1 sends it. Kafka from 4.0 on refuses these clients, older ones take any prefix."""
    known = credential()
    machine = ScramServer(SHA_256, Users(("user", known)), INVENTED, "theirs", QUICK)
    answer = machine.answer(b"n,,n=user,r=mine").decode()
    unsigned = f"c=biws,r={prefix}minetheirs"
    exchange = exchange_text("n=user,r=mine", answer, unsigned)
    salted = QUICK.derive("sha256", b"pencil", known.salt, known.iterations)
    key = client_key(SHA_256, salted)
    proof = exclusive_or(key, QUICK.mac(SHA_256.hash(key), exchange, "sha256"))
    final = f"{unsigned},p={b64encode(proof).decode()}".encode()
    if is_taken:
        assert machine.answer(final).startswith(b"v=")
    else:
        with pytest.raises(MalformedScram, match="nonce"):
            machine.answer(final)


# What the server takes


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n", b"n,", b"n,,", b"n,,n=user", b"n,,n=user,", b"n,,n=user,r=", b"n,,r=abc,n=user", b"n,,n=,r=abc",
        b"y,,n=user,r=abc", b"p=tls-unique,,n=user,r=abc", b"N,,n=user,r=abc", b"n,b=x,n=user,r=abc",
        b"n,a=other,n=user,r=abc", b"n,a=,n=user,r=abc", b"n,,m=x,n=user,r=abc", b"n,,n=user,r=abc,m=x",
        b"n,,n=us=er,r=abc", b"n,,n=us=2cer,r=abc", b"n,,n=user=,r=abc", b"n,,n=user=3,r=abc",
        b"n,,n=user,r=a c", b"n,,n=user,r=a\x7fc", b"n,,n=user,r=\xc3\xa4", b"n,,n=\xff,r=abc", b"n,,n=us\0er,r=abc",
        b"n,,n=user,r=" + b"a" * 257, b"n,,n=" + b"a" * MAX_MESSAGE_BYTES + b",r=abc",
        b"n,,n=user,r=abc,", b"n,,n=user,r=abc,x", b"n,,n=user,r=abc,x=", b"n,,n=user,r=abc,1=x",
        b"n,,n=user,r=abc,tokenauth=true", b"n,,n=user,r=abc,TokenAuth=TRUE",
    ],
)  # fmt: skip
def test_a_first_message_that_is_not_as_it_must_be_is_malformed(message: bytes) -> None:
    with pytest.raises(MalformedScram):
        ClientFirst.parse(message)


def test_a_client_may_name_itself_and_use_extensions() -> None:
    first = ClientFirst.parse(b"n,a=us=2Cer,n=us=2Cer,r=abc,x=1,tokenauth=false")
    assert (first.user, first.nonce, first.head) == ("us,er", "abc", "n,a=us=2Cer,")
    assert first.bare == "n=us=2Cer,r=abc,x=1,tokenauth=false"


@pytest.mark.parametrize(
    "message",
    [
        b"", b"c=biws,r=abc", b"c=biws,p=AAAA,r=abc", b"r=abc,c=biws,p=AAAA", b"c=biws,r=abc,p=", b"c=biws,r=abc,p=AAA",
        b"c=biws,r=abc,p=A+-A", b"c=biws,r=abc,p=AB==", b"c=biws,r=abc,m=x,p=AAAA", b"c=,r=abc,p=AAAA",
        b"c=biws,r=abc,p=AAAA,", b"c=biws,r=abc,p=AA\nAA", b"\xff",
    ],
)  # fmt: skip
def test_a_last_message_that_is_not_as_it_must_be_is_malformed(message: bytes) -> None:
    with pytest.raises(MalformedScram):
        ClientFinal.parse(message)


@pytest.mark.parametrize("proof", [b"", bytes(31), bytes(33), bytes(64), bytes(32)])
def test_a_proof_of_another_length_proves_nothing(proof: bytes) -> None:
    assert not credential().has_proof(proof, b"exchange")


@given(st.binary(max_size=200))
def test_no_bytes_confuse_the_parsers(data: bytes) -> None:
    for parse in (ClientFirst.parse, ClientFinal.parse, ServerFirst.parse, ServerFinal.parse):
        with contextlib.suppress(MalformedScram):
            parse(data)


# What the client takes


def answered(first: str) -> bytes:
    tokens = scram_login(SHA_256, "user", "pencil", "abc", QUICK)
    next(tokens)
    return tokens.send(first.encode())


@pytest.mark.parametrize(
    "first",
    [
        "r=abc,s=c2FsdA==,i=4096", "r=abd1,s=c2FsdA==,i=4096", "r=1abc,s=c2FsdA==,i=4096",
        "r=abc1,s=c2FsdA==,i=4095", f"r=abc1,s=c2FsdA==,i={MAX_CLIENT_ITERATIONS + 1}", "r=abc1,s=c2FsdA==,i=-1",
        "r=abc1,s=c2FsdA==,i=04096", "r=abc1,s=c2FsdA==,i=4_096", "r=abc1,s=c2FsdA==,i=٤٠٩٦", "r=abc1,s=,i=4096",
        "r=abc1,s=****,i=4096", "m=x,r=abc1,s=c2FsdA==,i=4096", "r=abc1,s=c2FsdA==", "e=other-error", "",
        "i=" + "9" * 99,
        "r=abc1,s=c2FsdA==,i=4096,m=x", "r=abc1,s=c2FsdA==,i=" + "9" * 4000, "r=abc1,s=" + "A" * 4096 + ",i=4096",
    ],
)  # fmt: skip
def test_a_client_does_not_answer_a_server_that_breaks_the_rules(first: str) -> None:
    with pytest.raises(UntrustedServer):
        answered(first)


def test_a_client_takes_iterations_up_to_its_bounds() -> None:
    for iterations in (4096, MAX_CLIENT_ITERATIONS):
        assert answered(f"r=abc1,s=c2FsdA==,i={iterations}").startswith(b"c=biws,r=abc1,p=")


@pytest.mark.parametrize("final", [b"", b"v=", b"v=AAAA", b"v=" + b64encode(bytes(32)), b"v=****", b"ok"])
def test_a_server_without_the_password_is_not_trusted(final: bytes) -> None:
    tokens = scram_login(SHA_256, "user", "pencil", "abc", QUICK)
    next(tokens)
    tokens.send(b"r=abc1,s=c2FsdA==,i=4096")
    with pytest.raises(UntrustedServer):
        tokens.send(final)


def test_an_error_of_the_server_is_a_refusal() -> None:
    tokens = scram_login(SHA_256, "user", "pencil", "abc", QUICK)
    next(tokens)
    tokens.send(b"r=abc1,s=c2FsdA==,i=4096")
    with pytest.raises(LoginRefused, match="invalid-proof"):
        tokens.send(b"e=invalid-proof")


def test_a_nonce_is_made_of_at_least_128_bits() -> None:
    assert len(nonce_text(bytes(18))) == 24
    with pytest.raises(AssertionError):
        nonce_text(bytes(15))
