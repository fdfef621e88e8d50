"""The access control bindings of the cluster, kept in the metadata store and known by every node, and the index of them
that requests are judged by.

When a change is in force, and what holds while the metadata store cannot be reached, `CompiledKeys` says.

A binding that this version cannot read, because a later one wrote it, might deny something. So it is taken to deny
everything on its resources to everyone but super users; its key says which resources these are.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from headwater.broker.settings.compiled_keys import FIRST_VERSION, CompiledKeys
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import MAX_OPS, MAX_TXN_BYTES, Del, MetaStore, Put
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import MAX_BINDINGS, AclBinding, CorruptAclBinding, InvalidAclBinding
from headwater.security.acl_filter import AclFilter
from headwater.security.acl_index import AclIndex
from headwater.security.principal import EVERY_HOST, EVERY_USER, Principal


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
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone_if_no_acl
        self._guarded = frozenset(guarded_topics)
        self._agents = frozenset(agents)
        self.index = self._indexed((), FIRST_VERSION)
        """Of the moment. Never altered: another one takes its place."""
        self._keys: CompiledKeys[AclKey, AclBinding | None, AclIndex] = CompiledKeys(
            metadata, keys.ACLS, AclKey.parse, _decode, compile=self._indexed, use=self._use, what="bindings",
            failed_event="acl_index_failed",
        )  # fmt: skip
        self.watchers: list[Callable[[], None]] = []
        """Called when another index has taken the place of the one before."""

    async def load(self) -> None:
        await self._keys.load()

    async def follow(self) -> None:
        """What other nodes change holds here, too. Until cancelled."""
        await self._keys.follow()

    async def close(self) -> None:
        await self._keys.close()

    @property
    def can_be_altered(self) -> bool:
        """Whether a binding allows a user, if not from here, to alter bindings."""
        altering = AclFilter(resource_type=ResourceType.CLUSTER, permission=Permission.ALLOW)
        return any(each.operation in (Operation.ALTER, Operation.ALL) for each in self.matching(altering))

    def matching(self, acl_filter: AclFilter) -> list[AclBinding]:
        return self.index.matching(acl_filter)

    def room(self) -> int:
        """How many bindings may be added."""
        return max(MAX_BINDINGS - len(self._keys.items), 0)

    async def create(self, bindings: Collection[AclBinding]) -> None:
        """Bindings that are there already stay. Raises RequestError: some may have been created then."""
        await self._keys.write(_slices([Put(_key(each), each.to_json()) for each in dict.fromkeys(bindings)]))

    async def delete(self, bindings: Collection[AclBinding]) -> None:
        """Raises RequestError: some may have been deleted then."""
        await self._keys.write(_slices([Del(_key(each)) for each in dict.fromkeys(bindings)]))

    def _indexed(self, items: Sequence[tuple[AclKey, AclBinding | None]], version: int) -> AclIndex:
        return AclIndex(
            filter(None, (binding or _stand_in(key) for key, binding in items)),
            version=version,
            super_users=self._super_users,
            allow_everyone_if_no_acl=self._allow_everyone,
            guarded_topics=self._guarded,
            agents=self._agents,
        )

    def _use(self, index: AclIndex) -> None:
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
