"""The metadata store in one SQLite file: the embedded default, for all the processes of one host.

- Writes go through one thread (`SqliteWriter`), reads through another; the event loop never waits for the disk.
- A version is the revision of the whole store that wrote the key, so no version is ever used twice,
  not even after a deletion.
- Only while there are watchers does the store look for changes: at once after its own writes, every POLL_S for those of
  other processes. A watcher that lags too far behind gets RESYNC.
- Sessions end by the monotonic clock, which all processes of a host share, and by a reboot.
"""

import asyncio
import contextlib
import functools
import logging
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from headwater.logs.events import log_event
from headwater.metadata.limits import check_key, check_keys, check_prefix, check_ttl, check_txn
from headwater.metadata.sqlite.file import MetadataDamaged, connect
from headwater.metadata.sqlite.reader import MAX_HINT_KEYS, ChangeProbe, SqliteReader
from headwater.metadata.sqlite.writer import (
    Change,
    CloseSession,
    OpenSession,
    Reap,
    RenewSession,
    SqliteWriter,
)
from headwater.metadata.store import KV, RESYNC, Condition, MetaSession, Operation, Resync, Txn, Unavailable, Unknown

POLL_S: Final = 0.04
REAP_S: Final = 0.5
POLL_FAILED_S: Final = 1.0
"""Pause after a poll that the disk refused."""
KEEP_ALIVES_PER_TTL: Final = 4

_T = TypeVar("_T")


class SqliteMetaStore:
    """See `MetaStore`. Open with `open`, one per process and file; close sessions before the store."""

    def __init__(self, path: Path, reads: ThreadPoolExecutor, reader: SqliteReader, writer: SqliteWriter) -> None:
        self._path = path
        self._reads = reads
        self._reader = reader
        self._writer = writer
        self._watchers: set[_Watcher] = set()
        self._written = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._sessions: set[_SqliteSession] = set()
        self._is_closed = False

    @classmethod
    async def open(cls, path: str | Path) -> "SqliteMetaStore":
        """Create the file when missing.

        Raises MetadataDamaged for a file that is not ours, Unavailable for one that cannot be opened now."""
        loop = asyncio.get_running_loop()
        reads = ThreadPoolExecutor(1, thread_name_prefix="headwater-metadata-reader")
        file = Path(path)

        def connect_both() -> tuple[sqlite3.Connection, SqliteReader]:
            connection = connect(file)
            try:
                return connection, SqliteReader(connect(file), file)
            except BaseException:
                connection.close()
                raise

        try:
            connection, reader = await loop.run_in_executor(reads, connect_both)
        except BaseException:
            reads.shutdown(wait=False)
            raise
        return cls(file, reads, reader, SqliteWriter(connection, file, loop))

    async def get(self, key: str) -> KV | None:
        check_key(key)
        return await self._read(functools.partial(self._reader.get, key))

    async def get_many(self, keys: Sequence[str]) -> list[KV | None]:
        check_keys(keys)
        return await self._read(lambda: [self._reader.get(key) for key in keys])

    async def list(self, prefix: str) -> list[KV]:
        check_prefix(prefix)
        return await self._read(functools.partial(self._reader.list_below, prefix))

    async def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        check_txn(conditions, operations)
        answer = await self._writer.commit(Change(tuple(conditions), tuple(operations)))
        self._written.set()
        return answer

    async def session(self, ttl_s: float) -> MetaSession:
        check_ttl(ttl_s)
        session = _SqliteSession(self._writer, ttl_s, self._ended)
        await self._writer.commit(OpenSession(session.id, ttl_s))
        session.keep_alive()
        self._sessions.add(session)
        return session

    async def watch(self, prefix: str) -> AsyncIterator[set[str] | Resync]:
        check_prefix(prefix)
        if self._is_closed:
            raise Unavailable(f"metadata file {self._path} is closed")
        watcher = _Watcher(prefix)
        self._watchers.add(watcher)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll(), name="metadata-poll")
        try:
            yield RESYNC
            while (hint := await watcher.next_hint()) is not None:
                yield hint
        finally:
            self._watchers.discard(watcher)
            # The poller stops itself when there are no watchers left.
            self._written.set()

    async def close(self) -> None:
        """Watches end; sessions that were not closed expire, as if the process had died."""
        if self._is_closed:
            return
        self._is_closed = True
        background = [task for session in self._sessions if (task := session.abandon()) is not None]
        if self._poller is not None:
            self._poller.cancel()
            background.append(self._poller)
        await asyncio.gather(*background, return_exceptions=True)
        for watcher in self._watchers:
            watcher.end()
        self._writer.stop()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._reads, self._reader.close)
        await loop.run_in_executor(self._reads, self._writer.join)
        self._reads.shutdown(wait=False)

    def _ended(self, session: "_SqliteSession") -> None:
        self._sessions.discard(session)
        self._written.set()

    async def _read(self, query: Callable[[], _T]) -> _T:
        if self._is_closed:
            raise Unavailable(f"metadata file {self._path} is closed")
        if self._writer.is_in_doubt:
            await self._writer.commit(Reap())
        return await asyncio.get_running_loop().run_in_executor(self._reads, query)

    async def _poll(self) -> None:
        """Tell watchers what changed, for as long as there are any."""
        probe: ChangeProbe | None = None
        reap_at = 0.0
        is_behind = True
        try:
            while self._watchers:
                try:
                    if probe is None:
                        probe = await self._read(functools.partial(ChangeProbe, self._path))
                    if time.monotonic() >= reap_at:
                        reap_at = time.monotonic() + REAP_S
                        if await self._read(self._reader.has_expired_sessions):
                            await self._writer.commit(Reap())
                    self._written.clear()
                    # The probe forgets that it saw a change; this does not, until the change was read.
                    is_behind = probe.has_changed() or is_behind
                    if is_behind:
                        self._tell(await self._read(self._reader.changes))
                        is_behind = False
                except (Unavailable, Unknown, MetadataDamaged) as error:
                    log_event("metadata_poll_failed", logging.WARNING, file=self._path, error=error)
                    await asyncio.sleep(POLL_FAILED_S)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._written.wait()
        finally:
            # No await between the last look at the watchers and this: a new watcher starts a new poller.
            self._poller = None
            if probe is not None:
                probe.close()

    def _tell(self, hint: set[str] | Resync) -> None:
        if hint:
            for watcher in self._watchers:
                watcher.add(hint)


class _SqliteSession:
    def __init__(self, writer: SqliteWriter, ttl_s: float, ended: "Callable[[_SqliteSession], None]") -> None:
        self._writer = writer
        self._ended = ended
        self._id = uuid.uuid4().hex
        self._ttl_s = ttl_s
        self._lost = asyncio.Event()
        # Taken before the engine is asked, so that it never outlives what the engine grants.
        self._valid_until = time.monotonic() + ttl_s
        self._keeper: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self._id

    @property
    def lost(self) -> asyncio.Event:
        return self._lost

    def valid_until(self) -> float:
        return self._valid_until

    async def close(self) -> None:
        keeper = self.abandon()
        if keeper is not None:
            await asyncio.gather(keeper, return_exceptions=True)
        await self._writer.commit(CloseSession(self._id))
        self._lost.set()
        self._ended(self)

    def keep_alive(self) -> None:
        self._keeper = asyncio.create_task(self._keep_alive(), name=f"metadata-session-{self._id}")

    def abandon(self) -> asyncio.Task[None] | None:
        """Stop asking for more time; the task that did is returned, to be awaited."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
        return keeper

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / KEEP_ALIVES_PER_TTL)
            asked_at = time.monotonic()
            try:
                answer = await self._writer.commit(RenewSession(self._id))
            except (Unavailable, Unknown, MetadataDamaged) as error:
                log_event("metadata_session_not_renewed", logging.WARNING, session=self._id, error=error)
                continue
            if not answer.ok:
                self._lost.set()
                self._ended(self)
                return
            self._valid_until = asked_at + self._ttl_s


@dataclass(eq=False, slots=True)
class _Watcher:
    """Hints that one watcher has not taken yet: a set of keys, or RESYNC when there are too many."""

    prefix: str
    _pending: set[str] | Resync = field(default_factory=set)
    _has_pending: asyncio.Event = field(default_factory=asyncio.Event)
    _is_ended: bool = False

    def add(self, hint: set[str] | Resync) -> None:
        if isinstance(hint, Resync) or isinstance(self._pending, Resync):
            self._pending = RESYNC
        else:
            self._pending.update(key for key in hint if key.startswith(self.prefix))
            if len(self._pending) > MAX_HINT_KEYS:
                self._pending = RESYNC
        if self._pending:
            self._has_pending.set()

    def end(self) -> None:
        self._is_ended = True
        self._has_pending.set()

    async def next_hint(self) -> set[str] | Resync | None:
        await self._has_pending.wait()
        if self._is_ended:
            return None
        hint, self._pending = self._pending, set()
        self._has_pending.clear()
        return hint
