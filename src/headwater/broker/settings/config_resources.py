"""What administrators describe and alter, as lists of configuration entries: topics and groups. Brokers are in
`broker_settings`, their loggers in `broker_loggers`.

Decisions only: the handlers of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs carry them out.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headwater.broker.settings.topic_config import (
    BrokerDefaults,
    ConfigCandidate,
    candidates,
    canonical,
    canonical_name,
)
from headwater.broker.settings.topic_keys import ALIASES, TOPIC_KEYS
from headwater.model.config_key import ConfigKey, ConfigSource, ConfigType, shown
from headwater.model.errors import ErrorCode, RequestError


class ConfigResourceType(enum.IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOperation(enum.IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    type: ConfigType
    doc: str
    is_read_only: bool
    candidates: tuple[ConfigCandidate, ...]
    """Where the value may come from, the one in force first."""

    @property
    def is_sensitive(self) -> bool:
        """Clients that do not need the value are not shown it, wherever it comes from."""
        return self.type is ConfigType.PASSWORD

    @property
    def value(self) -> str | None:
        return self.candidates[0].value

    @property
    def source(self) -> ConfigSource:
        return self.candidates[0].source


def describe_topic(overrides: Mapping[str, str], defaults: BrokerDefaults) -> list[ConfigEntry]:
    named = canonical(overrides)
    return [_topic_entry(name, named, defaults) for name in TOPIC_KEYS]


def describe_overrides(overrides: Mapping[str, str], defaults: BrokerDefaults) -> list[ConfigEntry]:
    """Only what the topic says itself; the rest is as in `describe_topic` of a topic that says nothing."""
    named = canonical(overrides)
    return [_topic_entry(name, named, defaults) for name in named]


def describe_group(
    overrides: Mapping[str, str],
    defaults: Mapping[str, Sequence[ConfigCandidate]],
    known: Mapping[str, ConfigKey[object]],
) -> list[ConfigEntry]:
    """A group's settings. `defaults` are what the broker gives this group, where that is not the key's own default."""
    entries = []
    for name, key in known.items():
        found = list(defaults.get(name, ()) or [ConfigCandidate(name, key.default, ConfigSource.DEFAULT_CONFIG)])
        if name in overrides:
            found.insert(0, ConfigCandidate(name, overrides[name], ConfigSource.GROUP_CONFIG))
        entries.append(ConfigEntry(name, key.type, key.doc, False, tuple(found)))
    return entries


def refuse_kind(resource_type: int) -> RequestError:
    """The answer for a resource that has no configuration here."""
    try:
        kind = ConfigResourceType(resource_type).name
    except ValueError:
        kind = str(resource_type)
    return RequestError(
        ErrorCode.INVALID_REQUEST,
        f"Resources of type {kind} have no configuration on this broker; topics, groups and brokers do.",
    )


def replaced(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """A topic's overrides after AlterConfigs: what is named, and nothing else."""
    configs = list(configs)
    _check_unique(name for name, _ in configs)
    return canonical(dict(configs))


def changed(
    overrides: Mapping[str, str], changes: Iterable[tuple[str, int, str | None]], defaults: BrokerDefaults
) -> dict[str, str]:
    """A topic's overrides after IncrementalAlterConfigs. Values are not parsed here."""
    changes = list(changes)
    _check_unique(name for name, _, _ in changes)
    result = canonical(overrides)
    for given, operation, value in changes:
        if operation == AlterOperation.DELETE:
            # Of a name that does not exist, too, as Kafka does: afterwards it is not set.
            result.pop(ALIASES.get(given, given), None)
            continue
        name = canonical_name(given)
        if value is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Topic config {name} needs a value.")
        if operation == AlterOperation.SET:
            result[name] = value
        elif operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            current = candidates(name, result, defaults)[0].value or ""
            result[name] = _list_with(name, current, value, operation == AlterOperation.APPEND)
        else:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Operation {operation} on topic config {name} is unknown.")
    return result


def _list_with(name: str, current: str, value: str, appended: bool) -> str:
    if TOPIC_KEYS[name].type is not ConfigType.LIST:
        raise RequestError(ErrorCode.INVALID_CONFIG, f"Topic config {name} is no list; it can only be set or deleted.")
    return list_with(current, value, appended)


def list_with(current: str, value: str, appended: bool) -> str:
    """A list as text with words added, or taken away."""
    words = [word.strip() for word in current.split(",") if word.strip()]
    given = [word.strip() for word in value.split(",") if word.strip()]
    if appended:
        return ",".join([*words, *(word for word in given if word not in words)])
    return ",".join(word for word in words if word not in given)


def _check_unique(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Config {shown(name)} is named twice.")
        seen.add(name)


def _topic_entry(name: str, overrides: Mapping[str, str], defaults: BrokerDefaults) -> ConfigEntry:
    key = TOPIC_KEYS[name]
    return ConfigEntry(name, key.type, key.doc, False, tuple(candidates(name, overrides, defaults)))
