"""The one thread that changes the database file: whatever waits is committed together, with one flush.

Each change sees the changes before it in its group, and has its own revision. A group is committed whole or not at all;
nothing is answered before its commit. Groups that only renew sessions are not flushed: a deadline means nothing after a
power cut, since a reboot ends all sessions.

When a commit fails and it is unclear whether its bytes reached the disk, the writer commits once more, which overwrites
them: then the group was certainly not applied. Until that succeeds the outcome is Unknown and all else is Unavailable.
"""

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from headwater.metadata.sqlite.file import fault, primary_code
from headwater.metadata.store import Condition, Has, Operation, Put, Txn, Unavailable, Unknown

MAX_GROUP: Final = 256
MAX_WAITING: Final = 10_000
CHANGES_KEPT: Final = 10_000
"""Revisions a watcher may lag behind before it must read everything again."""
TRIM_EVERY: Final = 1_000
CLOCK_SLACK_S: Final = 1.0
"""Sums of floating-point seconds are not exact; a reboot sets the clock back by more than this."""

_BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Differs after each start of the machine. Empty where the system does not tell; then only the clock tells."""
    try:
        return _BOOT_ID_FILE.read_text().strip()
    except OSError:
        return ""


def expired_sessions(boot: str) -> tuple[str, tuple[float, float, str]]:
    """The query for sessions that have expired: by the clock; of another boot; or renewed in what is now the future, so
    before a reboot."""
    now = time.monotonic()
    return "SELECT id FROM sessions WHERE deadline < ? OR deadline - ttl_s > ? OR boot <> ?", (
        now,
        now + CLOCK_SLACK_S,
        boot,
    )


@dataclass(frozen=True, slots=True)
class Change:
    conditions: Sequence[Condition]
    operations: Sequence[Operation]


@dataclass(frozen=True, slots=True)
class OpenSession:
    id: str
    ttl_s: float


@dataclass(frozen=True, slots=True)
class RenewSession:
    id: str


@dataclass(frozen=True, slots=True)
class CloseSession:
    id: str


@dataclass(frozen=True, slots=True)
class Reap:
    """End the sessions that have expired. Every group does; this asks for a group."""


Job: TypeAlias = Change | OpenSession | RenewSession | CloseSession | Reap


@dataclass(slots=True)
class _Waiting:
    job: Job
    answer: asyncio.Future[Txn] = field(repr=False)


class SqliteWriter:
    """Owns the connection that writes. `commit` is called on the event loop, everything private on the thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._path = path
        self._loop = loop
        self._boot = boot_id()
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._is_closed = False
        self._is_in_doubt = False
        self._is_flushing = True
        self._revision = 0
        self._trimmed = 0
        self._thread = threading.Thread(target=self._run, name="headwater-metadata-writer", daemon=True)
        self._thread.start()

    @property
    def is_in_doubt(self) -> bool:
        """A commit's outcome is unclear: a read must wait for the next commit, which overwrites it."""
        return self._is_in_doubt

    async def commit(self, job: Job) -> Txn:
        """The answer to one job, once its group is durable. For a session, `ok` says whether it lives."""
        if self._is_closed:
            raise Unavailable(f"metadata file {self._path} is closed")
        if self._waiting.qsize() >= MAX_WAITING:
            raise Unavailable(f"metadata file {self._path}: {MAX_WAITING} changes are waiting already")
        answer: asyncio.Future[Txn] = self._loop.create_future()
        self._waiting.put(_Waiting(job, answer))
        return await answer

    def stop(self) -> None:
        """Accept nothing more; what waits is still committed."""
        if not self._is_closed:
            self._is_closed = True
            self._waiting.put(None)

    def join(self) -> None:
        """Wait for the thread, off the event loop, then close the connection."""
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        is_open = True
        while is_open:
            group: list[_Waiting] = []
            item = self._waiting.get()
            while item is not None:
                group.append(item)
                if len(group) == MAX_GROUP:
                    break
                try:
                    item = self._waiting.get_nowait()
                except queue.Empty:
                    break
            else:
                is_open = False
            if group:
                self._answer(group)

    def _answer(self, group: list[_Waiting]) -> None:
        answers: list[Txn] = []
        error: Exception | None = None
        try:
            answers = self._commit([waiting.job for waiting in group])
        except Exception as raised:
            error = raised
        try:
            self._loop.call_soon_threadsafe(_resolve, group, answers, error)
        except RuntimeError:
            # The event loop was closed before the store: no caller waits any more.
            self._is_closed = True

    def _commit(self, jobs: Sequence[Job]) -> list[Txn]:
        try:
            if self._is_in_doubt:
                self._overwrite_failed_commit()
            self._flush_commits(not all(isinstance(job, RenewSession) for job in jobs))
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise fault(error, self._path) from error
        try:
            answers = self._apply(jobs)
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise fault(error, self._path) from error
            raise
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            # A full disk is found before the commit mark is written, a lock before anything is.
            if primary_code(error) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                self._is_in_doubt = True
                try:
                    self._overwrite_failed_commit()
                except sqlite3.Error:
                    raise Unknown(
                        f"metadata file {self._path}: {error}, and it is unclear whether the change was kept"
                    ) from error
            raise fault(error, self._path) from error
        return answers

    def _overwrite_failed_commit(self) -> None:
        """Write where the failed commit wrote, so that no restart can find it there."""
        self._flush_commits(True)
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.execute("UPDATE meta SET revision = revision + 1")
            self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self._is_in_doubt = False

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _flush_commits(self, flushing: bool) -> None:
        if flushing != self._is_flushing:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if flushing else 'NORMAL'}")
            self._is_flushing = flushing

    def _apply(self, jobs: Sequence[Job]) -> list[Txn]:
        self._revision, self._trimmed = self._connection.execute("SELECT revision, trimmed FROM meta").fetchone()
        before = self._revision
        self._end_expired_sessions()
        answers = [self._apply_one(job) for job in jobs]
        if self._revision != before:
            self._trim()
            self._connection.execute("UPDATE meta SET revision = ?, trimmed = ?", (self._revision, self._trimmed))
        return answers

    def _apply_one(self, job: Job) -> Txn:
        execute = self._connection.execute
        match job:
            case Change(conditions, operations):
                return self._change(conditions, operations)
            case OpenSession(session, ttl_s):
                execute(
                    "INSERT INTO sessions VALUES (?, ?, ?, ?)", (session, self._boot, ttl_s, time.monotonic() + ttl_s)
                )
                return Txn(True, {})
            case RenewSession(session):
                renewed = execute("UPDATE sessions SET deadline = ? + ttl_s WHERE id = ?", (time.monotonic(), session))
                return Txn(renewed.rowcount == 1, {})
            case CloseSession(session):
                self._end_session(session)
                return Txn(True, {})
            case Reap():
                return Txn(True, {})

    def _change(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        # All that can refuse the change comes first: a group has no way to undo one of its members.
        execute = self._connection.execute
        for condition in conditions:
            row = execute("SELECT version FROM kv WHERE key = ?", (condition.key,)).fetchone()
            version = row[0] if row else 0
            holds = version != 0 if isinstance(condition, Has) else version == condition.version
            if not holds:
                return Txn(False, {})
        for session in {op.session.id for op in operations if isinstance(op, Put) and op.session is not None}:
            if execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is None:
                return Txn(False, {})
        if not operations:
            return Txn(True, {})
        self._revision += 1
        versions: dict[str, int] = {}
        for op in operations:
            if isinstance(op, Put):
                session_id = op.session.id if op.session is not None else None
                execute("INSERT OR REPLACE INTO kv VALUES (?, ?, ?, ?)", (op.key, op.value, self._revision, session_id))
                versions[op.key] = self._revision
            else:
                execute("DELETE FROM kv WHERE key = ?", (op.key,))
                versions[op.key] = 0
            execute("INSERT INTO changes VALUES (?, ?)", (self._revision, op.key))
        return Txn(True, versions)

    def _end_expired_sessions(self) -> None:
        for (session,) in self._connection.execute(*expired_sessions(self._boot)).fetchall():
            self._end_session(session)

    def _end_session(self, session: str) -> None:
        execute = self._connection.execute
        execute("DELETE FROM sessions WHERE id = ?", (session,))
        keys = execute("SELECT key FROM kv WHERE session = ?", (session,)).fetchall()
        if keys:
            self._revision += 1
            execute("DELETE FROM kv WHERE session = ?", (session,))
            self._connection.executemany(
                "INSERT INTO changes VALUES (?, ?)", [(self._revision, key) for (key,) in keys]
            )

    def _trim(self) -> None:
        if self._revision - self._trimmed >= CHANGES_KEPT + TRIM_EVERY:
            self._trimmed = self._revision - CHANGES_KEPT
            self._connection.execute("DELETE FROM changes WHERE revision <= ?", (self._trimmed,))


def _resolve(group: list[_Waiting], answers: list[Txn], error: Exception | None) -> None:
    for index, waiting in enumerate(group):
        if waiting.answer.done():
            continue
        if error is not None:
            waiting.answer.set_exception(error)
        else:
            waiting.answer.set_result(answers[index])
