"""One prefix of the metadata store, kept in memory.

The store's watch gives hints; whatever may have changed is read again. So the cache is late by a moment, and may skip
versions, but is right in the end. While the store cannot be reached it stays as it was.

One read is under way at a time, and taken in before the next begins: so an old value never follows a newer one.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from headwater.logs.events import log_event
from headwater.metadata.store import KV, MAX_OPS, MetaStore, Resync, Unavailable, Unknown
from headwater.replication.cluster_view import Versioned

RETRY_S: Final = 0.5

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _Reread:
    """A read that has not begun: who asks for a key until then shares it."""

    keys: set[str] = field(default_factory=set)
    is_done: bool = False
    error: Unavailable | Unknown | None = None


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
        self._reading = asyncio.Lock()
        self._next = _Reread()

    async def load(self) -> None:
        """Read everything. Raises Unavailable, Unknown."""
        async with self._reading:
            self._replace(await self._metadata.list(self._prefix))
            self.synced.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            hints = self._metadata.watch(self._prefix)
            try:
                async for hint in hints:
                    await self._follow(hint)
            except (Unavailable, Unknown) as error:
                log_event("metadata_watch_failed", logging.WARNING, prefix=self._prefix, error=error)
            finally:
                if isinstance(hints, AsyncGenerator):
                    await hints.aclose()
            await asyncio.sleep(RETRY_S)

    def note(self, name: K, value: V, version: int) -> None:
        """What this node has just written itself, so that it need not wait for the watch."""
        self._set(name, Versioned(value, version))

    async def reread(self, *keys: str) -> None:
        """What anybody wrote before this call is here when it returns: the hint may not have come yet. Many who ask at
        the same time share a read. Raises Unavailable, Unknown."""
        reread = self._next
        reread.keys.update(keys)
        async with self._reading:
            if not reread.is_done:
                self._next = _Reread()
                try:
                    await self._take_all(sorted(reread.keys))
                except (Unavailable, Unknown) as error:
                    reread.error = error
                reread.is_done = True
        if reread.error is not None:
            raise reread.error

    async def _follow(self, hint: set[str] | Resync) -> None:
        """What has changed is read, not everything that is there: while thousands of keys change one after another,
        that would be millions of reads."""
        async with self._reading:
            if isinstance(hint, Resync) or (len(hint) > MAX_OPS and 2 * len(hint) > len(self.items)):
                self._replace(await self._metadata.list(self._prefix))
                self.synced.set()
            else:
                await self._take_all(sorted(hint))

    async def _take_all(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), MAX_OPS):
            some = keys[start : start + MAX_OPS]
            self._take(dict(zip(some, await self._metadata.get_many(some), strict=True)))

    def _replace(self, found: Iterable[KV]) -> None:
        items = dict(filter(None, map(self._read, found)))
        changed = {name for name, item in items.items() if self.items.get(name) is not item}
        changed |= self.items.keys() - items.keys()
        self.items.clear()
        self.items.update(items)
        if changed:
            self._changed(frozenset(changed))

    def _take(self, found: Mapping[str, KV | None]) -> None:
        changed = set()
        for key, kv in found.items():
            if kv is not None:
                read = self._read(kv)
                if read is not None and self.items.get(read[0]) is not read[1]:
                    self.items[read[0]] = read[1]
                    changed.add(read[0])
                continue
            try:
                name = self._parse(key.removeprefix(self._prefix))
            except ValueError:
                continue
            if self.items.pop(name, None) is not None:
                changed.add(name)
        if changed:
            self._changed(frozenset(changed))

    def _set(self, name: K, item: Versioned[V]) -> None:
        if self.items.get(name) != item:
            self.items[name] = item
            self._changed(frozenset({name}))

    def _read(self, kv: KV) -> tuple[K, Versioned[V]] | None:
        """None for what cannot be read: one bad value must not hide all the others. A value that is known is not made
        anew."""
        try:
            name = self._parse(kv.key.removeprefix(self._prefix))
            known = self.items.get(name)
            if known is not None and known.version == kv.version:
                return name, known
            return name, Versioned(self._decode(kv.value), kv.version)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log_event("metadata_value_unreadable", logging.ERROR, key=kv.key, error=f"{type(error).__name__}: {error}")
            return None
