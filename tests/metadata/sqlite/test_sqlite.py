"""What SQLite adds to the contract: its file, its errors, its clock, and what it costs."""

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest

from headwater.metadata.connect import open_metadata
from headwater.metadata.sqlite.file import MetadataDamaged, connect
from headwater.metadata.sqlite.reader import MAX_HINT_KEYS, ChangeProbe, SqliteReader
from headwater.metadata.sqlite.store import POLL_S, SqliteMetaStore
from headwater.metadata.sqlite.writer import CHANGES_KEPT, TRIM_EVERY, Change, Reap, SqliteWriter
from headwater.metadata.store import RESYNC, Has, Put, Unavailable
from tests.support.eventually import PATIENCE_S, a_while, until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


def test_a_new_file_is_for_its_owner_and_one_that_is_there_keeps_its_mode(path: Path) -> None:
    async def scenario() -> None:
        for mode in (0o600, 0o660):
            store = await open_metadata(f"sqlite:{path}")
            await store.txn([], [Put("a", b"1")])
            modes = {found.stat().st_mode & 0o777 for found in path.parent.glob("metadata.db*")}
            assert modes == {mode}
            await store.close()
            path.chmod(0o660)

    asyncio.run(scenario())


def test_only_known_urls_open_a_store(path: Path) -> None:
    async def scenario() -> None:
        for url in ("redis://127.0.0.1:6379", "consul://x", "sqlite:", "", str(path)):
            with pytest.raises(ValueError, match=r"unknown metadata URL .* use sqlite:PATH"):
                await open_metadata(url)
        with pytest.raises(ValueError, match="unknown metadata URL") as refused:
            await open_metadata("redis://user:hush@127.0.0.1:6379")
        assert "hush" not in str(refused.value)
        for url in (f"sqlite:{path}", f"sqlite://{path}"):
            store = await open_metadata(url)
            await store.txn([], [Put("a", b"1")])
            await store.close()

    asyncio.run(scenario())
    assert path.exists()


def test_what_was_written_is_there_after_reopening(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        written = await store.txn([], [Put("a", b"1")])
        await store.close()
        again = await SqliteMetaStore.open(path)
        found = await again.get("a")
        assert found is not None
        assert found.version == written.versions["a"]
        raised = await again.txn([], [Put("a", b"2")])
        assert raised.versions["a"] > written.versions["a"]
        await again.close()

    asyncio.run(scenario())


def test_a_closed_store_is_unavailable_and_closing_twice_is_harmless(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        hints = store.watch("a/")
        assert await anext(hints) is RESYNC
        ended = asyncio.create_task(anext(hints, None))
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        assert await ended is None
        for call in (store.get("a"), store.list("a/"), store.txn([], [Put("a", b"")]), store.session(1)):
            with pytest.raises(Unavailable, match="closed"):
                await call

    asyncio.run(scenario())


# The file


def make_garbage(path: Path) -> None:
    path.write_bytes(b"this is not a database, and never was one; " * 100)


def make_foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()


def change_our_database(path: Path, statement: str) -> None:
    connect(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


def make_newer(path: Path) -> None:
    change_our_database(path, "PRAGMA user_version = 99")


def add_a_trigger(path: Path) -> None:
    change_our_database(path, "CREATE TRIGGER evil AFTER INSERT ON kv BEGIN DELETE FROM kv; END")


def drop_a_table(path: Path) -> None:
    change_our_database(path, "DROP TABLE changes")


def overwrite_the_schema_page(path: Path) -> None:
    connect(path).close()
    data = bytearray(path.read_bytes())
    data[100:600] = b"\xa5" * 500
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (make_garbage, "is damaged .* restore"),
        (make_foreign_database, "not Headwater's metadata: choose another path"),
        (make_newer, "format 99.*start the version that wrote it"),
        (add_a_trigger, "changed by another program: restore"),
        (drop_a_table, "changed by another program: restore"),
        (overwrite_the_schema_page, "is damaged .* restore"),
    ],
)
def test_a_file_that_is_not_ours_is_named_with_what_to_do(path: Path, spoil: object, says: str) -> None:
    assert callable(spoil)
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(MetadataDamaged, match=says) as caught:
        asyncio.run(SqliteMetaStore.open(path))
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_damage_behind_the_schema_is_found_when_it_is_read(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        for number in range(40):
            await store.txn([], [Put(f"a/{number}", bytes(2000))])
        await store.close()
        data = bytearray(path.read_bytes())
        data[4096 * 6 :] = b"\xa5" * (len(data) - 4096 * 6)
        path.write_bytes(data)
        store = await SqliteMetaStore.open(path)
        with pytest.raises(MetadataDamaged, match="is damaged"):
            await store.list("a/")
        await store.close()

    asyncio.run(scenario())


def test_a_path_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    for path in (tmp_path / "absent" / "metadata.db", tmp_path):
        with pytest.raises(Unavailable, match="does its directory exist") as caught:
            asyncio.run(SqliteMetaStore.open(path))
        assert str(path) in str(caught.value)


# What the disk and other processes do


def test_a_full_disk_refuses_the_change_and_takes_the_next_when_there_is_room(path: Path) -> None:
    async def scenario() -> None:
        connection = connect(path)
        writer = SqliteWriter(connection, path, asyncio.get_running_loop())
        await writer.commit(Change([], [Put("small", b"1")]))
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(Unavailable, match="full"):
            await writer.commit(Change([], [Put("large", bytes(100_000)), Put("small", b"2")]))
        assert not (await writer.commit(Change([Has("large")], []))).ok
        connection.execute("PRAGMA max_page_count = 1000000")
        assert (await writer.commit(Change([], [Put("large", bytes(100_000))]))).ok
        writer.stop()
        await asyncio.to_thread(writer.join)

    asyncio.run(scenario())


def test_a_lock_that_is_not_released_makes_writes_unavailable_but_not_reads(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        await store.txn([], [Put("a", b"1")])
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        connection = connect(path)
        connection.execute("PRAGMA busy_timeout = 50")
        writer = SqliteWriter(connection, path, asyncio.get_running_loop())
        with pytest.raises(Unavailable, match="locked"):
            await writer.commit(Change([], [Put("a", b"2")]))
        found = await store.get("a")
        assert found is not None
        assert found.value == b"1"
        holder.execute("ROLLBACK")
        holder.close()
        assert (await writer.commit(Change([], [Put("a", b"3")]))).ok
        writer.stop()
        await asyncio.to_thread(writer.join)
        await store.close()

    asyncio.run(scenario())


def test_the_event_loop_runs_on_while_a_write_waits_for_a_lock(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.txn([], [Put("a", b"1")]))
        await a_while()
        assert not waiting.done(), "the write has not given up, and this goes on"
        holder.execute("ROLLBACK")
        holder.close()
        assert (await waiting).ok
        await store.close()

    asyncio.run(scenario())


def test_changes_that_wait_share_one_commit(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        answers = await asyncio.gather(*(store.txn([], [Put(f"a/{number}", b"")]) for number in range(100)))
        assert len({answer.versions[f"a/{number}"] for number, answer in enumerate(answers)}) == 100
        wal_bytes = path.with_name("metadata.db-wal").stat().st_size
        assert wal_bytes < 100 * 2 * 4096, "a hundred commits of their own would have written more"
        await store.close()

    asyncio.run(scenario())


# Watching


def test_own_writes_wake_a_watcher_without_waiting_for_the_poll(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.metadata.sqlite.store.POLL_S", 3600.0)

    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        hints = store.watch("a/")
        await anext(hints)
        for number in range(20):
            await store.txn([], [Put("a/x", str(number).encode())])
            assert await asyncio.wait_for(anext(hints), PATIENCE_S) == {"a/x"}
        await store.close()

    asyncio.run(scenario())


def test_nothing_polls_while_nobody_watches(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        assert len(asyncio.all_tasks()) == 1
        hints = store.watch("a/")
        await anext(hints)
        assert len(asyncio.all_tasks()) == 2
        await hints.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(POLL_S)
        assert len(asyncio.all_tasks()) == 1
        hints = store.watch("a/")
        await anext(hints)
        await store.txn([], [Put("a/x", b"")])
        changed = await asyncio.wait_for(anext(hints), PATIENCE_S)
        assert isinstance(changed, set) and "a/x" in changed
        await store.close()

    asyncio.run(scenario())


def test_a_reader_that_lags_behind_the_trimmed_changes_is_told_to_resync(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        reader = SqliteReader(connect(path), path)
        await store.txn([], [Put("a", b"")])
        assert reader.changes() == {"a"}
        for _ in range(0, CHANGES_KEPT + TRIM_EVERY + 500, 500):
            await asyncio.gather(*(store.txn([], [Put("a", b"")]) for _ in range(500)))
        rows = sqlite3.connect(path)
        assert rows.execute("SELECT count(*) FROM changes").fetchone()[0] <= CHANGES_KEPT + TRIM_EVERY + 256
        rows.close()
        assert reader.changes() is RESYNC
        assert reader.changes() == set()
        await store.txn([], [Put("b", b"")])
        assert reader.changes() == {"b"}
        reader.close()
        await store.close()

    asyncio.run(scenario())


def test_the_probe_sees_each_commit_of_others_once(path: Path) -> None:
    connection = connect(path)
    probe = ChangeProbe(path)
    assert probe.has_changed()
    assert not probe.has_changed()
    connection.execute("UPDATE meta SET revision = revision + 1")
    assert probe.has_changed()
    assert not probe.has_changed()
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE meta SET revision = revision + 1")
    assert not probe.has_changed()
    connection.execute("COMMIT")
    assert probe.has_changed()
    probe.close()
    connection.close()


def test_a_watcher_that_takes_no_hints_holds_a_bounded_number_of_them(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        hints = store.watch("a/")
        await anext(hints)
        for start in range(0, MAX_HINT_KEYS + 100, 100):
            await store.txn([], [Put(f"a/{start + index}", b"") for index in range(100)])
            if start % 2_000 == 0:
                await asyncio.sleep(POLL_S / 4)
        await asyncio.sleep(POLL_S * 2)
        assert await anext(hints) is RESYNC
        await store.close()

    asyncio.run(scenario())


# Sessions


def test_a_reboot_ends_every_session(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        session = await store.session(0.4)
        await store.txn([], [Put("me", b"", session)])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("UPDATE sessions SET boot = 'the boot before'")
        other.close()
        await asyncio.wait_for(session.lost.wait(), PATIENCE_S)
        assert await store.get("me") is None
        await store.close()

    asyncio.run(scenario())


def test_a_deadline_too_far_ahead_for_this_boot_is_over(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        session = await store.session(5)
        await store.txn([], [Put("me", b"", session)])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("UPDATE sessions SET deadline = deadline + 1000000")
        other.close()
        assert not (await store.txn([Has("me")], [])).ok
        await store.close()

    asyncio.run(scenario())


def test_a_session_is_not_lost_while_the_file_cannot_be_written(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        session = await store.session(0.2)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        await until(lambda: time.monotonic() > session.valid_until())
        await a_while()
        assert not session.lost.is_set()
        holder.execute("ROLLBACK")
        holder.close()
        # The renewal that waited came too late, and now the engine says so.
        await asyncio.wait_for(session.lost.wait(), PATIENCE_S)
        await store.close()

    asyncio.run(scenario())


def test_an_impossible_time_to_live_is_refused(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        for ttl_s in (0, -1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="time to live"):
                await store.session(ttl_s)
        await store.close()

    asyncio.run(scenario())


def test_a_change_that_waits_when_the_store_closes_is_still_committed(path: Path) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        writer = SqliteWriter(connect(path), path, loop)
        waiting = [asyncio.create_task(writer.commit(Change([], [Put(f"a/{n}", b"")]))) for n in range(600)]
        await asyncio.sleep(0)
        writer.stop()
        await asyncio.to_thread(writer.join)
        assert all(answer.ok for answer in await asyncio.gather(*waiting))
        with pytest.raises(Unavailable, match="closed"):
            await writer.commit(Reap())

    asyncio.run(scenario())
