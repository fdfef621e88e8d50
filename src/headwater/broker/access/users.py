"""The users of the cluster, kept in the metadata store and known by every node.

A change is in force on this node when it is acknowledged; other nodes follow by their watch. While the metadata store
cannot be reached, the users that were known last are known on. The record of a user who is gone stays, without a
credential: keys that are compared are never made again, and its generation goes on.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from headwater.broker.access.user_record import UserRecord
from headwater.broker.settings.key_cache import KeyCache
from headwater.metadata import keys
from headwater.metadata.store import Is, MetaStore, Put, Unavailable, Unknown
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.scram import ScramCredential, ScramMechanism

MAX_USERS: Final = 100_000
AWAY: Final = "The metadata cannot be reached"
MAX_TRIES: Final = 5
"""Another node may alter the same user at the same moment."""


class Users:
    def __init__(self, metadata: MetaStore, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._cache: KeyCache[str, UserRecord] = KeyCache(
            metadata, keys.USERS, unquote, UserRecord.from_json, self._changed
        )
        self.watchers: list[Callable[[frozenset[str]], None]] = []
        """Called with the names of users who were altered, here or on another node."""

    async def load(self) -> None:
        await self._cache.load()

    async def follow(self) -> None:
        """What other nodes change holds here, too. Until cancelled."""
        await self._cache.run()

    def names(self) -> list[str]:
        return sorted(name for name, known in self._cache.items.items() if known.value.credentials)

    def find(self, name: str) -> UserRecord | None:
        known = self._cache.items.get(name)
        return known.value if known is not None and known.value.credentials else None

    def credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """What the user may log in with."""
        user = self.find(name)
        return user.credentials.get(mechanism) if user is not None else None

    async def alter(
        self, name: str, removed: Iterable[ScramMechanism], added: Mapping[ScramMechanism, ScramCredential]
    ) -> None:
        """A user without a credential is gone. Raises RequestError: also if a credential to be removed is not there."""
        removed = tuple(removed)
        for _ in range(MAX_TRIES):
            await self._reread(name)
            known = self._cache.items.get(name)
            record = known.value if known is not None else UserRecord(generation=0, created_ms=self._clock.now_ms())
            if any(mechanism not in record.credentials for mechanism in removed):
                raise RequestError(
                    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
            if known is None and len(self._cache.items) >= MAX_USERS:
                raise RequestError(ErrorCode.POLICY_VIOLATION, f"There are {MAX_USERS} users, the most there may be.")
            if await self._write(name, record.altered(removed, added), known.version if known is not None else 0):
                return
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "The user is being altered by others; try again.")

    def _changed(self, names: frozenset[str]) -> None:
        for watcher in self.watchers:
            watcher(names)

    async def _write(self, name: str, record: UserRecord, version: int) -> bool:
        """Whether the record was still of that version."""
        key = keys.user_key(name)
        try:
            written = await self._metadata.txn([Is(key, version)], [Put(key, record.to_json())])
        except Unavailable as error:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{AWAY}: {error}.") from error
        except Unknown as error:
            raise RequestError(
                ErrorCode.REQUEST_TIMED_OUT, f"Whether the user was altered is not known: {error}. Look, and try again."
            ) from error
        if written.ok:
            await self._reread(name)
        return written.ok

    async def _reread(self, name: str) -> None:
        try:
            await self._cache.reread(keys.user_key(name))
        except (Unavailable, Unknown) as error:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{AWAY}: {error}.") from error
