"""One prefix of the metadata store, kept in memory.

The store's watch gives hints; whatever may have changed is read again. So the cache is late by a moment, and may skip
versions, but is right in the end. While the store cannot be reached it stays as it was.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final, Generic, TypeVar

from headwater.metadata.store import KV, MetaStore, Resync, Unavailable, Unknown
from headwater.replication.cluster_view import Versioned
from headwater.transport.facts import log_fact

RETRY_S: Final = 0.5
MOST_GETS: Final = 64
"""More hints than this at once, and the whole prefix is listed instead."""
GETS_AT_ONCE: Final = 8

K = TypeVar("K")
V = TypeVar("V")


class KeyCache(Generic[K, V]):
    def __init__(
        self,
        metadata: MetaStore,
        prefix: str,
        parse: Callable[[str], K],
        decode: Callable[[bytes], V],
        changed: Callable[[frozenset[K]], None],
    ) -> None:
        """`parse` makes a name of what follows the prefix. `changed` hears of every name whose value is another, new or
        gone."""
        self.items: dict[K, Versioned[V]] = {}
        self.synced = asyncio.Event()
        """Set when everything was read once."""
        self._metadata = metadata
        self._prefix = prefix
        self._parse = parse
        self._decode = decode
        self._changed = changed

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            hints = self._metadata.watch(self._prefix)
            try:
                async for hint in hints:
                    await self._follow(hint)
            except (Unavailable, Unknown) as error:
                log_fact("metadata_watch_failed", logging.WARNING, prefix=self._prefix, error=error)
            finally:
                if isinstance(hints, AsyncGenerator):
                    await hints.aclose()
            await asyncio.sleep(RETRY_S)

    def note(self, name: K, value: V, version: int) -> None:
        """What this node has just written itself, so that it need not wait to be told."""
        self._set(name, Versioned(value, version))

    async def reread(self, key: str) -> None:
        """Somebody else has written it, and the hint may not have come yet."""
        self._take(key, await self._metadata.get(key))

    async def _follow(self, hint: set[str] | Resync) -> None:
        if isinstance(hint, Resync) or len(hint) > MOST_GETS:
            self._replace(await self._metadata.list(self._prefix))
            self.synced.set()
            return
        keys = sorted(hint)
        for start in range(0, len(keys), GETS_AT_ONCE):
            some = keys[start : start + GETS_AT_ONCE]
            for key, found in zip(some, await asyncio.gather(*map(self._metadata.get, some)), strict=True):
                self._take(key, found)

    def _replace(self, found: Iterable[KV]) -> None:
        items = dict(filter(None, map(self._read, found)))
        changed = {name for name in {*items, *self.items} if items.get(name) != self.items.get(name)}
        self.items.clear()
        self.items.update(items)
        if changed:
            self._changed(frozenset(changed))

    def _take(self, key: str, found: KV | None) -> None:
        if found is not None:
            read = self._read(found)
            if read is not None:
                self._set(*read)
            return
        try:
            name = self._parse(key.removeprefix(self._prefix))
        except ValueError:
            return
        if self.items.pop(name, None) is not None:
            self._changed(frozenset({name}))

    def _set(self, name: K, item: Versioned[V]) -> None:
        if self.items.get(name) != item:
            self.items[name] = item
            self._changed(frozenset({name}))

    def _read(self, kv: KV) -> tuple[K, Versioned[V]] | None:
        """None for what cannot be read: one bad value must not hide all the others."""
        try:
            return self._parse(kv.key.removeprefix(self._prefix)), Versioned(self._decode(kv.value), kv.version)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log_fact("metadata_value_unreadable", logging.ERROR, key=kv.key, error=f"{type(error).__name__}: {error}")
            return None
