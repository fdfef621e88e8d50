"""What administrators describe and alter: topics, groups and brokers as lists of configuration entries.

Topics and groups can be altered, and a change holds at once. A broker's settings come from its file and are
read-only here.
Decisions only: the handlers of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs carry them out.
"""

import enum
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.broker.config import SETTINGS, BrokerConfig
from headwater.broker.config_key import ConfigKey, ConfigSource, ConfigType, shown
from headwater.broker.push_keys import PUSH_KEYS
from headwater.broker.subscription_keys import SUBSCRIPTION_KEYS
from headwater.broker.topic_config import BrokerDefaults, Candidate, candidates, canonical, canonical_name
from headwater.broker.topic_keys import ALIASES, BROKER_NAMES, TOPIC_KEYS
from headwater.model.errors import ErrorCode, RequestError
from headwater.queues.group_keys import GROUP_KEYS, GroupKey

LOGGER = "headwater"


class ResourceType(enum.IntEnum):
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
    candidates: tuple[Candidate, ...]
    """Where the value may come from, the one in force first."""

    @property
    def value(self) -> str:
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


def describe_broker(config: BrokerConfig, name: str, advertised: str) -> list[ConfigEntry]:
    """The broker's settings under Kafka's names. The empty name asks for what was altered for all brokers: nothing."""
    if not name:
        return []
    check_broker(config, name)
    entries = [
        _static("broker.id", ConfigType.INT, SETTINGS["node_id"].doc, str(config.node_id), str(BrokerConfig().node_id)),
        _static("listeners", ConfigType.STRING, SETTINGS["listen"].doc, f"PLAINTEXT://{config.listen}", ""),
        _static("advertised.listeners", ConfigType.STRING, SETTINGS["advertise"].doc, f"PLAINTEXT://{advertised}", ""),
    ]
    unset = BrokerConfig()
    for field_name, setting in SETTINGS.items():
        if setting.kafka_name is not None:
            value, default = (setting.kafka_value(getattr(which, field_name)) for which in (config, unset))
            entries.append(_static(setting.kafka_name, setting.type, setting.doc, value, default))
    defaults = config.topic_defaults
    for broker_name, topic_name in BROKER_NAMES.items():
        key = TOPIC_KEYS[topic_name]
        value = defaults.overrides.get(topic_name, key.default)
        entries.append(_static(broker_name, key.type, key.doc, value, key.default))
    return entries


def describe_group(overrides: Mapping[str, str], defaults: Mapping[str, str]) -> list[ConfigEntry]:
    """A group's settings. `defaults` are what the broker gives this group, where that is not the key's own default."""
    entries = []
    known: dict[str, GroupKey | ConfigKey] = {**GROUP_KEYS, **SUBSCRIPTION_KEYS, **PUSH_KEYS}
    for name, key in known.items():
        found = [Candidate(name, key.default, ConfigSource.DEFAULT_CONFIG)]
        if name in defaults and defaults[name] != key.default:
            found.insert(0, Candidate(name, defaults[name], ConfigSource.STATIC_BROKER_CONFIG))
        if name in overrides:
            found.insert(0, Candidate(name, overrides[name], ConfigSource.GROUP_CONFIG))
        entries.append(ConfigEntry(name, ConfigType(key.type), key.doc, False, tuple(found)))
    return entries


def describe_logger(config: BrokerConfig, name: str) -> list[ConfigEntry]:
    """The broker's loggers and their levels. There is one."""
    check_broker(config, name)
    level = logging.getLevelName(logging.getLogger(LOGGER).getEffectiveLevel())
    found = Candidate(LOGGER, str(level), ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)
    return [ConfigEntry(LOGGER, ConfigType.STRING, "The level from which on facts are logged.", True, (found,))]


def check_broker(config: BrokerConfig, name: str) -> None:
    if name != str(config.node_id):
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"This is broker {config.node_id}; {shown(name)} is not its number."
        )


def refuse_kind(resource_type: int) -> RequestError:
    """The answer for a resource that has no configuration here."""
    try:
        kind = ResourceType(resource_type).name
    except ValueError:
        kind = str(resource_type)
    return RequestError(
        ErrorCode.INVALID_REQUEST,
        f"Resources of type {kind} have no configuration on this broker; topics and groups do.",
    )


def refuse_alteration(resource_type: int) -> RequestError:
    """The answer for a resource that cannot be altered here."""
    if resource_type == ResourceType.BROKER:
        return RequestError(
            ErrorCode.INVALID_REQUEST,
            "A broker's settings come from its file, at the start; they cannot be altered.",
        )
    return refuse_kind(resource_type)


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
            current = candidates(name, result, defaults)[0].value
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


def _static(name: str, type: ConfigType, doc: str, value: str, default: str) -> ConfigEntry:
    found = [Candidate(name, default, ConfigSource.DEFAULT_CONFIG)]
    if value != default:
        found.insert(0, Candidate(name, value, ConfigSource.STATIC_BROKER_CONFIG))
    return ConfigEntry(name, type, doc, True, tuple(found))
