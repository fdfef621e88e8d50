"""The access control bindings of the cluster, kept in the metadata store and known by every node, and the index of them
that requests are judged by.

A change is in force on this node when it is acknowledged; other nodes follow by their watch. While the metadata store
cannot be reached, the bindings that were known last hold on. Many bindings are indexed in a thread, and meanwhile the
index before is asked.

A binding that this version cannot read, because a later one wrote it, might deny something. So it is taken to deny
everything on its resources to everyone but super users; its key says which resources these are.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from headwater.broker.settings.key_cache import KeyCache
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import MAX_OPS, MAX_TXN_BYTES, Del, MetaStore, Put, Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import MAX_BINDINGS, AclBinding, CorruptAclBinding, InvalidAclBinding
from headwater.security.acl_filter import AclFilter
from headwater.security.acl_index import AclIndex
from headwater.security.principal import EVERY_HOST, EVERY_USER, Principal

INDEXED_AT_ONCE: Final = 1_000
"""More bindings than that are indexed in a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclKey:
    """What the key of a binding says of it."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    binding_id: str

    @classmethod
    def parse(cls, text: str) -> "AclKey":
        """Of what follows the prefix. Raises ValueError."""
        pattern, _, binding_id = text.rpartition("/")
        resource_type, pattern_type, name = pattern.split(".", 2)
        try:
            return cls(
                resource_type=ResourceType[resource_type],
                pattern_type=PatternType[pattern_type],
                name=unquote(name),
                binding_id=binding_id,
            )
        except KeyError:
            raise ValueError(f"{text!r:.100} is no key of a binding that this version knows") from None

    @property
    def stand_in(self) -> AclBinding:
        """For a binding that cannot be read. Raises InvalidAclBinding where there can be no binding."""
        return AclBinding(
            resource_type=self.resource_type,
            pattern_type=self.pattern_type,
            name=self.name,
            principal=EVERY_USER,
            host=EVERY_HOST,
            operation=Operation.ALL,
            permission=Permission.DENY,
        )


class AclBindings:
    def __init__(
        self,
        metadata: MetaStore,
        *,
        super_users: Iterable[Principal] = (),
        allow_everyone_if_no_acl: bool = False,
        guarded_topics: Iterable[str] = (),
        agents: Iterable[Principal] = (),
    ) -> None:
        """`agents` act for others: as super users, too, they do nothing with guarded topics."""
        self._metadata = metadata
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone_if_no_acl
        self._guarded = frozenset(guarded_topics)
        self._agents = frozenset(agents)
        self._changes = 1
        self.index = self._indexed((), self._changes)
        """Of the moment. Never altered: another one takes its place."""
        self._cache: KeyCache[AclKey, AclBinding | None] = KeyCache(
            metadata, keys.ACLS, AclKey.parse, _decode, self._changed
        )
        self._indexing: asyncio.Task[None] | None = None
        self.watchers: list[Callable[[], None]] = []
        """Called when another index has taken the place of the one before."""

    async def load(self) -> None:
        await self._cache.load()
        await self._in_force()

    async def follow(self) -> None:
        """What other nodes change holds here, too. Until cancelled."""
        await self._cache.run()

    async def close(self) -> None:
        if self._indexing is not None:
            self._indexing.cancel()
            await asyncio.gather(self._indexing, return_exceptions=True)

    @property
    def can_be_altered(self) -> bool:
        """Whether a binding allows a user, if not from here, to alter bindings."""
        altering = AclFilter(resource_type=ResourceType.CLUSTER, permission=Permission.ALLOW)
        return any(each.operation in (Operation.ALTER, Operation.ALL) for each in self.matching(altering))

    def matching(self, acl_filter: AclFilter) -> list[AclBinding]:
        return self.index.matching(acl_filter)

    def room(self) -> int:
        """How many bindings may be added."""
        return max(MAX_BINDINGS - len(self._cache.items), 0)

    async def create(self, bindings: Collection[AclBinding]) -> None:
        """Bindings that are there already stay. Raises RequestError: some may have been created then."""
        await self._write([Put(_key(each), each.to_json()) for each in dict.fromkeys(bindings)])

    async def delete(self, bindings: Collection[AclBinding]) -> None:
        """Raises RequestError: some may have been deleted then."""
        await self._write([Del(_key(each)) for each in dict.fromkeys(bindings)])

    async def _write(self, changes: Sequence[Put | Del]) -> None:
        try:
            for some in _slices(changes):
                await self._metadata.txn([], some)
            await self._cache.reread(*(change.key for change in changes))
        except Unavailable as error:
            raise RequestError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The metadata cannot be reached: {error}."
            ) from error
        except Unknown as error:
            raise RequestError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Whether the bindings were altered is not known: {error}. Look, and try again.",
            ) from error
        await self._in_force()

    async def _in_force(self) -> None:
        """Requests are judged by every change that is known now."""
        while self._indexing is not None:
            await asyncio.shield(self._indexing)

    def _changed(self, changed: frozenset[AclKey]) -> None:
        self._changes += 1
        if len(self._cache.items) <= INDEXED_AT_ONCE:
            self._use(self._indexed(self._known(), self._changes))
        elif self._indexing is None:
            self._indexing = asyncio.get_running_loop().create_task(self._index_apart())

    async def _index_apart(self) -> None:
        try:
            while self.index.version < self._changes:
                self._use(await asyncio.to_thread(self._indexed, self._known(), self._changes))
        except Exception as error:
            log_event("acl_index_failed", logging.ERROR, error)
            raise
        finally:
            self._indexing = None

    def _known(self) -> tuple[AclBinding, ...]:
        return tuple(filter(None, (known.value or _stand_in(key) for key, known in self._cache.items.items())))

    def _indexed(self, bindings: Iterable[AclBinding], version: int) -> AclIndex:
        return AclIndex(
            bindings,
            version=version,
            super_users=self._super_users,
            allow_everyone_if_no_acl=self._allow_everyone,
            guarded_topics=self._guarded,
            agents=self._agents,
        )

    def _use(self, index: AclIndex) -> None:
        if index.version > self.index.version:
            self.index = index
            for watcher in self.watchers:
                watcher()


def _key(binding: AclBinding) -> str:
    return keys.acl_key(binding.resource_type.name, binding.pattern_type.name, binding.name, binding.id)


def _stand_in(key: AclKey) -> AclBinding | None:
    try:
        return key.stand_in
    except InvalidAclBinding:
        return None


def _decode(data: bytes) -> AclBinding | None:
    try:
        return AclBinding.from_json(data)
    except CorruptAclBinding as error:
        log_event("acl_binding_unreadable", logging.ERROR, error=error, effect="everything is denied on its resources")
        return None


def _slices(changes: Iterable[Put | Del]) -> Iterator[list[Put | Del]]:
    """As many as a transaction takes."""
    some: list[Put | Del] = []
    size_bytes = 0
    for change in changes:
        change_bytes = len(change.key) + (len(change.value) if isinstance(change, Put) else 0)
        if some and (len(some) == MAX_OPS or size_bytes + change_bytes > MAX_TXN_BYTES // 2):
            yield some
            some, size_bytes = [], 0
        some.append(change)
        size_bytes += change_bytes
    if some:
        yield some
