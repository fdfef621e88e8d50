"""The database file of the SQLite back end: how it is opened, what is in it, and what its errors mean.

    meta      one row: the revision of the last change, and the revision up to which `changes` was trimmed
    kv        key -> value, version (the revision that wrote it), and the session it lives with, if any
    changes   revision, key: what watchers read; old rows are trimmed
    sessions  id, boot, time to live, deadline on the monotonic clock (one clock for all processes of a host)

The file is marked with APPLICATION_ID and, as user_version, FORMAT. A file whose schema is not letter for letter
ours is refused, so that no foreign trigger or view ever runs. To change the schema: raise FORMAT, and migrate
in `_create_or_verify`, inside the same transaction.
"""

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from headwater.metadata.store import Unavailable

APPLICATION_ID: Final = 0x48775472
FORMAT: Final = 1
BUSY_TIMEOUT_S: Final = 5.0
"""How long a call waits for another process's transaction before it is Unavailable."""

_TABLES: Final = {
    "meta": "(id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER NOT NULL, trimmed INTEGER NOT NULL)",
    "kv": "(key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, session TEXT) WITHOUT ROWID",
    "changes": "(revision INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (revision, key)) WITHOUT ROWID",
    "sessions": "(id TEXT PRIMARY KEY, boot TEXT NOT NULL, ttl_s REAL NOT NULL, deadline REAL NOT NULL) WITHOUT ROWID",
}
_SCHEMA: Final = {
    **{name: f"CREATE TABLE {name} {columns}" for name, columns in _TABLES.items()},
    "kv_session": "CREATE INDEX kv_session ON kv (session) WHERE session IS NOT NULL",
}
_DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}


class MetadataDamaged(Exception):
    """The file cannot be trusted as metadata. Nothing but a person can help: the message says which file, and how."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the file, which is created when missing. Any thread may use it, one at a time.

    Raises MetadataDamaged when the file is not, or no longer, ours, and Unavailable when it cannot be opened now."""
    try:
        _make_private(path)
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA synchronous = FULL")
            _create_or_verify(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise fault(error, path) from error
    return connection


def _make_private(path: Path) -> None:
    """A new file is for its owner alone, and so are those that SQLite lays beside it: users' credentials are in it. A
    file that is there keeps its mode."""
    with contextlib.suppress(OSError):  # SQLite says better what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def fault(error: sqlite3.Error, path: Path) -> Unavailable | MetadataDamaged:
    """What an error of SQLite means to a caller, when it is certain that nothing was committed."""
    if primary_code(error) in _DAMAGE:
        return MetadataDamaged(
            f"metadata file {path} is damaged ({error}). Stop every process that uses it, then restore it "
            "together with its -wal file from a backup, or try `sqlite3 FILE .recover`"
        )
    if primary_code(error) == sqlite3.SQLITE_CANTOPEN:
        return Unavailable(
            f"metadata file {path} cannot be opened ({error}): does its directory exist, and may this user write there?"
        )
    return Unavailable(f"metadata file {path}: {error}")


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its detail byte; errors that Python itself raises count as SQLITE_ERROR."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def _create_or_verify(connection: sqlite3.Connection, path: Path) -> None:
    if not _verify(connection, path):
        # Before the first table: this one is stored in the file, so that every later connection finds it.
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise Unavailable(
                f"metadata file {path} cannot use a write-ahead log (SQLite chose {mode!r}): network file systems "
                "do not carry the shared memory it needs, so keep the file on a local disk"
            )
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have created it while this one waited for the lock.
        if not _verify(connection, path):
            for statement in _SCHEMA.values():
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES (0, 0, 0)")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")


def _verify(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is ours; False for an empty one."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    schema = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL LIMIT 100").fetchall())
    if not schema and application_id == 0:
        return False
    if application_id != APPLICATION_ID:
        raise MetadataDamaged(f"{path} is an SQLite database, but not Headwater's metadata: choose another path")
    written_format = connection.execute("PRAGMA user_version").fetchone()[0]
    if written_format != FORMAT:
        raise MetadataDamaged(
            f"metadata file {path} has format {written_format}, this version of Headwater reads format {FORMAT}: "
            "start the version that wrote it"
        )
    if schema != _SCHEMA or connection.execute("SELECT count(*) FROM meta").fetchone()[0] != 1:
        raise MetadataDamaged(f"metadata file {path} was changed by another program: restore it from a backup")
    return True
