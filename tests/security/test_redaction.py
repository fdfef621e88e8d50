"""Secrets show themselves nowhere but where they are revealed."""

import copy
import json
import pickle
import traceback
from dataclasses import asdict, dataclass

import pytest

from headwater.security.redaction import HIDDEN, Secret, hidden, shown, without

CANARY = "canary-5417"


@dataclass(frozen=True, slots=True)
class Login:
    user: str
    password: Secret


def test_a_secret_shows_itself_nowhere() -> None:
    secret = Secret(CANARY)
    login = Login("alice", secret)
    texts = [
        str(secret), repr(secret), f"{secret}", f"{secret!r:>30}", f"{secret:>30}", f"{secret} {secret!r}",
        str([secret]), str({"password": secret}), repr(login), str(asdict(login)), str(dir(secret)),
        ascii(secret), repr(ValueError(secret)), str(ValueError(secret)),
    ]  # fmt: skip
    assert [text for text in texts if CANARY in text] == []
    assert secret.reveal() == CANARY


def test_a_traceback_does_not_show_a_secret() -> None:
    try:
        raise ValueError("wrong password", Secret(CANARY))
    except ValueError as error:
        text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "wrong password" in text
    assert CANARY not in text


@pytest.mark.parametrize("write", [json.dumps, pickle.dumps, len, iter, "".join, "a".__add__])
def test_nothing_takes_a_secret_for_text(write: object) -> None:
    assert callable(write)
    with pytest.raises(TypeError) as error:
        write(Secret(CANARY))
    assert CANARY not in str(error.value)


def test_secrets_are_compared_by_what_they_hold() -> None:
    assert Secret(CANARY) == Secret(CANARY)
    assert Secret(CANARY) != Secret("other")
    assert Secret("wrüte\ud800") == Secret("wrüte\ud800")
    assert Secret(CANARY) != CANARY
    assert len({Secret(CANARY), Secret(CANARY)}) == 1
    assert not Secret("")


def test_a_copy_is_as_secret() -> None:
    assert copy.copy(Secret(CANARY)).reveal() == CANARY
    assert copy.deepcopy([Secret(CANARY)]) == [Secret(CANARY)]


def test_settings_are_shown_without_their_secrets() -> None:
    settings = {"user": "alice", "password": Secret(CANARY), "more": [{"key": Secret("k")}, (1, Secret("k"))]}
    assert shown(settings) == {"user": "alice", "password": HIDDEN, "more": [{"key": HIDDEN}, [1, HIDDEN]]}
    assert json.loads(json.dumps(shown(settings)))["password"] == HIDDEN


def test_values_of_sensitive_keys_are_hidden_and_absent_ones_are_seen_to_be_so() -> None:
    values = {"secret": "s", "url": "u", "old.secret": "", "new.secret": None}
    assert hidden(values, ["secret", "old.secret", "new.secret", "unknown"]) == values | {"secret": HIDDEN}


def test_a_message_of_another_library_loses_its_secrets() -> None:
    message = f"cannot reach https://alice:{CANARY}@host, {CANARY}-longer"
    assert (
        without(message, [Secret(CANARY), f"{CANARY}-longer", ""])
        == f"cannot reach https://alice:{HIDDEN}@host, {HIDDEN}"
    )
