"""What the reading thread asks of the database file. Each query is one transaction, and sees all that was committed
before it."""

import sqlite3
from pathlib import Path
from typing import Any, Final

from headwater.metadata.sqlite.file import connect, fault
from headwater.metadata.sqlite.writer import boot_id, expired_sessions
from headwater.metadata.store import KV, RESYNC, Resync

MAX_HINT_KEYS: Final = 10_000
"""More changed keys than this at once, or not yet taken by a watcher, become one RESYNC."""


class SqliteReader:
    """Owns the connection that reads. Called by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._boot = boot_id()
        self._revision: int = self._fetch("SELECT revision FROM meta")[0][0]

    def get(self, key: str) -> KV | None:
        rows = self._fetch("SELECT value, version FROM kv WHERE key = ?", (key,))
        return KV(key, *rows[0]) if rows else None

    def list_below(self, prefix: str) -> list[KV]:
        after = prefix[:-1] + chr(ord("/") + 1)
        rows = self._fetch(
            "SELECT key, value, version FROM kv WHERE key >= ? AND key < ? ORDER BY key", (prefix, after)
        )
        return [KV(*row) for row in rows]

    def has_expired_sessions(self) -> bool:
        return bool(self._fetch(*expired_sessions(self._boot)))

    def changes(self) -> set[str] | Resync:
        """The keys changed since the last call, or RESYNC when that is no longer known."""
        # `trimmed` is read after the changes: a row trimmed in between is then noticed, too.
        rows = self._fetch(
            "SELECT revision, key FROM changes WHERE revision > ? ORDER BY revision LIMIT ?",
            (self._revision, MAX_HINT_KEYS + 1),
        )
        revision, trimmed = self._fetch("SELECT revision, trimmed FROM meta")[0]
        has_gap = trimmed > self._revision or len(rows) > MAX_HINT_KEYS
        if has_gap:
            self._revision = revision
            return RESYNC
        if rows:
            self._revision = rows[-1][0]
        return {key for _, key in rows}

    def close(self) -> None:
        self._connection.close()

    def _fetch(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise fault(error, self._path) from error


class ChangeProbe:
    """Tells whether anybody, in any process, has committed since it was last asked.

    It looks at memory that the processes share and waits for no lock, so the event loop may ask it often: a thread
    costs more than the question."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        self._connection.execute("PRAGMA busy_timeout = 0")
        self._data_version = -1

    def has_changed(self) -> bool:
        try:
            (data_version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            # Locked for a moment, or worse: the reader that looks closer will say.
            return True
        changed: bool = data_version != self._data_version
        self._data_version = data_version
        return changed

    def close(self) -> None:
        self._connection.close()
