"""The quotas of the cluster, kept in the metadata store and known by every node, and the table of them that requests
are measured by.

Each limit has a key of its own, so that two nodes may alter two limits of one entity at the same time. The limits of an
entity are altered in one transaction. A change is in force on this node when it is acknowledged; other nodes follow by
their watch. While the metadata store cannot be reached, the limits that were known last hold on. Many limits are put
into a table in a thread, and meanwhile the table before is asked.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from headwater.broker.settings.key_cache import KeyCache
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import Del, MetaStore, Put, Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.quota_entities import (
    QuotaEntity,
    QuotaKey,
    Quotas,
    QuotaTable,
    altered_quotas,
    quotas_from_json,
    quotas_to_json,
)

MAX_LIMITS: Final = 100_000
PLACED_AT_ONCE: Final = 1_000
"""More limits than that are put into a table in a thread."""

Alterations = Collection[tuple[str, float | None]]
"""Keys and limits; None removes one."""


class ClientQuotas:
    def __init__(self, metadata: MetaStore) -> None:
        self._metadata = metadata
        self.table = QuotaTable()
        """Of the moment. Never altered: another one takes its place."""
        self.watchers: list[Callable[[], None]] = []
        """Called when another table has taken the place of the one before."""
        self._cache: KeyCache[str, tuple[QuotaEntity, Quotas]] = KeyCache(
            metadata, keys.QUOTAS, str, _decode, self._changed
        )
        self._changes = 0
        self._placed = 0
        """How many of the changes are in the table."""
        self._placing: asyncio.Task[None] | None = None

    async def load(self) -> None:
        await self._cache.load()
        await self._in_force()

    async def follow(self) -> None:
        """What other nodes change holds here, too. Until cancelled."""
        await self._cache.run()

    async def close(self) -> None:
        if self._placing is not None:
            self._placing.cancel()
            await asyncio.gather(self._placing, return_exceptions=True)

    async def alter(self, entity: QuotaEntity, alterations: Alterations, *, validate_only: bool = False) -> None:
        """Raises RequestError: nothing is altered then, or it is not known whether."""
        altered = altered_quotas(entity, {}, alterations)
        removed = {key for key, value in alterations if value is None} & {str(key) for key in QuotaKey}
        names = [keys.quota_key(entity.key(), key) for key in (*altered, *sorted(removed))]
        self._check_room(names[: len(altered)])
        if validate_only or not names:
            return
        puts = [Put(name, _encode(entity, {key: altered[key]})) for name, key in zip(names, altered, strict=False)]
        await self._write([*puts, *(Del(name) for name in names[len(altered) :])])
        await self._in_force()

    def _check_room(self, names: Sequence[str]) -> None:
        known = self._cache.items
        new = sum(name.removeprefix(keys.QUOTAS) not in known for name in names)
        if len(known) + new > MAX_LIMITS:
            raise RequestError(ErrorCode.POLICY_VIOLATION, f"There are {MAX_LIMITS} quotas, the most there may be.")

    async def _write(self, changes: Sequence[Put | Del]) -> None:
        try:
            await self._metadata.txn([], changes)
            await self._cache.reread(*(change.key for change in changes))
        except Unavailable as error:
            raise RequestError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The metadata cannot be reached: {error}."
            ) from error
        except Unknown as error:
            raise RequestError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Whether the quotas were altered is not known: {error}. Look, and try again.",
            ) from error

    async def _in_force(self) -> None:
        """Requests are measured by every change that is known now."""
        while self._placing is not None:
            await asyncio.shield(self._placing)

    def _changed(self, changed: frozenset[str]) -> None:
        self._changes += 1
        if self._placing is not None:
            return
        if len(self._cache.items) <= PLACED_AT_ONCE:
            self._use(_table(self._known()), self._changes)
        else:
            self._placing = asyncio.get_running_loop().create_task(self._place_apart())

    async def _place_apart(self) -> None:
        try:
            while self._placed < self._changes:
                changes = self._changes
                self._use(await asyncio.to_thread(_table, self._known()), changes)
        except Exception as error:
            log_event("quota_table_failed", logging.ERROR, error)
            raise
        finally:
            self._placing = None

    def _known(self) -> list[tuple[QuotaEntity, Quotas]]:
        return [known.value for known in self._cache.items.values()]

    def _use(self, table: QuotaTable, changes: int) -> None:
        self.table, self._placed = table, changes
        for watcher in self.watchers:
            watcher()


def _table(limits: Sequence[tuple[QuotaEntity, Quotas]]) -> QuotaTable:
    entities: dict[QuotaEntity, dict[QuotaKey, float]] = {}
    for entity, quotas in limits:
        entities.setdefault(entity, {}).update(quotas)
    return QuotaTable(entities)


def _encode(entity: QuotaEntity, quotas: Mapping[QuotaKey, float]) -> bytes:
    return json.dumps(quotas_to_json(entity, quotas), separators=(",", ":")).encode()


def _decode(data: bytes) -> tuple[QuotaEntity, Quotas]:
    """Raises ValueError: a limit that cannot be read is logged, and limits nothing."""
    return quotas_from_json(json.loads(data))
