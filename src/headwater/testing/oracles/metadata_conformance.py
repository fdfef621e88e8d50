"""The contract of the metadata store as tests. A back end passes when its subclass does:

    class TestEtcd(MetadataConformance):
        async def open_store(self) -> MetaStore: ...

Each call of `open_store` gives a new client of one and the same engine. The engine may hold other keys: every test
keeps below its own root.
"""

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from headwater.metadata.store import (
    KV,
    MAX_OPS,
    MAX_TXN_BYTES,
    RESYNC,
    Del,
    Has,
    Is,
    MetaStore,
    Put,
    Resync,
    Txn,
)
from headwater.testing.oracles.linearizability import (
    RegisterCall,
    RegisterCompareAndSet,
    RegisterRead,
    RegisterWrite,
    Timed,
    is_linearizable,
    register,
)

Hints = AsyncIterator[set[str] | Resync]


def asynchronous(test: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    """Run a test method on its own event loop."""

    def run(self: Any) -> None:
        asyncio.run(test(self))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


class MetadataConformance:
    session_ttl_s: float = 6.0
    """The shortest time to live that the engine keeps."""
    patience_s: float = 30.0
    """How long a hint or an expiry may take."""

    async def open_store(self) -> MetaStore:
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def clients(self) -> AsyncIterator[tuple[MetaStore, MetaStore, str]]:
        """Two clients of one engine, and a prefix of their own."""
        first, second = await self.open_store(), await self.open_store()
        try:
            yield first, second, f"conformance/{uuid.uuid4().hex}/"
        finally:
            await first.close()
            await second.close()

    # Reading and writing

    @asynchronous
    async def test_a_key_that_was_never_written_is_absent(self) -> None:
        async with self.clients() as (store, _, root):
            assert await store.get(root + "a") is None
            assert await store.list(root) == []

    @asynchronous
    async def test_a_write_is_seen_by_another_client_at_the_version_that_the_writer_was_told(self) -> None:
        async with self.clients() as (store, other, root):
            written = await store.txn([], [Put(root + "a", b"\x00\xff")])
            found = await other.get(root + "a")
            assert found is not None
            assert (found.value, found.version) == (b"\x00\xff", written.versions[root + "a"])
            assert found.version > 0

    @asynchronous
    async def test_many_keys_are_read_at_once_in_the_order_asked_for(self) -> None:
        async with self.clients() as (store, other, root):
            written = await store.txn([], [Put(f"{root}{number}", b"%d" % number) for number in range(MAX_OPS - 1)])
            keys = [f"{root}{number}" for number in reversed(range(MAX_OPS))]
            absent, *found = await other.get_many(keys)
            assert absent is None
            assert found == [KV(key, key.removeprefix(root).encode(), written.versions[key]) for key in keys[1:]]
            assert await other.get_many([]) == []
            with pytest.raises(ValueError, match="at most 100 keys"):
                await other.get_many([*keys, root + "more"])

    @asynchronous
    async def test_a_key_is_created_once(self) -> None:
        async with self.clients() as (store, other, root):
            assert (await store.txn([Is(root + "a", 0)], [Put(root + "a", b"1")])).ok
            assert await other.txn([Is(root + "a", 0)], [Put(root + "a", b"2")]) == Txn(False, {})
            assert await value_of(store, root + "a") == b"1"

    @asynchronous
    async def test_compare_and_set_holds_only_at_the_current_version(self) -> None:
        async with self.clients() as (store, other, root):
            first = (await store.txn([], [Put(root + "a", b"1")])).versions[root + "a"]
            second = (await other.txn([Is(root + "a", first)], [Put(root + "a", b"2")])).versions[root + "a"]
            assert second != first
            assert not (await store.txn([Is(root + "a", first)], [Put(root + "a", b"3")])).ok
            assert (await store.txn([Is(root + "a", second)], [Put(root + "a", b"4")])).ok
            assert await value_of(other, root + "a") == b"4"

    @asynchronous
    async def test_writing_the_same_value_again_is_a_new_version(self) -> None:
        async with self.clients() as (store, _, root):
            first = await store.txn([], [Put(root + "a", b"1")])
            second = await store.txn([], [Put(root + "a", b"1")])
            assert first.versions[root + "a"] != second.versions[root + "a"]

    @asynchronous
    async def test_one_failed_condition_leaves_every_key_as_it_was(self) -> None:
        async with self.clients() as (store, _, root):
            version = (await store.txn([], [Put(root + "a", b"1"), Put(root + "b", b"1")])).versions[root + "a"]
            refused = await store.txn(
                [Is(root + "a", version), Is(root + "b", 0)],
                [Put(root + "a", b"2"), Del(root + "b"), Put(root + "c", b"2")],
            )
            assert refused == Txn(False, {})
            assert [(kv.key, kv.value) for kv in await store.list(root)] == [(root + "a", b"1"), (root + "b", b"1")]

    @asynchronous
    async def test_several_keys_change_together(self) -> None:
        async with self.clients() as (store, other, root):
            await store.txn([], [Put(root + "old", b"1")])
            done = await store.txn(
                [Has(root + "old")], [Del(root + "old"), Put(root + "b", b"2"), Put(root + "c", b"3")]
            )
            assert done.ok
            assert [kv.key for kv in await other.list(root)] == [root + "b", root + "c"]

    @asynchronous
    async def test_has_holds_at_any_version_and_fails_for_an_absent_key(self) -> None:
        async with self.clients() as (store, _, root):
            assert not (await store.txn([Has(root + "a")], [Put(root + "b", b"1")])).ok
            await store.txn([], [Put(root + "a", b"1")])
            await store.txn([], [Put(root + "a", b"2")])
            assert (await store.txn([Has(root + "a")], [Put(root + "b", b"1")])).ok

    @asynchronous
    async def test_conditions_alone_can_be_asked(self) -> None:
        async with self.clients() as (store, _, root):
            version = (await store.txn([], [Put(root + "a", b"1")])).versions[root + "a"]
            assert (await store.txn([Is(root + "a", version)], [])).ok
            assert not (await store.txn([Is(root + "a", version + 1)], [])).ok

    @asynchronous
    async def test_a_deleted_key_is_absent_and_deleting_it_again_is_harmless(self) -> None:
        async with self.clients() as (store, other, root):
            await store.txn([], [Put(root + "a", b"1")])
            deleted = await store.txn([Has(root + "a")], [Del(root + "a")])
            assert deleted == Txn(True, {root + "a": 0})
            assert await other.get(root + "a") is None
            assert (await store.txn([], [Del(root + "a")])).ok

    @asynchronous
    async def test_a_version_from_before_a_deletion_never_holds_again(self) -> None:
        async with self.clients() as (store, other, root):
            before = (await store.txn([], [Put(root + "a", b"1")])).versions[root + "a"]
            await store.txn([], [Del(root + "a")])
            after = (await other.txn([Is(root + "a", 0)], [Put(root + "a", b"2")])).versions[root + "a"]
            assert after != before
            assert not (await store.txn([Is(root + "a", before)], [Put(root + "a", b"3")])).ok

    @asynchronous
    async def test_list_gives_the_keys_below_a_prefix_in_key_order(self) -> None:
        async with self.clients() as (store, other, root):
            keys = ["b/2", "b/10", "b/deep/x", "a", "b", "b0", "b.x", "bb/1", "c/1"]
            await store.txn([], [Put(root + key, key.encode()) for key in keys])
            assert [kv.key.removeprefix(root) for kv in await other.list(root + "b/")] == ["b/10", "b/2", "b/deep/x"]
            assert [kv.key.removeprefix(root) for kv in await other.list(root)] == sorted(keys)
            assert all(kv.value == kv.key.removeprefix(root).encode() for kv in await other.list(root))

    # Limits

    @asynchronous
    async def test_the_largest_transaction_is_accepted_and_a_larger_one_is_refused(self) -> None:
        async with self.clients() as (store, _, root):
            most = [Put(f"{root}{index:03}", b"") for index in range(MAX_OPS)]
            assert (await store.txn([], most)).ok
            with pytest.raises(ValueError, match=str(MAX_OPS)):
                await store.txn([], [*most, Put(root + "more", b"")])
            with pytest.raises(ValueError, match=str(MAX_OPS)):
                await store.txn([Has(root + "a")] * (MAX_OPS + 1), [])
            room = MAX_TXN_BYTES - len(root + "a")
            assert (await store.txn([], [Put(root + "a", b"x" * room)])).ok
            with pytest.raises(ValueError, match=str(MAX_TXN_BYTES)):
                await store.txn([], [Put(root + "a", b"x" * (room + 1))])

    @asynchronous
    async def test_a_key_appears_once_in_a_transaction(self) -> None:
        async with self.clients() as (store, _, root):
            with pytest.raises(ValueError, match="twice"):
                await store.txn([], [Put(root + "a", b"1"), Del(root + "a")])
            assert await store.get(root + "a") is None

    @asynchronous
    async def test_keys_and_prefixes_of_the_wrong_shape_are_refused(self) -> None:
        async with self.clients() as (store, _, _):
            for key in ("", "/", "/a", "a/", "a//b", "a b", "a\n", "ä", "a/../b", ".", "a/.", "x" * 513):
                with pytest.raises(ValueError, match="key"):
                    await store.get(key)
                with pytest.raises(ValueError, match="key"):
                    await store.txn([Is(key, 0)], [])
                with pytest.raises(ValueError, match="key"):
                    await store.txn([], [Put(key, b"")])
            for prefix in ("", "a", "/", "a//", "../"):
                with pytest.raises(ValueError):
                    await store.list(prefix)
                with pytest.raises(ValueError):
                    await anext(store.watch(prefix))

    # Watching

    @asynchronous
    async def test_a_watch_begins_with_resync_and_covers_what_another_client_writes_and_deletes(self) -> None:
        async with self.clients() as (store, other, root), self.watching(other, root) as hints:
            for operation in (
                Put(root + "a", b"1"),
                Put(root + "a", b"2"),
                Del(root + "a"),
                Put(root + "b/c", b""),
            ):
                await store.txn([], [operation])
                await self.covered(hints, {operation.key})

    @asynchronous
    async def test_a_watch_covers_its_own_clients_writes(self) -> None:
        async with self.clients() as (store, _, root), self.watching(store, root) as hints:
            await store.txn([], [Put(root + "a", b"1"), Put(root + "b", b"1")])
            await self.covered(hints, {root + "a", root + "b"})

    @asynchronous
    async def test_a_watch_tells_of_its_prefix_only(self) -> None:
        async with self.clients() as (store, other, root), self.watching(other, root + "in/") as hints:
            await store.txn([], [Put(root + "out/a", b""), Put(root + "in", b""), Put(root + "in/a", b"")])
            assert await self.covered(hints, {root + "in/a"}) <= {root + "in/a"}

    @asynchronous
    async def test_a_watcher_that_caches_ends_with_what_the_store_holds(self) -> None:
        async with self.clients() as (store, other, root):
            cache: dict[str, bytes] = {}
            held: dict[str, bytes] = {}
            chance = random.Random(7)

            async def follow() -> None:
                async for hint in other.watch(root):
                    if isinstance(hint, Resync):
                        cache.clear()
                        cache.update({kv.key: kv.value for kv in await other.list(root)})
                        continue
                    for key in hint:
                        found = await other.get(key)
                        if found is None:
                            cache.pop(key, None)
                        else:
                            cache[key] = found.value
                    # Hints of different keys come in no order: after that of the last change there may be others.
                    if root + "last" in cache and cache == held:
                        return

            follower = asyncio.create_task(follow())
            for number in range(200):
                key = f"{root}{chance.randrange(20)}"
                await store.txn([], [Del(key) if chance.random() < 0.3 else Put(key, str(number).encode())])
            held.update({kv.key: kv.value for kv in await store.list(root)})
            held[root + "last"] = b""
            await store.txn([], [Put(root + "last", b"")])
            await asyncio.wait_for(follower, self.patience_s)

    # Sessions

    @asynchronous
    async def test_a_sessions_keys_vanish_when_it_is_closed(self) -> None:
        async with self.clients() as (store, other, root):
            session = await store.session(self.session_ttl_s)
            assert (await store.txn([Is(root + "me", 0)], [Put(root + "me", b"", session), Put(root + "kept", b"")])).ok
            async with self.watching(other, root) as hints:
                await session.close()
                assert [kv.key for kv in await other.list(root)] == [root + "kept"]
                await self.covered(hints, {root + "me"})

    @asynchronous
    async def test_a_sessions_keys_vanish_when_its_owner_falls_silent(self) -> None:
        async with self.clients() as (_, other, root):
            dying = await self.open_store()
            session = await dying.session(self.session_ttl_s)
            await dying.txn([], [Put(root + "me", b"", session)])
            async with self.watching(other, root) as hints:
                await dying.close()
                await self.covered(hints, {root + "me"})
                deadline = time.monotonic() + self.patience_s
                while await other.get(root + "me") is not None:
                    assert time.monotonic() < deadline, "the key of a silent session is still there"
                    await asyncio.sleep(0.02)

    @asynchronous
    async def test_a_session_lives_on_while_its_owner_does(self) -> None:
        async with self.clients() as (store, other, root):
            session = await store.session(self.session_ttl_s)
            await store.txn([], [Put(root + "me", b"", session)])
            first_limit = session.valid_until()
            await asyncio.sleep(self.session_ttl_s * 1.5)
            assert await other.get(root + "me") is not None
            assert not session.lost.is_set()
            assert session.valid_until() > first_limit
            assert time.monotonic() < session.valid_until() <= time.monotonic() + self.session_ttl_s
            await session.close()

    @asynchronous
    async def test_a_put_without_a_session_takes_the_key_out_of_it(self) -> None:
        async with self.clients() as (store, other, root):
            session = await store.session(self.session_ttl_s)
            await store.txn([], [Put(root + "me", b"1", session)])
            await other.txn([], [Put(root + "me", b"2")])
            await session.close()
            assert await value_of(other, root + "me") == b"2"

    @asynchronous
    async def test_a_write_guarded_by_a_session_key_fails_once_the_session_has_ended(self) -> None:
        async with self.clients() as (store, other, root):
            session = await store.session(self.session_ttl_s)
            await store.txn([], [Put(root + "me", b"", session)])
            assert (await other.txn([Has(root + "me")], [Put(root + "a", b"1")])).ok
            await session.close()
            assert not (await other.txn([Has(root + "me")], [Put(root + "a", b"2")])).ok
            assert await value_of(store, root + "a") == b"1"

    @asynchronous
    async def test_nothing_is_put_into_a_session_that_has_ended(self) -> None:
        async with self.clients() as (store, _, root):
            session = await store.session(self.session_ttl_s)
            await session.close()
            refused = await store.txn([], [Put(root + "me", b"", session), Put(root + "a", b"")])
            assert refused == Txn(False, {})
            assert await store.list(root) == []

    @asynchronous
    async def test_a_transaction_writes_for_one_session_only(self) -> None:
        async with self.clients() as (store, _, root):
            one, two = await store.session(self.session_ttl_s), await store.session(self.session_ttl_s)
            with pytest.raises(ValueError, match="one session"):
                await store.txn([], [Put(root + "a", b"", one), Put(root + "b", b"", two)])
            await one.close()
            await two.close()

    # Concurrency

    @asynchronous
    async def test_no_increment_is_lost_between_two_clients(self) -> None:
        increments, workers = 15, 4
        async with self.clients() as (store, other, root):
            await store.txn([], [Put(root + "n", b"0")])

            async def count(client: MetaStore) -> None:
                done = 0
                while done < increments:
                    found = await client.get(root + "n")
                    assert found is not None
                    raised = str(int(found.value) + 1).encode()
                    done += (await client.txn([Is(root + "n", found.version)], [Put(root + "n", raised)])).ok

            await asyncio.gather(*(count(client) for client in [store, other] * (workers // 2)))
            assert await value_of(other, root + "n") == str(increments * workers).encode()

    @asynchronous
    async def test_one_key_is_a_linearizable_register(self) -> None:
        async with self.clients() as (store, other, root):
            for seed in range(5):
                chance = random.Random(seed)
                key = f"{root}{seed}"
                history: list[Timed[RegisterCall]] = []
                await store.txn([], [Put(key, b"0")])
                clients = [store, other, store, other]
                await asyncio.gather(
                    *(use_register(client, key, n, chance, history) for n, client in enumerate(clients))
                )
                assert is_linearizable(history, 0, register), f"seed {seed}: {history}"

    # What the tests above share

    @contextlib.asynccontextmanager
    async def watching(self, store: MetaStore, prefix: str) -> AsyncIterator[Hints]:
        hints = store.watch(prefix)
        assert await anext(hints) is RESYNC
        try:
            yield hints
        finally:
            await hints.aclose()  # type: ignore[attr-defined]

    async def covered(self, hints: Hints, keys: set[str]) -> set[str]:
        """Take hints until they cover these keys; what they named. RESYNC covers all."""
        named: set[str] = set()
        async with asyncio.timeout(self.patience_s):
            while not keys <= named:
                hint = await anext(hints)
                if isinstance(hint, Resync):
                    break
                named |= hint
        return named


async def value_of(store: MetaStore, key: str) -> bytes:
    found = await store.get(key)
    assert found is not None, f"{key} is absent"
    return found.value


async def use_register(
    client: MetaStore, key: str, number: int, chance: random.Random, history: list[Timed[RegisterCall]]
) -> None:
    """One client's calls on a register, each noted with when it began and ended. Every value written is unique."""
    for round_number in range(12):
        value = (round_number + 1) * 10 + number
        kind = chance.randrange(3)
        if kind == 0:
            began = time.monotonic()
            seen = int(await value_of(client, key))
            history.append(Timed(RegisterRead(seen), began, time.monotonic()))
        elif kind == 1:
            began = time.monotonic()
            await client.txn([], [Put(key, str(value).encode())])
            history.append(Timed(RegisterWrite(value), began, time.monotonic()))
        else:
            began = time.monotonic()
            found = await client.get(key)
            assert found is not None
            history.append(Timed(RegisterRead(int(found.value)), began, time.monotonic()))
            began = time.monotonic()
            done = await client.txn([Is(key, found.version)], [Put(key, str(value).encode())])
            history.append(Timed(RegisterCompareAndSet(int(found.value), value, done.ok), began, time.monotonic()))
