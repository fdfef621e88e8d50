"""One configuration key as Kafka users know it: its name, its type, its default, and what values it takes.

Values travel as text. `ConfigKey.parse` turns one into a number, a truth value or a set of words, or says in one
sentence what is allowed. The keys of brokers, topics, groups, queues, subscriptions and webhooks are tables of this
type; nothing here knows which keys exist.
"""

import enum
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from headwater.model.errors import ErrorCode, RequestError

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
MAX_VALUE_CHARS: Final = 4_096
MAX_SHOWN_CHARS: Final = 80
"""How much of a refused value an error message repeats."""
EVERY_REPLICA: Final = "*"
_REPLICA = re.compile(r"\d{1,9}:\d{1,9}", re.ASCII)

V_co = TypeVar("V_co", covariant=True)


class ConfigType(enum.IntEnum):
    """The numbers of the protocol (DescribeConfigs, 3 and later)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9
    """Shown to gateways alone, and repeated in no message."""


class ConfigSource(enum.IntEnum):
    """Where a value comes from, in the numbers of the protocol. The one listed first wins."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    GROUP_CONFIG = 8


class InvalidValue(Exception):
    """The text is no value of the key. The message says what is allowed."""


@dataclass(frozen=True, slots=True)
class ConfigKey(Generic[V_co]):
    name: str
    type: ConfigType
    default: str
    doc: str
    read: Callable[[str], V_co]
    """Raises InvalidValue."""
    broker_name: str | None = None
    """The broker setting that gives a topic's key its default: Kafka's synonym."""
    max_chars: int = MAX_VALUE_CHARS

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str | None) -> V_co:
        if text is None:
            raise InvalidValue("a value is needed")
        if len(text) > self.max_chars:
            raise InvalidValue(f"at most {self.max_chars} characters are allowed")
        return self.read(text.strip())


def parse_group_values(
    table: Mapping[str, ConfigKey[V_co]], overrides: Mapping[str, str], *, with_defaults: bool = False
) -> dict[str, V_co]:
    """Those overrides of a group that are in the table, parsed. Raises RequestError(INVALID_CONFIG) with the key, the
    value and what is allowed."""
    values: dict[str, V_co] = {}
    for name, key in table.items():
        if name not in overrides and not with_defaults:
            continue
        text = overrides.get(name, key.default)
        try:
            values[name] = key.parse(text)
        except InvalidValue as problem:
            repeated = name if key.is_sensitive else f"{name}={shown(text)}"
            raise RequestError(ErrorCode.INVALID_CONFIG, f"Group config {repeated} is not valid: {problem}.") from None
    return values


def flag(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise InvalidValue("true or false is allowed")


def always_false(text: str) -> bool:
    if flag(text):
        raise InvalidValue("only false is allowed, the feature is not there")
    return False


def integer(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        # int() alone would also take "1_000" and the digits of other scripts.
        digits = text.removeprefix("-").removeprefix("+")
        if digits.isascii() and digits.isdigit() and len(text) <= 20 and least <= int(text) <= most:
            return int(text)
        raise InvalidValue(f"whole numbers {_range(least, most)} are allowed")

    return read


def ratio(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise InvalidValue("numbers from 0 to 1 are allowed")
    return number


def one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise InvalidValue(f"{', '.join(words)} are allowed")
        return text

    return read


def some_of(*words: str) -> Callable[[str], frozenset[str]]:
    """Any of the words, or none of them."""

    def read(text: str) -> frozenset[str]:
        if not text:
            return frozenset()
        chosen = [word.strip() for word in text.split(",")]
        if not set(chosen) <= set(words) or len(set(chosen)) != len(chosen):
            raise InvalidValue(f"a list, without repetition, of {', '.join(words)} is allowed")
        return frozenset(chosen)

    return read


def replicas(text: str) -> frozenset[str]:
    """<partition>:<broker> with commas between them, EVERY_REPLICA, or nothing."""
    found = [word.strip() for word in text.split(",")] if text else []
    if found != [EVERY_REPLICA] and not all(map(_REPLICA.fullmatch, found)):
        raise InvalidValue("a list of <partition>:<broker>, or * for all, is allowed")
    return frozenset(found)


def words(text: str) -> str:
    return text


def shown(value: str | None) -> str:
    """A value as an error message repeats it."""
    if value is None:
        return "null"
    return repr(value if len(value) <= MAX_SHOWN_CHARS else value[:MAX_SHOWN_CHARS] + "…")


def _range(least: int, most: int) -> str:
    return f"from {least} up" if most in (MAX_INT, MAX_LONG) else f"from {least} to {most}"
