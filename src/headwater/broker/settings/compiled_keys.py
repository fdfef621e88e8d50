"""What requests are judged by, compiled from the items below one prefix of the metadata store.

A change is in force on this node when it is acknowledged; other nodes follow by their watch. While the metadata store
cannot be reached, what was known last holds on. Many items are compiled in a thread, and meanwhile what was compiled
before is in force. What is in force is never altered: another takes its place.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from headwater.broker.settings.key_cache import KeyCache
from headwater.logs.events import log_event
from headwater.metadata.store import Del, MetaStore, Put, Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError
from headwater.replication.cluster_view import Versioned

COMPILED_AT_ONCE: Final = 1_000
"""More items than that are compiled in a thread."""
FIRST_VERSION: Final = 1
"""Of what is in force before anything was read."""

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
Item: TypeAlias = tuple[K, V]


class CompiledKeys(Generic[K, V, T]):
    def __init__(
        self,
        metadata: MetaStore,
        prefix: str,
        parse: Callable[[str], K],
        decode: Callable[[bytes], V],
        *,
        compile: Callable[[Sequence[Item[K, V]], int], T],
        use: Callable[[T], None],
        what: str,
        failed_event: str,
    ) -> None:
        """`compile` is given all items, and a version that grows, perhaps in a thread; `use` puts the result in force.
        `what` names the items in messages."""
        self._metadata = metadata
        self._compile = compile
        self._use = use
        self._what = what
        self._failed_event = failed_event
        self._cache: KeyCache[K, V] = KeyCache(metadata, prefix, parse, decode, self._changed)
        self._known_version = self._used_version = FIRST_VERSION
        self._compiling: asyncio.Task[None] | None = None

    @property
    def items(self) -> Mapping[K, Versioned[V]]:
        return self._cache.items

    async def load(self) -> None:
        """Raises Unavailable, Unknown."""
        await self._cache.load()
        await self._in_force()

    async def follow(self) -> None:
        """What other nodes change holds here, too. Until cancelled."""
        await self._cache.run()

    async def close(self) -> None:
        if self._compiling is not None:
            self._compiling.cancel()
            await asyncio.gather(self._compiling, return_exceptions=True)

    async def write(self, transactions: Iterable[Sequence[Put | Del]]) -> None:
        """Returns when all of it is in force here. Raises RequestError: some of it may be written then."""
        written: list[str] = []
        try:
            for changes in transactions:
                await self._metadata.txn([], changes)
                written += (change.key for change in changes)
            await self._cache.reread(*written)
        except Unavailable as error:
            raise RequestError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The metadata cannot be reached: {error}."
            ) from error
        except Unknown as error:
            raise RequestError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Whether the {self._what} were altered is not known: {error}. Look, and try again.",
            ) from error
        await self._in_force()

    async def _in_force(self) -> None:
        """Requests are judged by every change that is known now."""
        while self._compiling is not None:
            await asyncio.shield(self._compiling)

    def _changed(self, changed: frozenset[K]) -> None:
        self._known_version += 1
        if self._compiling is not None:
            return
        if len(self._cache.items) <= COMPILED_AT_ONCE:
            self._use_next(self._compile(self._known(), self._known_version), self._known_version)
        else:
            self._compiling = asyncio.get_running_loop().create_task(self._compile_apart())

    async def _compile_apart(self) -> None:
        try:
            while self._used_version < self._known_version:
                version = self._known_version
                self._use_next(await asyncio.to_thread(self._compile, self._known(), version), version)
        except Exception as error:
            log_event(self._failed_event, logging.ERROR, error)
            raise
        finally:
            self._compiling = None

    def _known(self) -> list[Item[K, V]]:
        return [(key, known.value) for key, known in self._cache.items.items()]

    def _use_next(self, compiled: T, version: int) -> None:
        self._used_version = version
        self._use(compiled)
