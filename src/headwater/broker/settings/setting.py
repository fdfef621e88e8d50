"""One setting of the broker's configuration file: how it is declared, and how a TOML value becomes its value."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from headwater.model.cluster import Role
from headwater.model.config_key import (
    MAX_INT,
    MAX_LONG,
    ConfigKey,
    ConfigType,
    InvalidValue,
    flag,
    integer,
)
from headwater.model.replica import Durability

MAX_PORT = 65_535

Word = TypeVar("Word", bound=enum.StrEnum)


class ConfigError(Exception):
    """The broker cannot start with this configuration. The message names the key, the file, and what is allowed."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """From host:port, with an IPv6 host in brackets."""
        host, colon, port = text.strip().rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not colon or not host or (":" in host and not bracketed) or not (port.isascii() and port.isdigit()):
            raise ConfigError("HOST:PORT is needed, such as 127.0.0.1:9092 or [::1]:9092")
        if int(port) > MAX_PORT:
            raise ConfigError(f"a port is at most {MAX_PORT}")
        return cls(host, int(port))


class Section(enum.StrEnum):
    """The tables of the file. What has none stands at its top."""

    TOP = ""
    LIMITS = "limits"
    GROUPS = "groups"
    TRANSACTIONS = "transactions"
    STORAGE = "storage"
    CLUSTER = "cluster"
    SECURITY = "security"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSetting:
    section: Section
    key: ConfigKey[object]
    """As an administrator knows it: its name is Kafka's, or empty if Kafka has no such setting. It reads text into what
    `read` takes; the default is that of the configuration's field."""
    read: Callable[[object], Any]
    """From a TOML value. Raises ConfigError with what is allowed."""
    shown: Callable[[Any], str | None]
    """The value as an administrator sees it; None: nothing is set."""
    is_fixed: bool
    """Read at the start and never again: it cannot be altered while the broker runs."""

    @property
    def kafka_name(self) -> str | None:
        return self.key.name or None

    def parse(self, text: str) -> Any:
        """From an administrator's text. Raises ConfigError with what is allowed."""
        try:
            return self.read(self.key.parse(text))
        except InvalidValue as problem:
            raise ConfigError(str(problem)) from None


def described(
    doc: str,
    read: Callable[[object], Any],
    *,
    section: Section = Section.TOP,
    type: ConfigType = ConfigType.STRING,
    kafka: str | None = None,
    kafka_value: Callable[[Any], str | None] = str,
    from_kafka: Callable[[str], object] = str,
    fixed: bool = False,
) -> dict[str, BrokerSetting]:
    """The metadata of a field of the configuration's dataclass."""
    key: ConfigKey[object] = ConfigKey(kafka or "", type, "", doc, from_kafka)
    return {"setting": BrokerSetting(section=section, key=key, read=read, shown=kafka_value, is_fixed=fixed)}


def count(
    default: int,
    doc: str,
    *,
    least: int = 0,
    most: int = MAX_INT,
    section: Section = Section.TOP,
    kafka: str | None = None,
    fixed: bool = False,
) -> Any:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"a whole number from {least} to {most} is needed")
        return value

    about = described(
        doc, read, section=section, type=ConfigType.INT if most <= MAX_INT else ConfigType.LONG, kafka=kafka,
        from_kafka=integer(least, most), fixed=fixed,
    )  # fmt: skip
    return field(default=default, metadata=about)


def bound(default: int, kafka: str) -> Any:
    """How little or how much groups may ask for; the name says of what."""
    group, _, asked = kafka.removeprefix("group.").partition(".m")
    which, _, key = asked.partition(".")
    doc = f"The {'least' if which == 'in' else 'most'} that a group may ask for in {group}.{key}."
    return count(default, doc, least=1, section=Section.GROUPS, kafka=kafka)


def seconds(
    default: float, doc: str, *, section: Section = Section.TOP, kafka: str | None = None, fixed: bool = False
) -> Any:
    """Kafka's name for it counts milliseconds."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**31:
            raise ConfigError("a number of seconds above 0 is needed")
        return float(value)

    about = described(
        doc, read, section=section, type=ConfigType.LONG, kafka=kafka, kafka_value=_milliseconds,
        from_kafka=lambda text: integer(1, MAX_LONG)(text) / 1000, fixed=fixed,
    )  # fmt: skip
    return field(default=default, metadata=about)


def switch(
    default: bool, doc: str, *, section: Section = Section.TOP, kafka: str | None = None, fixed: bool = False
) -> Any:
    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ConfigError("true or false is needed")
        return value

    about = described(
        doc, read, section=section, type=ConfigType.BOOLEAN, kafka=kafka, kafka_value=_lower, from_kafka=flag,
        fixed=fixed,
    )  # fmt: skip
    return field(default=default, metadata=about)


def address(value: object) -> Address:
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise ConfigError("HOST:PORT is needed, such as 127.0.0.1:9092")
    return Address.parse(value)


def address_or_off(value: object) -> Address | None:
    return None if value == "off" else address(value)


def path(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise ConfigError("a path is needed")
    return Path(value)


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError("a text is needed")
    return value


def one_of(kind: type[Word], value: object) -> Word:
    """A word of an enumeration. Raises ConfigError, which names them all."""
    try:
        return kind(str(value))
    except ValueError:
        raise ConfigError(f"one of {', '.join(each.value for each in kind)} is needed") from None


def words(value: object) -> tuple[str, ...]:
    """A list of texts, or one with commas."""
    found = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(word, str) and word for word in found):
        raise ConfigError("a list of texts is needed")
    return tuple(found)


def durability(value: object) -> Durability:
    try:
        return Durability(value)
    except ValueError:
        raise ConfigError('"sync" or "os" is needed') from None


def roles(value: object) -> tuple[Role, ...]:
    """A list of them, or one text with commas."""
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
    try:
        found = tuple(dict.fromkeys(Role(word) for word in words))  # type: ignore[attr-defined]
    except (ValueError, TypeError):
        found = ()
    if not found:
        raise ConfigError(f"one or more of {', '.join(role.value for role in Role)} are needed")
    return found


def topic_values(value: object) -> dict[str, str]:
    """The [topic] table. Dotted names may be quoted, or not, which TOML reads as tables within tables."""
    if not isinstance(value, Mapping):
        raise ConfigError("a table of topic configs is needed")
    flat: dict[str, str] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat |= {f"{name}.{inner}": inner_text for inner, inner_text in topic_values(item).items()}
        elif isinstance(item, bool):
            flat[str(name)] = _lower(item)
        elif isinstance(item, list) and all(isinstance(word, str) for word in item):
            flat[str(name)] = ",".join(item)
        elif isinstance(item, str | int | float):
            flat[str(name)] = str(item)
        else:
            raise ConfigError(f"{name} must be a text, a number, true or false, or a list of texts")
    return flat


def table(value: object, name: str, readers: Mapping[str, Callable[[object], Any]]) -> dict[str, Any]:
    """What the table of this name gives, each key read by its own reader. Raises ConfigError."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"a table is needed, [{name}]")
    return read_keys(value, readers)


def read_keys(table: Mapping[Any, Any], readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Each key of a table, read by its own reader. Raises ConfigError."""
    values = {}
    for key, given in table.items():
        if key not in readers:
            near = get_close_matches(str(key)[:100], readers, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"unknown key '{str(key)[:100]}'{hint}")
        try:
            values[key] = readers[key](given)
        except ConfigError as problem:
            raise ConfigError(f"{key} = {given!r:.100}: {problem}") from None
    return values


def with_commas(value: object) -> str:
    """A list as administrators see it."""
    assert isinstance(value, tuple), "a setting with several values has a tuple of them"
    return ",".join(map(str, value))


def text_or_nothing(value: object) -> str | None:
    return None if value is None else str(value)


def _lower(value: object) -> str:
    return str(value).lower()


def _milliseconds(value: float) -> str:
    return str(round(value * 1000))
