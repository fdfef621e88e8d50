"""What etcd adds to the contract: pages, strangers, logins, leases, and the imports that nobody else pays for."""

import asyncio
import base64
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headwater.metadata.connect import open_metadata
from headwater.metadata.etcd import client as etcd_client
from headwater.metadata.etcd.member import MAX_ANSWER_BYTES
from headwater.metadata.etcd.session import MIN_TTL_S
from headwater.metadata.etcd.store import PAGE_KEYS, EtcdMetaStore
from headwater.metadata.etcd.url import EtcdAddress
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import MAX_OPS, RESYNC, Has, Is, Put, Txn, Unavailable
from headwater.testing.processes.etcd_process import EtcdProcess, find_etcd
from tests.support.eventually import tasks_run

pytestmark = pytest.mark.skipif(find_etcd() is None, reason="etcd is not installed (Debian: etcd-server)")

PATIENCE_S = 60.0

SESSION_OWNER = """
import asyncio, sys, time
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import Has, Put

async def main():
    store = await open_metadata(sys.argv[1])
    session = await store.session(6)
    await store.txn([], [Put("nodes/child", b"", session)])
    print("ready", flush=True)
    await session.lost.wait()
    refused = await store.txn([Has("nodes/child")], [Put("a", b"from the dead")])
    print("lost", refused.ok, session.valid_until() < time.monotonic(), flush=True)
    await store.close()

asyncio.run(main())
"""

WITHOUT_GRPC = """
import asyncio, sys
sys.modules["grpc"] = None
from headwater.metadata.connect import open_metadata
try:
    asyncio.run(open_metadata("etcd://127.0.0.1:1"))
except ValueError as error:
    print(error)
"""

SQLITE_ONLY = """
import asyncio, sys
import headwater.cli.serve
from headwater.metadata.connect import open_metadata

async def main():
    await (await open_metadata("sqlite:" + sys.argv[1])).close()

asyncio.run(main())
print([name for name in sys.modules if name.split(".")[0] in ("grpc", "google")])
"""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    with EtcdProcess.start(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[EtcdMetaStore]:
    store = await EtcdMetaStore.open(EtcdAddress.parse(url))
    try:
        yield store
    finally:
        await store.close()


def test_a_list_of_many_keys_comes_in_pages_and_whole(etcd: EtcdProcess) -> None:
    keys = [f"many/{number:05}" for number in range(PAGE_KEYS * 2 + 300)]

    async def scenario() -> None:
        async with opened(etcd.url("pages")) as store:
            for first in range(0, len(keys), MAX_OPS):
                await store.txn([], [Put(key, key.encode()) for key in keys[first : first + MAX_OPS]])
            found = await store.list("many/")
            assert [kv.key for kv in found] == keys
            assert all(kv.value == kv.key.encode() for kv in found)

    asyncio.run(scenario())


def test_a_list_of_large_values_comes_in_smaller_pages(etcd: EtcdProcess) -> None:
    size_bytes = 500_000
    count = 2 * MAX_ANSWER_BYTES // size_bytes

    async def scenario() -> None:
        async with opened(etcd.url("large")) as store:
            for number in range(count):
                await store.txn([], [Put(f"large/{number:03}", bytes(size_bytes))])
            assert [len(kv.value) for kv in await store.list("large/")] == [size_bytes] * count

    asyncio.run(scenario())


def test_a_watcher_hears_of_changes_larger_than_one_answer(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        async with opened(etcd.url("fragments")) as store:
            hints = store.watch("a/")
            assert await anext(hints) is RESYNC
            # While nobody takes them, etcd collects: together they are more than it sends at once.
            for number in range(40):
                await store.txn([], [Put(f"a/{number}", bytes(500_000))])
            heard: set[str] = set()
            while len(heard) < 40:
                hint = await asyncio.wait_for(anext(hints), PATIENCE_S)
                assert isinstance(hint, set)
                heard |= hint
            assert heard == {f"a/{number}" for number in range(40)}
            await hints.aclose()  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_keys_of_strangers_below_the_prefix_are_not_seen(etcd: EtcdProcess) -> None:
    def put(key: bytes) -> None:
        etcd.call("/v3/kv/put", {"key": base64.b64encode(key).decode(), "value": ""})

    async def scenario() -> None:
        async with opened(etcd.url("guests")) as store:
            hints = store.watch("a/")
            assert await anext(hints) is RESYNC
            for key in (b"guests/a/\xff\xfe", b"guests/a/with space", b"guests/a//b", b"guests/a/ours", b"guest/a/x"):
                put(key)
            assert [kv.key for kv in await store.list("a/")] == ["a/ours"]
            assert await asyncio.wait_for(anext(hints), PATIENCE_S) == {"a/ours"}
            await hints.aclose()  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_clusters_with_different_prefixes_do_not_see_each_other(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        async with opened(etcd.url("one")) as one, opened(etcd.url("one/two")) as two, opened(etcd.url("on")) as three:
            await one.txn([], [Put("k/a", b"1")])
            assert (await two.txn([Is("k/a", 0)], [Put("k/a", b"2")])).ok
            assert await three.get("k/a") is None
            assert [(kv.key, kv.value) for kv in await one.list("k/")] == [("k/a", b"1")]

    asyncio.run(scenario())


def test_a_burst_of_calls_waits_its_turn_up_to_a_limit(etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "MAX_UNDER_WAY", 2)
    monkeypatch.setattr(etcd_client, "MAX_WAITING", 3)

    async def scenario() -> None:
        async with opened(etcd.url("burst")) as store:
            for _ in range(2):
                puts = [store.txn([], [Put(f"a/{number}", b"")]) for number in range(10)]
                answers = await asyncio.gather(*puts, return_exceptions=True)
                assert [isinstance(answer, Txn) for answer in answers] == [True] * 5 + [False] * 5
                assert all("waiting already" in str(answer) for answer in answers[5:])
            assert len(await store.list("a/")) == 5

    asyncio.run(scenario())


def test_a_session_of_another_back_end_is_refused(etcd: EtcdProcess, tmp_path: Path) -> None:
    async def scenario() -> None:
        other = await SqliteMetaStore.open(tmp_path / "metadata.db")
        async with opened(etcd.url("sessions")) as store:
            with pytest.raises(ValueError, match="not one of etcd's"):
                await store.txn([], [Put("a", b"", await other.session(5))])
        await other.close()

    asyncio.run(scenario())


def test_a_lease_is_never_shorter_than_an_election_needs(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        async with opened(etcd.url("short")) as store:
            session = await store.session(0.5)
            lease = etcd.call("/v3/lease/timetolive", {"ID": str(int(session.id, 16))})
            assert int(lease["grantedTTL"]) == MIN_TTL_S
            await session.close()

    asyncio.run(scenario())


def test_a_lease_that_etcd_ended_is_a_session_lost(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        async with opened(etcd.url("revoked")) as store:
            session = await store.session(MIN_TTL_S)
            assert (await store.txn([], [Put("me", b"", session)])).ok
            await asyncio.to_thread(etcd.call, "/v3/lease/revoke", {"ID": str(int(session.id, 16))})
            await asyncio.wait_for(session.lost.wait(), PATIENCE_S)
            assert await store.txn([], [Put("me", b"", session)]) == Txn(False, {})
            await session.close()

    asyncio.run(scenario())


def test_an_owner_that_was_paused_past_its_time_learns_that_its_session_is_lost(etcd: EtcdProcess) -> None:
    async def watch_it_vanish(owner: "subprocess.Popen[str]") -> None:
        async with opened(etcd.url("paused")) as store, asyncio.timeout(PATIENCE_S):
            assert (await store.txn([Has("nodes/child")], [Put("a", b"alive")])).ok
            hints = store.watch("nodes/")
            assert await anext(hints) is RESYNC
            owner.send_signal(signal.SIGSTOP)
            while await store.get("nodes/child") is not None:
                await anext(hints)
            owner.send_signal(signal.SIGCONT)
            await hints.aclose()  # type: ignore[attr-defined]

    async def value() -> bytes:
        async with opened(etcd.url("paused")) as store:
            found = await store.get("a")
            assert found is not None
            return found.value

    command = [sys.executable, "-c", SESSION_OWNER, etcd.url("paused")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        try:
            assert owner.stdout.readline().strip() == "ready"
            asyncio.run(watch_it_vanish(owner))
            assert owner.stdout.readline().split() == ["lost", "False", "True"]
            assert owner.wait(PATIENCE_S) == 0
        finally:
            owner.kill()
    assert asyncio.run(value()) == b"alive"


def test_a_closed_store_is_unavailable_its_watches_end_and_closing_twice_is_harmless(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        store = await EtcdMetaStore.open(EtcdAddress.parse(etcd.url("closed")))
        hints = store.watch("a/")
        assert await anext(hints) is RESYNC
        ended = asyncio.create_task(anext(hints, None))
        session = await store.session(MIN_TTL_S)
        await tasks_run()
        await store.close()
        await store.close()
        assert await asyncio.wait_for(ended, PATIENCE_S) is None
        assert not session.lost.is_set()
        for call in (store.get("a"), store.list("a/"), store.txn([], [Put("a", b"")]), store.session(MIN_TTL_S)):
            with pytest.raises(Unavailable, match="closed"):
                await call
        with pytest.raises(Unavailable, match="closed"):
            await anext(store.watch("a/"))

    asyncio.run(scenario())


def test_a_login_is_needed_where_etcd_wants_one_and_renewed_when_etcd_forgot_it(tmp_path: Path) -> None:
    def base64_of(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    with EtcdProcess.start(tmp_path, flags=["--bcrypt-cost=4"]) as etcd:
        etcd.call("/v3/auth/user/add", {"name": "root", "password": "secret"})
        etcd.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        etcd.call("/v3/auth/role/add", {"name": "mine"})
        permission = {"permType": "READWRITE", "key": base64_of("mine/"), "range_end": base64_of("mine0")}
        etcd.call("/v3/auth/role/grant", {"name": "mine", "perm": permission})
        etcd.call("/v3/auth/user/add", {"name": "me", "password": "pass/word"})
        etcd.call("/v3/auth/user/grant", {"user": "me", "role": "mine"})
        endpoint = etcd.endpoints[0]

        async def scenario() -> None:
            async with opened(f"etcd://me:early@{endpoint}/mine") as early:
                assert await early.get("a") is None, "a login is harmless where none is wanted"
            await asyncio.to_thread(etcd.call, "/v3/auth/enable", {})
            for url in (f"etcd://{endpoint}/mine", f"etcd://me:wrong@{endpoint}/mine"):
                with pytest.raises(Unavailable, match=r"user name is empty|authentication failed"):
                    await open_metadata(url)
            with pytest.raises(Unavailable, match="permission denied"):
                await open_metadata(f"etcd://me:pass%2Fword@{endpoint}/others")
            async with opened(f"etcd://me:pass%2Fword@{endpoint}/mine") as store:
                hints = store.watch("k/")
                assert await anext(hints) is RESYNC
                first = await store.txn([], [Put("k/a", b"1")])
                assert await asyncio.wait_for(anext(hints), PATIENCE_S) == {"k/a"}
                # Tokens live in the member's memory only.
                etcd.kill(0)
                etcd.restart(0)
                async with asyncio.timeout(PATIENCE_S):
                    while await store.get("k/a") is None:
                        pass
                second = await store.txn([Is("k/a", first.versions["k/a"])], [Put("k/a", b"2")])
                assert second.ok
                session = await store.session(MIN_TTL_S)
                assert (await store.txn([], [Put("k/me", b"", session)])).ok
                heard: set[str] = set()
                while not {"k/a", "k/me"} <= heard:
                    hint = await asyncio.wait_for(anext(hints), PATIENCE_S)
                    assert isinstance(hint, set)
                    heard |= hint
                await session.close()
                await hints.aclose()  # type: ignore[attr-defined]

        asyncio.run(scenario())


def test_without_grpc_the_message_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_GRPC], capture_output=True, text=True, timeout=60)
    assert "pip install 'headwater[etcd]'" in done.stdout, done.stderr


def test_a_broker_on_sqlite_loads_no_grpc(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SQLITE_ONLY, str(tmp_path / "metadata.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
