"""Whether clients are held to access control bindings, and who need not be: how both are written in a configuration."""

import enum
from typing import Final

from headwater.broker.settings import setting
from headwater.broker.settings.setting import ConfigError
from headwater.security.principal import EVERY_USER, USER, MalformedPrincipal, Principal

MAX_USERS: Final = 1_000


class Authorization(enum.StrEnum):
    OFF = "off"
    OBSERVE = "observe"
    """What would be refused is logged and counted, and allowed."""
    ON = "on"


def authorization(value: object) -> Authorization:
    return setting.one_of(Authorization, value)


def super_users(value: object) -> tuple[Principal, ...]:
    return _users(value, "a super user")


def gateways(value: object) -> tuple[Principal, ...]:
    return _users(value, "a gateway")


def with_semicolons(value: object) -> str:
    """Super users as administrators see them."""
    assert isinstance(value, tuple), "super users are a tuple"
    return ";".join(map(str, value))


def _users(value: object, called: str) -> tuple[Principal, ...]:
    """Principals as Kafka writes them, in a list or with semicolons between them: a certificate's name has commas."""
    texts = setting.words(value.split(";") if isinstance(value, str) else value)
    if len(texts) > MAX_USERS:
        raise ConfigError(f"at most {MAX_USERS} users can be named")
    return tuple(dict.fromkeys(_user(text.strip(), called) for text in texts))


def _user(text: str, called: str) -> Principal:
    try:
        principal = Principal.parse(text)
    except MalformedPrincipal as problem:
        raise ConfigError(str(problem)) from None
    if principal.kind != USER or not principal.name:
        raise ConfigError(f"{called} is written as User:alice, not {text[:100]!r}")
    if text == EVERY_USER:
        raise ConfigError('a wildcard names no user; authorization = "off" allows everything to everyone')
    return principal
