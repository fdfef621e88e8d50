"""The settings of a broker as they are now: its file, what was altered for all brokers, and what for this one.

    altered for this broker  >  altered for all brokers  >  the broker's file  >  the default in `BrokerConfig`

What was altered lies in the metadata store under config/broker/<node id> and config/broker/default, as a JSON object of
Kafka's names and texts, so it outlasts restarts and holds on every node. A key stays when its last override goes,
because versions are compared and a key that is compared is never made again.

A setting that is `fixed` was read at the start and cannot be altered. Nothing is altered unless all settings together
still make sense.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from headwater.broker.settings.broker_config import BY_KAFKA_NAME, SETTINGS, BrokerConfig
from headwater.broker.settings.carried_through import carried_through
from headwater.broker.settings.config_resources import AlterOperation, ConfigEntry, list_with
from headwater.broker.settings.key_cache import KeyCache
from headwater.broker.settings.setting import Address, ConfigError
from headwater.broker.settings.topic_config import BrokerDefaults, ConfigCandidate
from headwater.broker.settings.topic_keys import BROKER_NAMES, TOPIC_KEYS
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import Is, MetaStore, Put, Unavailable, Unknown
from headwater.model.cluster import NodeListener
from headwater.model.config_key import ConfigSource, ConfigType, InvalidValue, shown
from headwater.model.errors import ErrorCode, RequestError

KIND: Final = "broker"
ALL_BROKERS: Final = ""
"""The name of the resource that holds for every broker."""
_ALL_BROKERS_KEY: Final = keys.config_key(KIND, "default")
MAX_TRIES: Final = 5
"""Another node may alter what holds for all brokers at the same moment."""
IDENTITY: Final = ("broker.id", "listeners", "advertised.listeners", "listener.security.protocol.map")
"""Shown beside the keys that are settings."""
_NAMES: Final = frozenset((*BY_KAFKA_NAME, *BROKER_NAMES))

Overrides = Mapping[str, str]
Announce: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Return when what holds for all brokers is in force on all that answer soon."""


@dataclass(frozen=True, slots=True)
class _InForce:
    config: BrokerConfig
    topic_defaults: BrokerDefaults


class BrokerSettings:
    def __init__(self, metadata: MetaStore, config: BrokerConfig, announce: Announce | None = None) -> None:
        """`announce` is None on a standalone node."""
        self.file = config
        self.current = config
        """What is in force. Its `topic` is that of the file: see `topic_defaults`."""
        self.topic_defaults = config.topic_defaults
        """What topics get that do not say otherwise."""
        self.watchers: list[Callable[[], None]] = []
        """Called after a change."""
        self._announce = announce
        self._cache: KeyCache[str, dict[str, str]] | None = None
        """Of what is in the metadata, if other nodes change it, too."""
        self._file_topics = config.topic_defaults.overrides
        self._metadata = metadata
        self._own = str(config.node_id)
        self._overrides: dict[str, Overrides] = {self._own: {}, ALL_BROKERS: {}}
        """What was altered, by the name of the resource."""
        self._foreign: dict[str, Overrides] = {self._own: {}, ALL_BROKERS: {}}
        """What a node of another version altered, and this one cannot read: it is kept for nodes that can."""
        self._versions = dict.fromkeys(self._overrides, 0)
        self._changes = asyncio.Lock()

    async def load(self) -> None:
        """What was altered before this start. Raises Unavailable."""
        names = list(self._overrides)
        for name, found in zip(names, await self._metadata.get_many([_key(name) for name in names]), strict=True):
            if found is not None:
                self._take(name, json.loads(found.value), found.version)

    async def follow(self) -> None:
        """What other nodes alter holds here, too. Until cancelled."""
        self._cache = cache = KeyCache(
            self._metadata, keys.config_key(KIND, ""), _name, json.loads, lambda names: self._follow(cache, names)
        )
        await cache.run()

    async def refresh(self) -> None:
        """What was altered on any node before this call is in force here when it returns. Raises Unavailable,
        Unknown."""
        if self._cache is not None:
            await self._cache.reread(*map(_key, self._overrides))

    def _follow(self, cache: "KeyCache[str, dict[str, str]]", names: Iterable[str]) -> None:
        for name in names:
            item = cache.items.get(name)
            if item is not None and name in self._overrides and item.version != self._versions[name]:
                self._take(name, item.value, item.version)

    @carried_through
    async def alter(
        self,
        name: str,
        changes: Iterable[tuple[str, int, str | None]],
        *,
        validate_only: bool = False,
        replaces_all: bool = False,
    ) -> None:
        """Change single settings, or replace all that were altered; the new ones hold from now on. Raises
        RequestError, and what the metadata store raises."""
        self.check_name(name)
        await self._alter(name, list(changes), validate_only, replaces_all)
        if not validate_only and name == ALL_BROKERS and self._announce is not None:
            await self._announce()
        with suppress(Unavailable, Unknown):
            await self.refresh()  # a read that began before must not come behind the change

    async def _alter(
        self, name: str, changes: Sequence[tuple[str, int, str | None]], validate_only: bool, replaces_all: bool
    ) -> None:
        async with self._changes:
            for _ in range(MAX_TRIES):
                overrides = self._changed(name, {} if replaces_all else dict(self._overrides[name]), changes)
                self._trial(name, overrides)
                if validate_only:
                    return
                deleted = {each for each, _, _ in changes}
                kept = {each: text for each, text in self._foreign[name].items() if each not in deleted}
                stored = overrides if replaces_all else {**kept, **overrides}
                key, value = _key(name), json.dumps(stored, separators=(",", ":")).encode()
                txn = await self._metadata.txn([Is(key, self._versions[name])], [Put(key, value)])
                if txn.ok:
                    self._take(name, stored, txn.versions[key])
                    return
                found = await self._metadata.get(key)
                assert found is not None, "a key that was written is never deleted"
                self._take(name, json.loads(found.value), found.version)
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "The settings are being altered by others; try again.")

    def check_number(self, name: str) -> None:
        """Raises RequestError unless it is this broker's."""
        self.check_name(name or "no name")

    def check_name(self, name: str) -> None:
        """Raises RequestError unless it is this broker's number, or the name of all brokers."""
        if name not in self._overrides:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"This is broker {self._own}; {shown(name)} is not its number."
            )

    # Describing

    def describe(self, name: str, advertised: Sequence[NodeListener], truths: Overrides) -> list[ConfigEntry]:
        """A broker's settings under Kafka's names, or what was altered for all. `truths` are values that differ from
        what the setting says, because of circumstances."""
        self.check_name(name)
        if name == ALL_BROKERS:
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            return [
                replace(self._entry(each), candidates=(ConfigCandidate(each, value, source),))
                for each, value in self._overrides[name].items()
                if each in _NAMES
            ]
        listeners = self.file.client_listeners
        identity = zip(
            IDENTITY,
            (ConfigType.INT, ConfigType.STRING, ConfigType.STRING, ConfigType.STRING),
            ("node_id", "listener", "listener", "listener"),
            (
                self._own,
                ",".join(f"{each.name}://{each.listen}" for each in listeners),
                ",".join(f"{each.name}://{Address(each.host, each.port)}" for each in advertised),
                ",".join(f"{each.name}:{each.protocol.value}" for each in listeners),
            ),
            strict=True,
        )
        entries = [
            ConfigEntry(each, type_, SETTINGS[field].key.doc, True, (ConfigCandidate(each, value, _STATIC),))
            for each, type_, field, value in identity
        ]
        entries += [self._entry(each) for each in (*BY_KAFKA_NAME, *BROKER_NAMES)]
        return [_corrected(entry, truths) for entry in entries]

    def candidates(self, name: str) -> Sequence[ConfigCandidate]:
        """Where the value of a setting may come from, the one in force first."""
        return self._entry(name).candidates

    def _entry(self, name: str) -> ConfigEntry:
        if name in BROKER_NAMES:
            topic_key = TOPIC_KEYS[BROKER_NAMES[name]]
            type_, doc, is_fixed = topic_key.type, topic_key.doc, False
            default: str | None = topic_key.default
            said = self._file_topics.get(topic_key.name, default)
        else:
            field, setting = BY_KAFKA_NAME[name], SETTINGS[BY_KAFKA_NAME[name]]
            said, default = (setting.shown(getattr(which, field)) for which in (self.file, _UNSET))
            type_, doc, is_fixed = setting.key.type, setting.key.doc, setting.is_fixed
        found = [
            ConfigCandidate(name, self._overrides[scope][name], source)
            for scope, source in ((self._own, _OWN), (ALL_BROKERS, _ALL))
            if name in self._overrides[scope]
        ]
        found += [ConfigCandidate(name, said, _STATIC)] if said != default else []
        return ConfigEntry(
            name, type_, doc, is_fixed, (*found, ConfigCandidate(name, default, ConfigSource.DEFAULT_CONFIG))
        )

    # Changing

    def _changed(
        self, scope: str, overrides: dict[str, str], changes: Iterable[tuple[str, int, str | None]]
    ) -> dict[str, str]:
        seen: set[str] = set()
        for name, operation, value in changes:
            if name in seen:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"Config {shown(name)} is named twice.")
            seen.add(name)
            if operation == AlterOperation.DELETE:
                overrides.pop(name, None)
                continue
            _check_alterable(name)
            if value is None:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"Broker config {name} needs a value.")
            if operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
                entry = self._entry(name)
                if entry.type is not ConfigType.LIST:
                    raise RequestError(
                        ErrorCode.INVALID_CONFIG, f"Broker config {name} is no list; it can only be set or deleted."
                    )
                below = [each for each in entry.candidates if scope == self._own or each.source is not _OWN]
                current = overrides.get(name, below[0].value or "")
                value = list_with(current, value, operation == AlterOperation.APPEND)
            elif operation != AlterOperation.SET:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, f"Operation {operation} on broker config {name} is unknown."
                )
            _parse(name, value)
            overrides[name] = value
        return overrides

    def _trial(self, scope: str, overrides: Overrides) -> _InForce:
        """What would be in force. What holds for all brokers must make sense without this broker's own settings, too.
        Raises RequestError."""
        if scope == ALL_BROKERS:
            _in_force(self.file, {}, overrides)
            return _in_force(self.file, self._overrides[self._own], overrides)
        return _in_force(self.file, overrides, self._overrides[ALL_BROKERS])

    def _take(self, scope: str, overrides: Overrides, version: int) -> None:
        """What the metadata says. Another node, perhaps of another version, wrote it: what does not make sense here is
        left out, and the log says so."""
        self._versions[scope] = version
        readable = {name: value for name, value in overrides.items() if _is_readable(name, value)}
        self._foreign[scope] = {name: value for name, value in overrides.items() if name not in readable}
        self._overrides[scope] = readable
        try:
            in_force = self._trial(scope, readable)
        except RequestError as error:
            log_event("broker_settings_refused", logging.WARNING, scope=scope or "all brokers", error=error)
            return
        self.current, self.topic_defaults = in_force.config, in_force.topic_defaults
        log_event("broker_settings", scope=scope or "all brokers", altered=",".join(sorted(readable)) or "none")
        for watcher in self.watchers:
            watcher()


_UNSET: Final = BrokerConfig()
_OWN: Final = ConfigSource.DYNAMIC_BROKER_CONFIG
_ALL: Final = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
_STATIC: Final = ConfigSource.STATIC_BROKER_CONFIG


def _key(name: str) -> str:
    return keys.config_key(KIND, name) if name else _ALL_BROKERS_KEY


def _name(key: str) -> str:
    return ALL_BROKERS if key == "default" else key


def _in_force(file: BrokerConfig, own: Overrides, of_all: Overrides) -> _InForce:
    """Raises RequestError if the settings do not go together."""
    values = {BY_KAFKA_NAME[name]: _parse(name, text) for name, text in {**of_all, **own}.items() if _is_own(name)}
    layers = tuple(
        (source, {BROKER_NAMES[name]: text for name, text in chosen.items() if name in BROKER_NAMES})
        for source, chosen in ((_OWN, own), (_ALL, of_all))
    )
    config = replace(file, **values)
    try:
        config.check("settings")
    except ConfigError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"The settings do not go together: {error}.") from None
    return _InForce(config, BrokerDefaults(file.topic_defaults.overrides, layers))


def _is_own(name: str) -> bool:
    """Whether it is a setting of the broker itself, not a default for topics."""
    return name in BY_KAFKA_NAME


def _check_alterable(name: str) -> None:
    if name in IDENTITY or (name in BY_KAFKA_NAME and SETTINGS[BY_KAFKA_NAME[name]].is_fixed):
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"Broker config {name} is read at the start; it cannot be altered while it runs."
        )
    if name not in _NAMES:
        near = get_close_matches(name[:100], _NAMES, 1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise RequestError(ErrorCode.INVALID_CONFIG, f"Unknown broker config {shown(name)}{hint}")


def _parse(name: str, text: str) -> Any:
    """Raises RequestError that names key, value and what is allowed."""
    try:
        if name in BROKER_NAMES:
            return TOPIC_KEYS[BROKER_NAMES[name]].parse(text)
        return SETTINGS[BY_KAFKA_NAME[name]].parse(text)
    except (ConfigError, InvalidValue) as problem:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"Invalid value {shown(text)} for broker config {name}: {problem}."
        ) from None


def _is_readable(name: str, value: str) -> bool:
    try:
        _check_alterable(name)
        _parse(name, value)
    except RequestError as error:
        log_event("broker_setting_unreadable", logging.WARNING, name=name, error=error)
        return False
    return True


def _corrected(entry: ConfigEntry, truths: Overrides) -> ConfigEntry:
    if entry.name not in truths or entry.value == truths[entry.name]:
        return entry
    return replace(entry, candidates=(replace(entry.candidates[0], value=truths[entry.name]),))
