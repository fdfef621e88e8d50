"""The quotas of the cluster, kept in the metadata store and known by every node, and the table of them that requests
are measured by.

Each limit has a key of its own, so that two nodes may alter two limits of one entity at the same time. The limits of an
entity are altered in one transaction. When a change is in force, and what holds while the metadata store cannot be
reached, `CompiledKeys` says.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from headwater.broker.settings.compiled_keys import CompiledKeys
from headwater.metadata import keys
from headwater.metadata.store import Del, MetaStore, Put
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

Alterations = Collection[tuple[str, float | None]]
"""Keys and limits; None removes one."""


class ClientQuotas:
    def __init__(self, metadata: MetaStore) -> None:
        self.table = QuotaTable()
        """Of the moment. Never altered: another one takes its place."""
        self.watchers: list[Callable[[], None]] = []
        """Called when another table has taken the place of the one before."""
        self._keys: CompiledKeys[str, tuple[QuotaEntity, Quotas], QuotaTable] = CompiledKeys(
            metadata, keys.QUOTAS, str, _decode, compile=_table, use=self._use, what="quotas",
            failed_event="quota_table_failed",
        )  # fmt: skip

    async def load(self) -> None:
        await self._keys.load()

    async def follow(self) -> None:
        """What other nodes change holds here, too. Until cancelled."""
        await self._keys.follow()

    async def close(self) -> None:
        await self._keys.close()

    async def alter(self, entity: QuotaEntity, alterations: Alterations, *, validate_only: bool = False) -> None:
        """Raises RequestError: nothing is altered then, or it is not known whether."""
        altered = altered_quotas(entity, {}, alterations)
        removed = {key for key, value in alterations if value is None} & {str(key) for key in QuotaKey}
        names = [keys.quota_key(entity.key(), key) for key in (*altered, *sorted(removed))]
        self._check_room(names[: len(altered)])
        if validate_only or not names:
            return
        puts = [Put(name, _encode(entity, {key: altered[key]})) for name, key in zip(names, altered, strict=False)]
        await self._keys.write([[*puts, *(Del(name) for name in names[len(altered) :])]])

    def _check_room(self, names: Sequence[str]) -> None:
        known = self._keys.items
        new = sum(name.removeprefix(keys.QUOTAS) not in known for name in names)
        if len(known) + new > MAX_LIMITS:
            raise RequestError(ErrorCode.POLICY_VIOLATION, f"There are {MAX_LIMITS} quotas, the most there may be.")

    def _use(self, table: QuotaTable) -> None:
        self.table = table
        for watcher in self.watchers:
            watcher()


def _table(limits: Sequence[tuple[str, tuple[QuotaEntity, Quotas]]], version: int) -> QuotaTable:
    entities: dict[QuotaEntity, dict[QuotaKey, float]] = {}
    for _, (entity, quotas) in limits:
        entities.setdefault(entity, {}).update(quotas)
    return QuotaTable(entities)


def _encode(entity: QuotaEntity, quotas: Mapping[QuotaKey, float]) -> bytes:
    return json.dumps(quotas_to_json(entity, quotas), separators=(",", ":")).encode()


def _decode(data: bytes) -> tuple[QuotaEntity, Quotas]:
    """Raises ValueError: a limit that cannot be read is logged, and limits nothing."""
    return quotas_from_json(json.loads(data))
