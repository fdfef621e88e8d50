from collections.abc import Iterator

import pytest

from headwater.model.errors import ErrorCode
from headwater.model.moment import Moment
from headwater.security.login_errors import LoginFailed, LoginRefused, MechanismNotOffered, UntrustedServer
from headwater.security.oauthbearer import AFTER_FAILURE, MalformedBearer
from headwater.security.plain import MalformedPlain
from headwater.security.sasl_client import PasswordLogin, SaslClient, TokenLogin, renewal_ms
from headwater.security.sasl_decisions import (
    Challenge,
    CheckPassword,
    Failed,
    HandshakeAnswer,
    Succeeded,
    TokenDecision,
    VerifyToken,
)
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.sasl_server import SaslRules, SaslServer
from headwater.security.scram import InventedCredentials, ScramCredential, ScramMechanism
from headwater.security.token_identity import TokenIdentity

NOW = Moment(wall_ms=1_800_000_000_000, monotonic_ms=0)
CLIENT_NONCE, SERVER_NONCE = bytes(range(18)), bytes(range(18, 36))
CREDENTIALS = {each: ScramCredential.of_password(each, "päss", b"salt", 4096) for each in ScramMechanism}


def look_up(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
    return CREDENTIALS[mechanism] if user == "a,b=c" else None


RULES = SaslRules(mechanisms=tuple(SaslMechanism), look_up=look_up, invented=InventedCredentials(b"k" * 32))


def client(mechanism: SaslMechanism, password: str = "päss", token: str = "good") -> SaslClient:
    if mechanism is SaslMechanism.OAUTHBEARER:
        return SaslClient(mechanism, TokenLogin(lambda: token))
    return SaslClient(mechanism, PasswordLogin("a,b=c", password))


def decided(server: SaslServer, token: bytes) -> TokenDecision:
    """With what a shell does in between."""
    decision = server.authenticate(token, NOW)
    if isinstance(decision, CheckPassword):
        return server.password_checked(decision.is_right(), NOW)
    if isinstance(decision, VerifyToken):
        is_good = decision.token == "good"
        identity = TokenIdentity("a,b=c", NOW.wall_ms // 1000 + 60)
        return server.token_verified(identity, NOW) if is_good else server.token_refused("bad")
    return decision


def exchange(client: SaslClient, server: SaslServer) -> Iterator[TokenDecision]:
    """The decisions of the server, up to the end of the client's tokens. Raises LoginFailed."""
    answer = server.handshake(1, client.mechanism, SERVER_NONCE, NOW)
    assert isinstance(answer, HandshakeAnswer)
    client.check_offer(answer.error, answer.mechanisms)
    tokens = client.tokens(CLIENT_NONCE)
    token = next(tokens)
    while True:
        decision = decided(server, token)
        yield decision
        if not isinstance(decision, Challenge | Succeeded):
            return
        try:
            token = tokens.send(decision.token)
        except StopIteration:
            return


@pytest.mark.parametrize("mechanism", SaslMechanism)
def test_our_client_logs_in_to_our_server(mechanism: SaslMechanism) -> None:
    server = SaslServer(RULES)
    decisions = list(exchange(client(mechanism), server))
    assert isinstance(decisions[-1], Succeeded)
    assert len(decisions) == (2 if "SCRAM" in mechanism else 1)
    assert server.is_ready


@pytest.mark.parametrize("mechanism", SaslMechanism)
def test_our_client_with_a_wrong_secret_does_not(mechanism: SaslMechanism) -> None:
    server = SaslServer(RULES)
    decisions = list(exchange(client(mechanism, "pass", "bad"), server))
    assert isinstance(decisions[-1], Failed)
    assert not server.is_ready


@pytest.mark.parametrize("mechanism", SaslMechanism)
@pytest.mark.parametrize("offer", [(), ("PLAIN",), ("SCRAM-SHA-256",), ("GSSAPI", "plain", "SCRAM-SHA-1", "\x1b[2J")])
def test_a_client_takes_the_mechanism_that_is_configured_and_no_other(
    mechanism: SaslMechanism, offer: tuple[str, ...]
) -> None:
    if mechanism in offer:
        client(mechanism).check_offer(ErrorCode.NONE, offer)
    else:
        with pytest.raises(MechanismNotOffered, match=mechanism) as error:
            client(mechanism).check_offer(ErrorCode.NONE, offer)
        assert "\x1b" not in str(error.value)
    with pytest.raises(MechanismNotOffered):
        client(mechanism).check_offer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offer)


def test_another_error_of_the_handshake_is_a_refusal() -> None:
    with pytest.raises(LoginRefused, match=r"takes no login: its security\.protocol is PLAINTEXT or SSL"):
        client(SaslMechanism.PLAIN).check_offer(ErrorCode.ILLEGAL_SASL_STATE, ())
    with pytest.raises(LoginRefused, match="35"):
        client(SaslMechanism.PLAIN).check_offer(ErrorCode.UNSUPPORTED_VERSION, ())


@pytest.mark.parametrize("mechanism", [SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512])
@pytest.mark.parametrize("answer", [b"", b"v=AAAA", b"ok", b"\x00"])
def test_a_server_that_says_yes_too_early_is_not_trusted(mechanism: SaslMechanism, answer: bytes) -> None:
    tokens = client(mechanism).tokens(CLIENT_NONCE)
    next(tokens)
    with pytest.raises(UntrustedServer):
        tokens.send(answer)


def test_plain_has_one_answer_and_it_is_empty() -> None:
    tokens = client(SaslMechanism.PLAIN).tokens(CLIENT_NONCE)
    assert next(tokens) == "\0a,b=c\0päss".encode()
    with pytest.raises(UntrustedServer):
        tokens.send(b"r=abc")


def test_a_token_that_is_refused_with_json_is_refused() -> None:
    """As Kafka answers; the byte 1 that follows asks it to say so."""
    tokens = client(SaslMechanism.OAUTHBEARER).tokens(CLIENT_NONCE)
    next(tokens)
    assert tokens.send(b'{"status":"invalid_token"}') == AFTER_FAILURE
    with pytest.raises(LoginRefused, match="invalid_token"):
        tokens.send(b"")


def test_each_login_asks_for_a_token_anew() -> None:
    asked = iter(["one", "two"])
    login = SaslClient(SaslMechanism.OAUTHBEARER, TokenLogin(lambda: next(asked)))
    assert b"Bearer one" in next(login.tokens(CLIENT_NONCE))
    assert b"Bearer two" in next(login.tokens(CLIENT_NONCE))


def test_what_cannot_be_sent_is_an_error_before_it_is_sent() -> None:
    with pytest.raises(MalformedPlain):
        next(SaslClient(SaslMechanism.PLAIN, PasswordLogin("alice", "a\0b")).tokens(CLIENT_NONCE))
    with pytest.raises(MalformedBearer):
        next(client(SaslMechanism.OAUTHBEARER, token="a b").tokens(CLIENT_NONCE))


def test_a_mechanism_takes_the_secret_that_it_is_for() -> None:
    with pytest.raises(AssertionError):
        SaslClient(SaslMechanism.OAUTHBEARER, PasswordLogin("alice", "x"))
    with pytest.raises(AssertionError):
        SaslClient(SaslMechanism.PLAIN, TokenLogin(lambda: "x"))


def test_no_secret_is_shown() -> None:
    assert "canary" not in repr(PasswordLogin("alice", "canary"))
    assert issubclass(UntrustedServer, LoginFailed)


def test_clients_renew_their_session_before_it_ends_and_not_all_at_once() -> None:
    assert renewal_ms(0, 0.5) is None
    assert renewal_ms(-1, 0.5) is None
    assert renewal_ms(100_000, 0.0) == 85_000
    assert renewal_ms(100_000, 1.0) in (94_999, 95_000)
