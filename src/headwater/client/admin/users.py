"""Users with passwords: which there are, and giving and taking what their passwords are checked by.

A request has each user once, so every mechanism of a user is a question of its own. What is sent for a password is as
good as the password: brokers take it over TLS, and without it from their own machine alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.client.errors import check
from headwater.client.question import Question, question
from headwater.security.scram import HASHING, ScramHashing, ScramMechanism
from headwater.wire.typed.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headwater.wire.typed.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)


@dataclass(frozen=True, slots=True)
class DescribedUser:
    name: str
    iterations: dict[str, int]
    """By mechanism."""


@dataclass(frozen=True, slots=True)
class NewPassword:
    """What makes the password of a user checkable by one mechanism. Computing it takes milliseconds."""

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism
    salt: bytes
    iterations: int


def describe_users(names: Sequence[str] = ()) -> Question[list[DescribedUser]]:
    """All users, unless some are named. The code is RESOURCE_NOT_FOUND for one that does not exist."""

    def read(response: DescribeUserScramCredentialsResponse) -> list[DescribedUser]:
        check(response.error_code, response.error_message, "The list of users")
        for result in response.results:
            check(result.error_code, result.error_message, f"User {result.user}")
        return [
            DescribedUser(
                result.user, {_mechanism_word(each.mechanism): each.iterations for each in result.credential_infos}
            )
            for result in response.results
        ]

    return question(DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names]), read)


def set_password(new: NewPassword, hashing: ScramHashing = HASHING) -> Question[None]:
    """The user is made if there is none."""
    salted = hashing.derive(new.mechanism.hash_name, new.password.encode(), new.salt, new.iterations)
    upsertion = ScramCredentialUpsertion(
        name=new.user,
        mechanism=new.mechanism,
        iterations=new.iterations,
        salt=new.salt,
        salted_password=salted,
    )
    return question(AlterUserScramCredentialsRequest(upsertions=[upsertion]), _checked)


def remove_password(user: str, mechanism: str) -> Question[None]:
    """By its name, `SCRAM-SHA-512`. A user without any is gone. The code is RESOURCE_NOT_FOUND if there is none."""
    number = ScramMechanism[mechanism.replace("-", "_")]
    deletion = ScramCredentialDeletion(name=user, mechanism=number)
    return question(AlterUserScramCredentialsRequest(deletions=[deletion]), _checked)


def _checked(response: AlterUserScramCredentialsResponse) -> None:
    for result in response.results:
        check(result.error_code, result.error_message, f"User {result.user}")


def _mechanism_word(number: int) -> str:
    """Also of one that this version does not know."""
    try:
        return ScramMechanism(number).sasl.value
    except ValueError:
        return f"mechanism {number}"
