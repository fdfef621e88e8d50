"""The configuration of groups, as queues and as subscriptions: overrides in the metadata store, parsed once for each
change.

A group can be configured before it exists. What it does not say comes from the broker's configuration: among it the
name of its dead-letter topic, which is the broker's prefix and the group's name.

Overrides lie under config/group/<name>, with the name percent-encoded, as a JSON object. A key stays when its last
override goes, because versions are compared and a key that is compared is never made again.
"""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.config_resources import AlterOperation, ConfigEntry, describe_group, list_with
from headwater.broker.settings.key_cache import KeyCache
from headwater.broker.settings.member_keys import (
    BROKER_DEFAULTS,
    MEMBER_KEYS,
    STREAMS_PREFIX,
    ConsumerOverrides,
    check_members,
    parse_members,
)
from headwater.broker.settings.push_keys import PUSH_KEYS, check_push
from headwater.broker.settings.subscription_keys import SUBSCRIPTION_KEYS, SubscriptionSettings, parse_subscription
from headwater.broker.settings.topic_config import ConfigCandidate
from headwater.broker.settings.topic_name import MAX_NAME_CHARS
from headwater.groups.settings import ConsumerTimes
from headwater.groups.share import ShareSettings
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.limits import MAX_KEY_BYTES
from headwater.metadata.store import Is, MetaStore, Put, Unavailable, Unknown
from headwater.model.config_key import ConfigKey, ConfigSource, ConfigType, shown
from headwater.model.errors import ErrorCode, RequestError
from headwater.queues.queue_keys import QUEUE_KEYS, parse_queue_settings
from headwater.queues.settings import QueueSettings

KIND = "group"
MAX_CONFIGURED_GROUPS = 100_000
MAX_REMEMBERED = 10_000
"""Parsed settings that are kept; they are made again when more groups are in use."""
REFRESH_S: Final = 2.0
"""How long what begins waits for the metadata."""
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
KNOWN_KEYS: Final[Mapping[str, ConfigKey[object]]] = {**QUEUE_KEYS, **MEMBER_KEYS, **SUBSCRIPTION_KEYS, **PUSH_KEYS}
_OF_SUBSCRIPTIONS: Final = frozenset((*SUBSCRIPTION_KEYS, *PUSH_KEYS))
NO_SUBSCRIPTION: Final = SubscriptionSettings()
NO_CONSUMERS: Final = ConsumerOverrides()
_NO_TOPIC_CHARS = re.compile(r"[^a-zA-Z0-9._-]")

CheckAlteration: TypeAlias = Callable[[Mapping[str, str], Mapping[str, str]], None]
"""Given the overrides before and after. Raises RequestError if they may not be altered so."""


class GroupConfigs:
    def __init__(
        self,
        metadata: MetaStore,
        config: BrokerConfig,
        broker_candidates: Callable[[str], Sequence[ConfigCandidate]] = lambda name: (),
    ) -> None:
        """`broker_candidates` says where the value of a broker's setting comes from, by its name."""
        self._metadata = metadata
        self._config = config
        self._overrides: dict[str, dict[str, str]] = {}
        self._versions: dict[str, int] = {}
        self._settings: dict[str, QueueSettings] = {}
        self._subscriptions: dict[str, SubscriptionSettings] = {}
        """Of the groups that say something about it."""
        self._consumers: dict[str, ConsumerOverrides] = {}
        """Of the groups that say something about members of the new consumer protocol."""
        self._broker_candidates = broker_candidates
        self._cache: KeyCache[str, dict[str, str]] | None = None
        """Of what is in the metadata, if other nodes change it, too."""
        self._changes = asyncio.Lock()
        self.watchers: set[Callable[[str], None]] = set()
        """Called with a group's name after its configuration changed."""

    def configure(self, config: BrokerConfig) -> None:
        """What groups get that do not say otherwise is something else from now on."""
        self._config = config
        self._settings.clear()

    async def load(self) -> None:
        prefix = keys.config_key(KIND, "")
        for kv in await self._metadata.list(prefix):
            group_id = unquote(kv.key.removeprefix(prefix))
            self._overrides[group_id] = json.loads(kv.value)
            self._versions[group_id] = kv.version
            self._note(group_id)

    async def follow(self) -> None:
        """What other nodes change holds here, too. Until cancelled."""
        self._cache = cache = KeyCache(
            self._metadata, keys.config_key(KIND, ""), unquote, json.loads, lambda names: self._follow(cache, names)
        )
        await cache.run()

    async def refresh(self, *group_ids: str) -> None:
        """What was acknowledged on any node before this call is in force here when it returns: for what begins, and is
        asked for once. Raises RequestError if the metadata cannot be read."""
        if self._cache is None:
            return  # all changes are made here
        try:
            async with asyncio.timeout(REFRESH_S):
                await self._cache.reread(*filter(_is_possible, map(_unchecked_key, filter(None, group_ids))))
        except (Unavailable, Unknown, TimeoutError) as error:
            raise RequestError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The configuration of groups cannot be read now: {error}"
            ) from error

    async def refresh_if_possible(self, *group_ids: str) -> None:
        """As `refresh`; what is known holds if the metadata is away."""
        with contextlib.suppress(RequestError):
            await self.refresh(*group_ids)

    def _follow(self, cache: "KeyCache[str, dict[str, str]]", names: frozenset[str]) -> None:
        for group_id in names:
            item = cache.items.get(group_id)
            if item is None or item.version == self._versions.get(group_id):
                continue
            try:
                parse_subscription(item.value)
                self._parse(group_id, item.value, is_stored=True)
            except RequestError as error:
                log_event("group_config_unreadable", logging.WARNING, group=group_id, error=error)
                continue
            self._versions[group_id] = item.version
            self._overrides[group_id] = item.value
            self._settings.pop(group_id, None)
            self._note(group_id)
            for watcher in tuple(self.watchers):
                watcher(group_id)

    def names(self) -> list[str]:
        """Groups that say something themselves."""
        return sorted(group_id for group_id, overrides in self._overrides.items() if overrides)

    def overrides(self, group_id: str) -> Mapping[str, str]:
        return self._overrides.get(group_id, {})

    def settings(self, group_id: str) -> QueueSettings:
        """How the group treats its records."""
        found = self._settings.get(group_id)
        if found is None:
            found = self._parse(group_id, self.overrides(group_id), is_stored=True)
            if len(self._settings) >= MAX_REMEMBERED:
                self._settings.clear()
            self._settings[group_id] = found
        return found

    def subscription(self, group_id: str) -> SubscriptionSettings:
        """What the group says about being a subscription."""
        return self._subscriptions.get(group_id, NO_SUBSCRIPTION)

    def subscriptions(self) -> Iterator[tuple[str, SubscriptionSettings]]:
        """The explicit ones, by group."""
        return ((group_id, each) for group_id, each in self._subscriptions.items() if each.is_explicit)

    def membership(self, group_id: str) -> ShareSettings:
        """How the group treats its members."""
        settings = self.settings(group_id)
        return ShareSettings(
            settings.session_timeout_ms, settings.heartbeat_interval_ms, max_members=self._config.share_max_size
        )

    def consumer_times(self, group_id: str) -> ConsumerTimes | None:
        """What the group wants of members of the new consumer protocol; None if it says nothing."""
        said = self._consumers.get(group_id)
        return said.times(self._config) if said is not None else None

    def describe(self, group_id: str) -> list[ConfigEntry]:
        _metadata_key(group_id)
        defaults = {name: self._broker_candidates(setting) for name, setting in BROKER_DEFAULTS.items()}
        topic = self.own_dead_letter_topic(group_id)
        if topic:
            static, none = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG
            defaults[DEAD_LETTER_TOPIC] = [
                ConfigCandidate(DEAD_LETTER_TOPIC, topic, static), ConfigCandidate(DEAD_LETTER_TOPIC, "", none)
            ]  # fmt: skip
        return describe_group(self.overrides(group_id), defaults, KNOWN_KEYS)

    async def alter(
        self,
        group_id: str,
        changes: Iterable[tuple[str, int, str | None]],
        *,
        validate_only: bool = False,
        replaces_all: bool = False,
        check: CheckAlteration | None = None,
    ) -> None:
        """Change single overrides, or all of them at once; the new ones hold from now on."""
        key = _metadata_key(group_id)
        changes = list(changes)
        async with self._changes:
            await self.refresh(group_id)
            before = self.overrides(group_id)
            overrides = _changed({} if replaces_all else dict(before), changes)
            if check is not None:
                check(before, overrides)
            settings = self._parse(group_id, overrides)
            parse_subscription(overrides)
            check_members(overrides, self._config)
            if validate_only:
                return
            if group_id not in self._overrides and len(self._overrides) >= MAX_CONFIGURED_GROUPS:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION, f"At most {MAX_CONFIGURED_GROUPS} groups can be configured."
                )
            value = json.dumps(overrides, separators=(",", ":")).encode()
            txn = await self._metadata.txn([Is(key, self._versions.get(group_id, 0))], [Put(key, value)])
            if not txn.ok:
                raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group's configuration changed meanwhile.")
            self._versions[group_id] = txn.versions[key]
            self._overrides[group_id] = overrides
            self._settings[group_id] = settings
            self._note(group_id)
        for watcher in tuple(self.watchers):
            watcher(group_id)
        await self.refresh_if_possible(group_id)  # a read that began before must not come behind it

    async def unsubscribe(self, group_id: str) -> bool:
        """End an explicit subscription, if the group is one. Its other settings stay, as Kafka's do."""
        said = [name for name in self.overrides(group_id) if name in _OF_SUBSCRIPTIONS]
        if said:
            await self.alter(group_id, [(name, AlterOperation.DELETE, None) for name in said])
        return bool(said)

    def _parse(self, group_id: str, overrides: Mapping[str, str], *, is_stored: bool = False) -> QueueSettings:
        check_push(overrides)
        parse_members(overrides)
        others = (*_OF_SUBSCRIPTIONS, *MEMBER_KEYS)
        of_queues = {name: value for name, value in overrides.items() if name not in others}
        defaults = replace(self._defaults(group_id), is_paused=parse_subscription(overrides).is_paused)
        return parse_queue_settings(of_queues, defaults, is_stored=is_stored) if of_queues else defaults

    def _note(self, group_id: str) -> None:
        """What the group's overrides say that is asked for often."""
        overrides = self._overrides[group_id]
        consumers = parse_members(overrides)
        if consumers == NO_CONSUMERS:
            self._consumers.pop(group_id, None)
        else:
            self._consumers[group_id] = consumers
        subscription = parse_subscription(overrides)
        if subscription == NO_SUBSCRIPTION:
            self._subscriptions.pop(group_id, None)
        else:
            self._subscriptions[group_id] = subscription

    def _defaults(self, group_id: str) -> QueueSettings:
        config = self._config
        return replace(
            QueueSettings(),
            record_lock_duration_ms=config.share_record_lock_duration_ms,
            delivery_count_limit=config.share_delivery_count_limit,
            max_record_locks=config.share_max_record_locks,
            heartbeat_interval_ms=config.share_heartbeat_interval_ms,
            session_timeout_ms=config.share_session_timeout_ms,
            dead_letter_topic=self.own_dead_letter_topic(group_id),
        )

    def own_dead_letter_topic(self, group_id: str) -> str:
        """Where the dead letters of a group go that names no topic; empty for nowhere. A group may be called what a
        topic may not: its other characters become underscores."""
        if not self._config.dead_letter_auto_create:
            return ""
        return _NO_TOPIC_CHARS.sub("_", self._config.dead_letter_prefix + group_id)[:MAX_NAME_CHARS]


def _metadata_key(group_id: str) -> str:
    if not group_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "A group's name must not be empty.")
    key = _unchecked_key(group_id)
    if not _is_possible(key):
        raise RequestError(ErrorCode.INVALID_REQUEST, "The group's name is too long to be configured.")
    return key


def _unchecked_key(group_id: str) -> str:
    return keys.config_key(KIND, quote(group_id, safe="").replace(".", "%2E"))


def _is_possible(key: str) -> bool:
    return len(key) <= MAX_KEY_BYTES


def _changed(overrides: dict[str, str], changes: list[tuple[str, int, str | None]]) -> dict[str, str]:
    """Values are not parsed here."""
    seen: set[str] = set()
    for name, operation, value in changes:
        if name in seen:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Config {shown(name)} is named twice.")
        seen.add(name)
        if operation == AlterOperation.DELETE:
            # Of a name that does not exist, too, as Kafka does: afterwards it is not set.
            overrides.pop(name, None)
            continue
        if name.startswith(STREAMS_PREFIX):
            raise RequestError(
                ErrorCode.INVALID_CONFIG, f"{shown(name)} is for the streams protocol (KIP-1071), which is not served."
            )
        if name not in KNOWN_KEYS:
            near = get_close_matches(name[:100], KNOWN_KEYS, 1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise RequestError(ErrorCode.INVALID_CONFIG, f"Unknown group config {shown(name)}{hint}")
        if value is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Group config {name} needs a value.")
        if operation == AlterOperation.SET:
            overrides[name] = value
        elif operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            overrides[name] = _list_with(name, overrides, value, operation == AlterOperation.APPEND)
        else:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Operation {operation} on group config {name} is unknown.")
    return overrides


def _list_with(name: str, overrides: Mapping[str, str], value: str, appended: bool) -> str:
    key = KNOWN_KEYS[name]
    if key.type is not ConfigType.LIST:
        raise RequestError(ErrorCode.INVALID_CONFIG, f"Group config {name} is no list; it can only be set or deleted.")
    current = overrides.get(name, key.default)
    return list_with(current, value, appended)
