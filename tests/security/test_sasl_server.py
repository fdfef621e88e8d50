import hashlib
import hmac
import tracemalloc
from base64 import b64encode
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.errors import ErrorCode
from headwater.model.moment import Moment
from headwater.security.oauthbearer import AFTER_FAILURE, MAX_MESSAGE_BYTES, bearer_message
from headwater.security.plain import plain_message
from headwater.security.principal import Principal
from headwater.security.sasl_decisions import (
    LET_THROUGH,
    Challenge,
    CheckPassword,
    Close,
    Failed,
    HandshakeAnswer,
    IllegalState,
    Succeeded,
    TokenDecision,
    VerifyToken,
)
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.sasl_server import (
    API_VERSIONS,
    MAX_LOGIN_REQUESTS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslRules,
    SaslServer,
    SaslState,
)
from headwater.security.scram import InventedCredentials, ScramCredential, ScramHashing, ScramMechanism
from headwater.security.scram_client import scram_login
from headwater.security.token_identity import TokenIdentity

ALL = tuple(SaslMechanism)
PLAIN, SHA_256, SHA_512, BEARER = ALL
NONCE = bytes(range(18))
METADATA, PRODUCE = 3, 0


def quick_derivation(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """With one iteration: these tests are about states, and not about guessing."""
    return hashlib.pbkdf2_hmac(hash_name, password, salt, 1)


QUICK = ScramHashing(derive=quick_derivation)
CREDENTIALS = {
    (user, each): ScramCredential.of_password(each, f"{user}'s password", user.encode(), 4096, QUICK)
    for user in ("alice", "bob")
    for each in ScramMechanism
}


def look_up(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
    return CREDENTIALS.get((user, mechanism))


def rules(
    reauth_ms: int = 0,
    mechanisms: tuple[SaslMechanism, ...] = ALL,
    look_up: Callable[[str, ScramMechanism], ScramCredential | None] = look_up,
    hashing: ScramHashing = QUICK,
) -> SaslRules:
    return SaslRules(
        mechanisms=mechanisms,
        look_up=look_up,
        invented=InventedCredentials(b"k" * 32),
        reauth_ms=reauth_ms,
        hashing=hashing,
    )


def at(monotonic_ms: int) -> Moment:
    return Moment(wall_ms=1_800_000_000_000 + monotonic_ms, monotonic_ms=monotonic_ms)


def identity(name: str = "alice", expires_in_ms: int = 60_000, now: Moment = at(0)) -> TokenIdentity:
    return TokenIdentity(name, (now.wall_ms + expires_in_ms) // 1000)


class Session:
    """A shell without a socket: what a connection of the broker does with the machine."""

    def __init__(self, rules: SaslRules) -> None:
        self.machine = SaslServer(rules)
        self.now = at(0)

    @property
    def state(self) -> SaslState:
        return self.machine.state(self.now)

    def begin(self, mechanism: str, version: int = 1) -> None:
        assert self.machine.arrived(SASL_HANDSHAKE, self.now) is LET_THROUGH
        answer = self.machine.handshake(version, mechanism, NONCE, self.now)
        assert isinstance(answer, HandshakeAnswer)
        assert answer.error is ErrorCode.NONE

    def send(self, token: bytes) -> TokenDecision:
        if self.machine.expects_raw_token:
            return self.machine.raw_token(token, self.now)
        assert self.machine.arrived(SASL_AUTHENTICATE, self.now) is LET_THROUGH
        return self.machine.authenticate(token, self.now)

    def log_in(
        self,
        mechanism: SaslMechanism = SHA_256,
        user: str = "alice",
        password: str | None = None,
        version: int = 1,
        expires_in_ms: int = 60_000,
    ) -> TokenDecision:
        """From the handshake to the last decision."""
        self.begin(mechanism, version)
        password = f"{user}'s password" if password is None else password
        if mechanism is BEARER:
            assert isinstance(self.send(bearer_message("token")), VerifyToken)
            return self.machine.token_verified(identity(user, expires_in_ms, self.now), self.now)
        if mechanism is PLAIN:
            check = self.send(plain_message(user, password))
            assert isinstance(check, CheckPassword)
            return self.machine.password_checked(check.is_right(), self.now)
        tokens = scram_login(ScramMechanism[mechanism.name], user, password, "abc", QUICK)
        challenge = self.send(next(tokens))
        assert isinstance(challenge, Challenge)
        return self.send(tokens.send(challenge.token))


def session(state: SaslState) -> Session:
    """A session that has come to this state."""
    session = Session(rules(reauth_ms=10_000))
    if state is SaslState.VERSIONS_DONE:
        session.machine.arrived(API_VERSIONS, session.now)
    elif state is SaslState.AUTHENTICATE:
        session.begin(SHA_256)
    elif state is SaslState.FAILED:
        session.log_in(password="wrong")
    elif state is not SaslState.NEW:
        session.log_in()
        session.now = at(10_001 if state is SaslState.EXPIRED else 2000)
        if state is SaslState.REAUTH:
            session.begin(SHA_256)
    assert session.state is state
    return session


# The table of states


LET = {
    SaslState.NEW: {API_VERSIONS, SASL_HANDSHAKE},
    SaslState.VERSIONS_DONE: {API_VERSIONS, SASL_HANDSHAKE},
    SaslState.AUTHENTICATE: {SASL_AUTHENTICATE},
    SaslState.READY: set(range(-1, 100)),
    SaslState.REAUTH: {SASL_AUTHENTICATE},
    SaslState.EXPIRED: {SASL_HANDSHAKE},
    SaslState.FAILED: set(),
}


@pytest.mark.parametrize("state", SaslState)
def test_a_state_lets_through_what_it_expects_and_closes_on_all_else(state: SaslState) -> None:
    for api_key in range(-1, 100):
        one = session(state)
        decision = one.machine.arrived(api_key, one.now)
        if api_key in LET[state]:
            assert decision is LET_THROUGH
            assert one.state is (
                SaslState.VERSIONS_DONE if (state, api_key) == (SaslState.NEW, API_VERSIONS) else state
            )
        else:
            assert isinstance(decision, Close)
            assert one.state is SaslState.FAILED


@pytest.mark.parametrize("state", SaslState)
def test_of_versions_that_are_not_served_only_api_versions_is_answered(state: SaslState) -> None:
    for api_key in range(-1, 100):
        one = session(state)
        is_ready = state is SaslState.READY
        is_question = api_key == API_VERSIONS and api_key in LET[state]
        decision = one.machine.arrived(api_key, one.now, is_served=False)
        assert (decision is LET_THROUGH) == (is_ready or is_question)
        assert one.state is (state if is_ready or is_question else SaslState.FAILED)


@pytest.mark.parametrize("state", SaslState)
def test_a_handshake_begins_a_login_only_where_one_is_expected(state: SaslState) -> None:
    one = session(state)
    decision = one.machine.handshake(1, SHA_256, NONCE, one.now)
    if state in (SaslState.AUTHENTICATE, SaslState.REAUTH, SaslState.FAILED):
        assert isinstance(decision, Close)
        assert one.state is SaslState.FAILED
    else:
        assert decision == HandshakeAnswer(ErrorCode.NONE, ALL)
        is_first = state in (SaslState.NEW, SaslState.VERSIONS_DONE)
        assert one.state is (SaslState.AUTHENTICATE if is_first else SaslState.REAUTH)


@pytest.mark.parametrize("state", SaslState)
def test_a_token_counts_only_where_one_is_expected(state: SaslState) -> None:
    one = session(state)
    decision = one.machine.authenticate(b"n,,n=alice,r=abc", one.now)
    if state in (SaslState.AUTHENTICATE, SaslState.REAUTH):
        assert isinstance(decision, Challenge)
    elif state is SaslState.READY:
        assert decision == IllegalState()
        assert one.state is SaslState.READY
    else:
        assert isinstance(decision, Close)


@pytest.mark.parametrize("state", SaslState)
def test_a_raw_token_counts_only_behind_a_handshake_of_version_0(state: SaslState) -> None:
    one = session(state)
    assert not one.machine.expects_raw_token
    assert isinstance(one.machine.raw_token(b"n,,n=alice,r=abc", one.now), Close)


def test_requests_overlap_only_when_the_login_is_over() -> None:
    for state in SaslState:
        assert session(state).machine.is_ready == (state in (SaslState.READY, SaslState.EXPIRED))


def test_a_wrong_first_request_hints_at_the_protocol() -> None:
    decision = session(SaslState.NEW).machine.arrived(METADATA, at(0))
    assert isinstance(decision, Close)
    assert decision.reason == "expected_sasl"
    assert "security.protocol" in decision.hint


def test_versions_may_be_asked_for_twice() -> None:
    one = session(SaslState.NEW)
    assert one.machine.arrived(API_VERSIONS, one.now, is_served=False) is LET_THROUGH
    states = [one.state]
    for _ in range(2):
        assert one.machine.arrived(API_VERSIONS, one.now) is LET_THROUGH
        states.append(one.state)
    assert states == [SaslState.NEW, SaslState.VERSIONS_DONE, SaslState.VERSIONS_DONE]
    assert isinstance(one.machine.arrived(API_VERSIONS, one.now), Close)


def test_a_login_takes_a_few_requests_and_no_more() -> None:
    one = session(SaslState.NEW)
    for _ in range(MAX_LOGIN_REQUESTS):
        assert one.machine.arrived(API_VERSIONS, one.now, is_served=False) is LET_THROUGH
    decision = one.machine.arrived(SASL_HANDSHAKE, one.now)
    assert isinstance(decision, Close)
    assert decision.reason == "too_many_login_requests"


# The handshake


@pytest.mark.parametrize("mechanism", ["", "GSSAPI", "plain", "scram-sha-256", " PLAIN", "PLAIN\0", "x" * 65_536])
def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are(mechanism: str) -> None:
    for state in (SaslState.NEW, SaslState.VERSIONS_DONE, SaslState.READY):
        one = session(state)
        decision = one.machine.handshake(1, mechanism, NONCE, one.now)
        assert decision == HandshakeAnswer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ALL, closes=True)
        assert one.state is SaslState.FAILED


@pytest.mark.parametrize("mechanism", ALL)
def test_a_listener_offers_what_it_was_configured_for(mechanism: SaslMechanism) -> None:
    for other in ALL:
        one = Session(rules(mechanisms=(mechanism,)))
        decision = one.machine.handshake(1, other, NONCE, one.now)
        assert isinstance(decision, HandshakeAnswer)
        assert decision.mechanisms == (mechanism,)
        assert decision.closes == (other is not mechanism)


# Logins


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ALL)
def test_each_mechanism_logs_in(mechanism: SaslMechanism, version: int) -> None:
    one = Session(rules(reauth_ms=5000))
    decision = one.log_in(mechanism, version=version)
    assert isinstance(decision, Succeeded)
    assert decision.principal == Principal.user("alice")
    assert decision.session_lifetime_ms == 5000
    assert decision.is_raw == (version == 0)
    assert decision.token.startswith(b"v=") if mechanism in (SHA_256, SHA_512) else decision.token == b""
    assert (one.machine.principal, one.machine.mechanism) == (Principal.user("alice"), mechanism)
    assert one.machine.is_ready
    assert not one.machine.expects_raw_token
    assert one.machine.arrived(PRODUCE, one.now) is LET_THROUGH


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", [PLAIN, SHA_256, SHA_512])
def test_unknown_users_and_wrong_passwords_are_the_same_failure(mechanism: SaslMechanism, version: int) -> None:
    wrong = Session(rules()).log_in(mechanism, "alice", "wrong", version)
    unknown = Session(rules()).log_in(mechanism, "ghost", "wrong", version)
    assert wrong == unknown
    assert wrong == Failed(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism.value}",
        "invalid_credentials",
        version == 0,
    )


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize("token", [b"", b"\0", b"rubbish", b"\xff" * 100, AFTER_FAILURE, bytes(MAX_MESSAGE_BYTES + 1)])
def test_rubbish_fails_as_a_wrong_password_does(mechanism: SaslMechanism, token: bytes) -> None:
    one = Session(rules())
    one.begin(mechanism)
    decision = one.send(token)
    assert isinstance(decision, Failed)
    assert decision.message.endswith(f"with SASL mechanism {mechanism.value}")
    assert decision.reason.startswith("malformed")
    assert one.state is SaslState.FAILED


def test_behind_a_failure_nothing_is_served() -> None:
    for api_key in (METADATA, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE):
        one = Session(rules())
        one.log_in(password="wrong")
        assert isinstance(one.machine.arrived(api_key, one.now), Close)
        assert one.machine.principal is None


def test_a_challenge_says_how_it_is_sent() -> None:
    for version in (0, 1):
        one = Session(rules())
        one.begin(SHA_256, version)
        assert one.machine.expects_raw_token == (version == 0)
        challenge = one.send(b"n,,n=alice,r=abc")
        assert isinstance(challenge, Challenge)
        assert challenge.is_raw == (version == 0)
        assert challenge.token.startswith(b"r=abc" + b64encode(NONCE))


def test_behind_a_handshake_of_version_0_a_request_is_not_taken_for_a_token() -> None:
    one = Session(rules())
    one.begin(PLAIN, version=0)
    assert isinstance(one.machine.authenticate(plain_message("alice", "alice's password"), one.now), Close)
    one = Session(rules())
    one.begin(PLAIN, version=0)
    assert isinstance(one.machine.arrived(SASL_AUTHENTICATE, one.now), Close)


@pytest.mark.parametrize("mechanism", [PLAIN, BEARER])
def test_a_request_behind_a_token_whose_outcome_is_not_known_closes(mechanism: SaslMechanism) -> None:
    token = bearer_message("token") if mechanism is BEARER else plain_message("alice", "alice's password")
    for attack in range(3):
        one = Session(rules())
        one.begin(mechanism, version=0 if attack == 2 else 1)
        one.send(token)
        if attack == 0:
            assert isinstance(one.machine.arrived(SASL_AUTHENTICATE, one.now), Close)
        elif attack == 1:
            assert isinstance(one.machine.authenticate(token, one.now), Close)
        else:
            assert isinstance(one.machine.raw_token(token, one.now), Close)
        if mechanism is BEARER:
            assert isinstance(one.machine.token_verified(identity(), one.now), Failed)
        else:
            assert isinstance(one.machine.password_checked(True, one.now), Failed)
        assert one.machine.principal is None


def test_an_outcome_that_was_not_asked_for_lets_no_client_in() -> None:
    for state in (SaslState.NEW, SaslState.VERSIONS_DONE, SaslState.AUTHENTICATE, SaslState.FAILED):
        assert isinstance(session(state).machine.password_checked(True, at(0)), Failed)
        assert isinstance(session(state).machine.token_verified(identity(), at(0)), Failed)
        assert isinstance(session(state).machine.token_refused("no reason"), Failed)
    one = Session(rules())
    one.begin(PLAIN)
    one.send(plain_message("alice", "x"))
    assert isinstance(one.machine.token_verified(identity(), one.now), Failed)


# Passwords


def test_a_right_password_of_an_unknown_user_does_not_log_in() -> None:
    """Even if the shell says so."""
    one = Session(rules())
    one.begin(PLAIN)
    assert isinstance(one.send(plain_message("ghost", "x")), CheckPassword)
    assert isinstance(one.machine.password_checked(True, one.now), Failed)


@pytest.mark.parametrize("change", ["deleted", "changed"])
def test_a_user_that_was_changed_while_its_password_was_checked_does_not_log_in(change: str) -> None:
    credentials = dict(CREDENTIALS)
    one = Session(rules(look_up=lambda user, mechanism: credentials.get((user, mechanism))))
    one.begin(PLAIN)
    check = one.send(plain_message("alice", "alice's password"))
    assert isinstance(check, CheckPassword)
    assert check.is_right()
    for each in ScramMechanism:
        del credentials["alice", each]
        if change == "changed":
            credentials["alice", each] = ScramCredential.of_password(each, "new", b"alice", 4096, QUICK)
    assert isinstance(one.machine.password_checked(True, one.now), Failed)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_one_credential_of_either_kind_is_enough_for_plain(mechanism: ScramMechanism) -> None:
    credential = ScramCredential.of_password(mechanism, "carol's password", b"salt", 4096, QUICK)
    one = Session(rules(look_up=lambda user, each: credential if (user, each) == ("carol", mechanism) else None))
    assert isinstance(one.log_in(PLAIN, "carol"), Succeeded)


@pytest.mark.parametrize("mechanism", [PLAIN, SHA_256, SHA_512])
def test_the_work_is_the_same_for_known_and_unknown_users(mechanism: SaslMechanism) -> None:
    calls: list[tuple[object, ...]] = []

    def mac(key: bytes, message: bytes, hash_name: str) -> bytes:
        calls.append(("mac", hash_name))
        return hmac.digest(key, message, hash_name)

    def derive(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        calls.append(("derive", hash_name, iterations))
        return quick_derivation(hash_name, password, salt, iterations)

    def counted(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        calls.append(("look up", mechanism))
        return made if user == "alice" and mechanism in (made.mechanism, wanted) else None

    wanted = ScramMechanism[mechanism.name] if mechanism is not PLAIN else ScramMechanism.SCRAM_SHA_256
    made = ScramCredential.of_password(wanted, "alice's password", b"salt", 8192, QUICK)
    work = []
    for user, password in [("alice", "alice's password"), ("alice", "wrong"), ("ghost", "x")]:
        calls.clear()
        decision = Session(rules(look_up=counted, hashing=ScramHashing(mac, derive))).log_in(mechanism, user, password)
        assert isinstance(decision, Succeeded) == (password == "alice's password")
        work.append(list(calls))
    assert work[0] == work[1] == work[2]
    assert sum(each[0] == "derive" for each in work[0]) == (1 if mechanism is PLAIN else 0)


def test_no_decision_shows_a_secret() -> None:
    one = Session(rules())
    one.begin(PLAIN)
    assert "canary" not in repr(one.send(plain_message("alice", "canary")))
    one = Session(rules())
    one.begin(BEARER)
    assert "canary" not in repr(one.send(bearer_message("canary")))
    assert "kkk" not in repr(rules())


# Tokens


@pytest.mark.parametrize(("authzid", "is_in"), [("", True), ("alice", True), ("bob", False), ("Alice", False)])
def test_a_token_gives_the_name_that_the_client_asks_for(authzid: str, is_in: bool) -> None:
    one = Session(rules())
    one.begin(BEARER)
    head = f"n,a={authzid}," if authzid else "n,,"
    verify = one.send(head.encode() + b"\x01auth=Bearer abc\x01\x01")
    assert isinstance(verify, VerifyToken)
    assert verify.token == "abc"
    assert isinstance(one.machine.token_verified(identity(), one.now), Succeeded) == is_in


def test_a_refused_token_fails_at_once_and_the_client_is_told_why() -> None:
    one = Session(rules())
    one.begin(BEARER)
    one.send(bearer_message("abc"))
    failed = one.machine.token_refused("The token has expired.")
    assert failed.reason == "invalid_token: The token has expired."
    assert failed.message == "The token is refused: The token has expired."
    assert one.state is SaslState.FAILED


@pytest.mark.parametrize(
    ("reauth_ms", "expires_in_ms", "lifetime_ms"),
    [(0, 60_000, 60_000), (10_000, 60_000, 10_000), (90_000, 60_000, 60_000), (1, 60_000, 1)],
)
def test_a_session_lasts_as_long_as_the_rules_and_the_token_do(
    reauth_ms: int, expires_in_ms: int, lifetime_ms: int
) -> None:
    one = Session(rules(reauth_ms))
    decision = one.log_in(BEARER, expires_in_ms=expires_in_ms)
    assert isinstance(decision, Succeeded)
    assert decision.session_lifetime_ms == lifetime_ms
    assert one.machine.expires_at_ms == lifetime_ms


@pytest.mark.parametrize("expires_in_ms", [0, -1000, -60_000])
def test_a_token_that_expired_meanwhile_does_not_begin_a_session_without_end(expires_in_ms: int) -> None:
    for reauth_ms in (0, 1000):
        assert isinstance(Session(rules(reauth_ms)).log_in(BEARER, expires_in_ms=expires_in_ms), Failed)


# Sessions that end


def test_without_a_limit_a_session_has_no_end() -> None:
    one = Session(rules())
    decision = one.log_in()
    assert isinstance(decision, Succeeded)
    assert decision.session_lifetime_ms == 0
    one.now = at(2**60)
    assert one.state is SaslState.READY
    assert one.machine.handshake(1, SHA_256, NONCE, one.now) == HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE)
    assert one.machine.arrived(PRODUCE, one.now) is LET_THROUGH


def test_a_session_expires_in_monotonic_time() -> None:
    one = Session(rules(reauth_ms=10_000))
    one.log_in()
    assert one.machine.arrived(PRODUCE, Moment(wall_ms=2**62, monotonic_ms=10_000)) is LET_THROUGH
    decision = one.machine.arrived(PRODUCE, Moment(wall_ms=0, monotonic_ms=10_001))
    assert isinstance(decision, Close)
    assert decision.reason == "session_expired"


@pytest.mark.parametrize("begun_ms", [1000, 9000, 10_000, 50_000])
def test_authenticating_again_begins_another_session(begun_ms: int) -> None:
    one = Session(rules(reauth_ms=10_000))
    one.log_in()
    one.now = at(begun_ms)
    decision = one.log_in()
    assert isinstance(decision, Succeeded)
    assert decision.session_lifetime_ms == 10_000
    assert one.machine.expires_at_ms == begun_ms + 10_000
    assert one.state is SaslState.READY


def test_authentications_are_a_second_apart() -> None:
    one = Session(rules(reauth_ms=10_000))
    one.log_in()
    one.now = at(999)
    assert one.machine.arrived(SASL_HANDSHAKE, one.now) is LET_THROUGH
    assert one.machine.handshake(1, SHA_256, NONCE, one.now) == HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE)
    assert one.state is SaslState.READY
    one.now = at(1000)
    assert isinstance(one.log_in(), Succeeded)
    one.now = at(1999)
    assert one.machine.handshake(1, SHA_256, NONCE, one.now) == HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE)


def test_a_session_that_expires_within_the_second_cannot_be_renewed() -> None:
    one = Session(rules(reauth_ms=500))
    one.log_in()
    one.now = at(501)
    assert isinstance(one.machine.arrived(SASL_HANDSHAKE, one.now), Close)


@pytest.mark.parametrize("mechanism", [SHA_256, BEARER, PLAIN])
def test_another_principal_cannot_take_over_a_session(mechanism: SaslMechanism) -> None:
    one = Session(rules(reauth_ms=10_000))
    one.log_in(mechanism)
    one.now = at(2000)
    decision = one.log_in(mechanism, "bob")
    assert isinstance(decision, Failed)
    assert decision.reason == "other_principal"
    assert "bob" not in decision.message
    assert one.machine.principal == Principal.user("alice")
    assert isinstance(one.machine.arrived(PRODUCE, one.now), Close)


@pytest.mark.parametrize("other", [PLAIN, SHA_512, BEARER])
def test_a_session_keeps_its_mechanism(other: SaslMechanism) -> None:
    one = Session(rules(reauth_ms=10_000))
    one.log_in(SHA_256)
    one.now = at(2000)
    one.begin(other)
    tokens = {PLAIN: plain_message("alice", "alice's password"), BEARER: bearer_message("t")}
    decision = one.send(tokens.get(other, b"n,,n=alice,r=abc"))
    assert isinstance(decision, Failed)
    assert decision.reason == "other_mechanism"


def test_a_handshake_of_version_0_does_not_begin_again() -> None:
    one = session(SaslState.READY)
    assert one.machine.handshake(0, SHA_256, NONCE, one.now) == HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE)
    assert one.state is SaslState.READY


def test_a_failed_authentication_ends_the_session_that_was_there() -> None:
    one = session(SaslState.READY)
    assert isinstance(one.log_in(password="wrong"), Failed)
    assert isinstance(one.machine.arrived(PRODUCE, one.now), Close)


def test_a_token_that_expires_between_two_messages_does_not_renew() -> None:
    one = Session(rules())
    one.log_in(BEARER, expires_in_ms=5000)
    one.now = at(4000)
    one.begin(BEARER)
    one.send(bearer_message("abc"))
    one.now = at(9000)
    assert isinstance(one.machine.token_verified(identity(expires_in_ms=5000), one.now), Failed)


def test_sessions_without_end_of_renewals_take_no_more_requests_each() -> None:
    one = Session(rules(reauth_ms=10_000))
    for number in range(50):
        one.now = at(2000 * number)
        assert isinstance(one.log_in(), Succeeded)


# Whatever comes


def test_a_login_under_way_takes_little_memory_and_one_that_is_over_none() -> None:
    first = b"n,,n=" + b"a" * 3000 + b",r=" + b"b" * 256
    shared = rules()
    tracemalloc.start()
    try:
        begun = [Session(shared) for _ in range(50)]
        for each in begun:
            each.begin(SHA_256)
            assert isinstance(each.send(first), Challenge)
        used, _ = tracemalloc.get_traced_memory()
        assert used < 50 * 20_000
        for each in begun:
            assert isinstance(each.send(b"c=biws"), Failed)
        used, _ = tracemalloc.get_traced_memory()
        assert used < 50 * 3000
    finally:
        tracemalloc.stop()


class Attacker:
    """Knows everything but a password, and sends it in any order."""

    def __init__(self, rules: SaslRules) -> None:
        self.session = Session(rules)
        self.tokens = [
            b"", b"\x01", b"n,,n=alice,r=abc", b"n,,n=ghost,r=abc", plain_message("alice", "guess"),
            b"c=biws,r=abc" + b64encode(NONCE) + b",p=" + b64encode(bytes(32)),
        ]  # fmt: skip

    def act(self, action: int, detail: int) -> None:
        machine, now = self.session.machine, self.session.now
        token = self.tokens[detail % len(self.tokens)]
        if action == 0:
            machine.arrived(
                [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA][detail % 4], now, detail % 3 > 0
            )
        elif action == 1:
            machine.handshake(detail % 2, ALL[detail % len(ALL)], NONCE, now)
        elif action == 2:
            self.answer(machine.authenticate(token, now))
        elif action == 3:
            self.answer(machine.raw_token(token, now))
        else:
            self.session.now = at(now.monotonic_ms + 1000 * detail)

    def answer(self, decision: TokenDecision) -> None:
        """The shell is honest."""
        if isinstance(decision, CheckPassword):
            self.session.machine.password_checked(decision.is_right(), self.session.now)
        elif isinstance(decision, VerifyToken):
            self.session.machine.token_refused("forged")


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 11)), max_size=30))
@settings(max_examples=150)
def test_nothing_but_a_password_leads_to_ready(actions: list[tuple[int, int]]) -> None:
    attacker = Attacker(rules(reauth_ms=5000))
    for action, detail in actions:
        attacker.act(action, detail)
        assert attacker.session.machine.principal is None
        assert attacker.session.state not in (SaslState.READY, SaslState.REAUTH, SaslState.EXPIRED)
