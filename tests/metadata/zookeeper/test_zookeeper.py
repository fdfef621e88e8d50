"""One server of ZooKeeper: what is particular to this back end, and what happens when the server or an owner fails."""

import asyncio
import contextlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import pytest
from kazoo.client import KazooClient

from headwater.metadata.connect import open_metadata
from headwater.metadata.limits import MAX_KEY_BYTES
from headwater.metadata.store import (
    KV,
    MAX_OPS,
    MAX_TXN_BYTES,
    RESYNC,
    Condition,
    Del,
    Has,
    Is,
    MetaStore,
    Operation,
    Put,
    Txn,
    Unavailable,
    Unknown,
)
from headwater.metadata.zookeeper import client as zookeeper_client
from headwater.metadata.zookeeper.store import ZookeeperMetaStore
from headwater.metadata.zookeeper.url import MAX_ROOT_CHARS
from headwater.testing.processes.zookeeper_process import ZookeeperProcess, why_missing
from headwater.transport.ports import free_port
from tests.support.effort import amount
from tests.support.eventually import a_while, until

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())

PATIENCE_S = 60.0
TTL_S = 1.5
TRIES = 5

SESSION_OWNER = """
import asyncio, sys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import Put

async def main():
    store = await open_metadata(sys.argv[1])
    session = await store.session(float(sys.argv[2]))
    await store.txn([], [Put("nodes/child", b"", session)])
    print("ready", flush=True)
    await asyncio.wait_for(session.lost.wait(), 60)
    print("lost", (await store.txn([], [Put("nodes/child", b"", session)])).ok, flush=True)
    await store.close()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperProcess]:
    with ZookeeperProcess.start(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZookeeperProcess]:
    """For tests that stop it."""
    with ZookeeperProcess.start(tmp_path) as running:
        yield running


@pytest.fixture
def url(zookeeper: ZookeeperProcess, request: pytest.FixtureRequest) -> str:
    return zookeeper.url(request.node.name)


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[MetaStore]:
    store = await open_metadata(url)
    try:
        yield store
    finally:
        await store.close()


@contextlib.contextmanager
def owner_process(url: str, ttl_s: float) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    command = [sys.executable, "-c", SESSION_OWNER, url, str(ttl_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()


@contextlib.contextmanager
def plain_client(zookeeper: ZookeeperProcess, login: str = "") -> Iterator[KazooClient]:
    client = KazooClient(",".join(zookeeper.servers), auth_data=[("digest", login)] if login else None)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


async def until_absent(store: MetaStore, key: str) -> None:
    async def is_absent() -> bool:
        return await store.get(key) is None

    await until(is_absent, f"{key} is gone")


# Size


def test_thousands_of_keys_are_listed_and_watched(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            keys = [f"s/{number % 40}/{number:05}" for number in range(amount(10_000, 2_000))]
            batches = [keys[start : start + MAX_OPS] for start in range(0, len(keys), MAX_OPS)]
            for batch in batches:
                assert (await store.txn([], [Put(key, key.encode()) for key in batch])).ok
            listed = await store.list("s/")
            assert [kv.key for kv in listed] == sorted(keys)
            assert all(kv.value == kv.key.encode() for kv in listed)
            hints = store.watch("s/")
            assert await anext(hints) is RESYNC
            await store.txn([], [Put(keys[7], b"new"), Del(keys[8])])
            heard: set[str] = set()
            async with asyncio.timeout(PATIENCE_S):
                while not {keys[7], keys[8]} <= heard:
                    hint = await anext(hints)
                    assert isinstance(hint, set)
                    heard |= hint
            assert heard == {keys[7], keys[8]}
            await hints.aclose()  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_the_largest_transaction_with_the_longest_keys_fits_into_a_packet(zookeeper: ZookeeperProcess) -> None:
    def longest(kind: str, number: int) -> str:
        """In one deep folder: each of its levels makes a path longer than its key."""
        name = f"{kind}{number:03}"
        return "x/" * ((MAX_KEY_BYTES - len(name)) // 2) + name

    async def scenario() -> None:
        async with opened(zookeeper.url("r" * MAX_ROOT_CHARS)) as store:
            session = await store.session(TTL_S)
            await store.txn([], [Put(longest("w", number), b"") for number in range(MAX_OPS)])
            conditions: list[Condition] = [Is(longest("c", number), 0) for number in range(MAX_OPS)]
            operations: list[Operation] = [Put(longest("w", number), b"", session) for number in range(MAX_OPS)]
            size = sum(len(item.key) for item in [*conditions, *operations])
            operations[0] = Put(longest("w", 0), bytes(MAX_TXN_BYTES - size), session)
            assert all(len(condition.key) == MAX_KEY_BYTES for condition in conditions)
            assert (await store.txn(conditions, operations)).ok
            await session.close()

    asyncio.run(scenario())


# The tree


def test_folders_that_a_deletion_leaves_empty_are_deleted(zookeeper: ZookeeperProcess, url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store, opened(url) as other:
            await store.txn([], [Put("s/a/b/1", b""), Put("s/c", b"")])
            await other.txn([], [Del("s/a/b/1")])
            with plain_client(zookeeper) as client:
                folder = f"/{url.rpartition('/')[2]}/keys/s+"
                assert await asyncio.to_thread(client.get_children, folder) == ["c="]
            # The first client remembers folders that are gone.
            assert (await store.txn([Is("s/a/b/2", 0)], [Put("s/a/b/2", b"")])).ok
            assert [kv.key for kv in await other.list("s/")] == ["s/a/b/2", "s/c"]

    asyncio.run(scenario())


def test_what_others_put_into_the_tree_is_left_alone(zookeeper: ZookeeperProcess, url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            await store.txn([], [Put("a/1", b"")])
            hints = store.watch("a/")
            assert await anext(hints) is RESYNC
            with plain_client(zookeeper) as client:
                await asyncio.to_thread(client.create, f"/{url.rpartition('/')[2]}/keys/a+/foreign", b"x")
            assert [kv.key for kv in await store.list("a/")] == ["a/1"]
            await store.txn([], [Put("a/2", b"")])
            assert await asyncio.wait_for(anext(hints), PATIENCE_S) == {"a/2"}
            await hints.aclose()  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_a_watch_begins_before_its_folder_does_and_goes_on_after_it(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store, opened(url) as other:
            hints = store.watch("a/b/")
            assert await anext(hints) is RESYNC
            for number in range(3):
                key = f"a/b/c/{number}"
                for operation in (Put(key, b""), Del(key)):
                    await other.txn([], [operation])
                    heard: set[str] = set()
                    async with asyncio.timeout(PATIENCE_S):
                        while key not in heard:
                            hint = await anext(hints)
                            assert isinstance(hint, set)
                            heard |= hint
            await hints.aclose()  # type: ignore[attr-defined]

    asyncio.run(scenario())


# Logins


def test_what_one_login_wrote_is_closed_to_others(zookeeper: ZookeeperProcess, url: str) -> None:
    root = url.rpartition("/")[2]

    async def scenario() -> None:
        async with opened(zookeeper.url(root, login="me:secret")) as store:
            await store.txn([], [Put("a", b"1")])
            session = await store.session(TTL_S)
            assert (await store.txn([], [Put("b", b"", session)])).ok
            await session.close()
        async with opened(zookeeper.url(root, login="me:secret")) as store:
            found = await store.get("a")
            assert found is not None
            assert found.value == b"1"
        async with opened(zookeeper.url(root)) as stranger:
            with pytest.raises(Unavailable, match="NoAuth"):
                await stranger.get("a")
            with pytest.raises(Unavailable, match="NoAuth"):
                await stranger.txn([], [Put("b", b"1")])

    asyncio.run(scenario())


# kazoo leaves the socket of a failed handshake to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates, and is not installed")
def test_tls_is_spoken_both_ways_and_a_stranger_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate, both = (tmp_path / name for name in ("key.pem", "cert.pem", "both.pem"))
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=zookeeper"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True, timeout=PATIENCE_S)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    port = free_port()
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(both),
        "ssl.trustStore.location": str(certificate),
        "ssl.clientAuth": "need",
    }

    async def scenario() -> None:
        url = f"zookeepers://127.0.0.1:{port}/tls"
        async with opened(f"{url}?ca={certificate}&cert={certificate}&key={key}") as store:
            await store.txn([], [Put("a", bytes(300_000))])
            found = await store.get("a")
            assert found is not None
            assert found.value == bytes(300_000)
        monkeypatch.setattr(zookeeper_client, "CONNECT_S", 2.0)
        with pytest.raises(Unavailable, match=r"cannot be reached .*certificate"):
            await open_metadata(url)

    with ZookeeperProcess.start(tmp_path, settings=settings):
        asyncio.run(scenario())


# Sessions


def test_a_session_is_promised_no_more_than_the_server_grants(tmp_path: Path) -> None:
    async def scenario(url: str) -> None:
        async with opened(url) as store:
            asked_at = time.monotonic()
            session = await store.session(30)
            assert asked_at < session.valid_until() <= time.monotonic() + 3
            await session.close()

    with ZookeeperProcess.start(tmp_path, settings={"maxSessionTimeout": "3000"}) as server:
        asyncio.run(scenario(server.url()))


def test_a_killed_owners_key_vanishes(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            with owner_process(url, TTL_S) as (process, output):
                assert (await asyncio.to_thread(output.readline)).strip() == "ready"
                await asyncio.sleep(2 * TTL_S)
                assert await store.get("nodes/child") is not None
                process.kill()
                await until_absent(store, "nodes/child")

    asyncio.run(scenario())


def test_an_owner_that_was_paused_for_too_long_learns_that_its_session_is_lost(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            with owner_process(url, TTL_S) as (process, output):
                assert (await asyncio.to_thread(output.readline)).strip() == "ready"
                process.send_signal(signal.SIGSTOP)
                await until_absent(store, "nodes/child")
                process.send_signal(signal.SIGCONT)
                assert (await asyncio.to_thread(output.readline)).strip() == "lost False"
                assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
            assert await store.get("nodes/child") is None

    asyncio.run(scenario())


def test_a_session_is_not_lost_while_the_server_only_does_not_answer(own_zookeeper: ZookeeperProcess) -> None:
    async def is_renewed(store: MetaStore) -> bool:
        # A connection attempt that fails costs two thirds of it, and the server takes a while to start.
        session = await store.session(12)
        await store.txn([], [Put("nodes/me", b"", session)])
        own_zookeeper.kill(0)
        await a_while(longer_than_s=max(0.0, session.valid_until() - time.monotonic()))
        assert not session.lost.is_set(), "nobody has said so"
        await asyncio.to_thread(own_zookeeper.restart, 0)
        # A server that starts gives every session that it knows its full time again. On a machine that is busy for all
        # of it the session ends: by the word of the server then.
        await until(lambda: session.valid_until() > time.monotonic() or session.lost.is_set(), "one or the other")
        if session.lost.is_set():
            return False
        assert await store.get("nodes/me") is not None
        await session.close()
        assert await store.get("nodes/me") is None
        return True

    async def scenario() -> None:
        async with opened(own_zookeeper.url()) as store:
            for _ in range(TRIES):
                if await is_renewed(store):
                    return
        raise AssertionError("the session is never renewed")

    asyncio.run(scenario())


def test_a_session_that_cannot_be_closed_says_so(
    own_zookeeper: ZookeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_client, "CONNECT_S", 0.5)

    async def scenario() -> None:
        async with opened(own_zookeeper.url()) as store:
            session = await store.session(6)
            own_zookeeper.kill(0)
            with pytest.raises((Unknown, Unavailable)):
                await session.close()
            assert await store.txn([], [Put("me", b"", session)]) == Txn(False, {})

    asyncio.run(scenario())


# Servers that do not answer


def test_a_server_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_client, "CONNECT_S", 0.5)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        with pytest.raises(Unavailable, match=f"ZooKeeper at 127.0.0.1:{port} cannot be reached .*refused"):
            asyncio.run(open_metadata(f"zookeeper://127.0.0.1:{port}"))


def test_a_server_that_speaks_another_protocol_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_client, "CONNECT_S", 1.0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read(1024)
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(Unavailable, match="cannot be reached"):
                await open_metadata(f"zookeeper://127.0.0.1:{port}")

    asyncio.run(scenario())


def test_calls_while_the_server_is_away_certainly_have_no_effect(
    own_zookeeper: ZookeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(own_zookeeper.url()) as store:
            hints = store.watch("a/")
            assert await anext(hints) is RESYNC
            await store.txn([], [Put("a/1", b"1")])
            assert await asyncio.wait_for(anext(hints), PATIENCE_S) == {"a/1"}
            own_zookeeper.kill(0)
            monkeypatch.setattr(zookeeper_client, "CONNECT_S", 0.5)
            with pytest.raises(Unavailable):
                await store.get("a/1")
            for call in (store.txn([], [Put("a/1", b"2")]), store.txn([Is("a/2", 0)], [Put("a/2", b"")])):
                with pytest.raises(Unavailable):
                    await call
            monkeypatch.undo()
            await asyncio.to_thread(own_zookeeper.restart, 0)
            assert await asyncio.wait_for(anext(hints), PATIENCE_S) is RESYNC
            assert [(kv.key, kv.value) for kv in await store.list("a/")] == [("a/1", b"1")]
            await hints.aclose()  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_a_commit_whose_answer_is_lost_is_unknown_and_is_not_sent_twice(own_zookeeper: ZookeeperProcess) -> None:
    async def scenario() -> None:
        async with opened(own_zookeeper.url()) as store:
            done = await store.txn([], [Put("n", b"0")])
            outcomes: list[Txn | BaseException] = []

            async def append(number: int) -> None:
                # Nothing is read first, so that the commit is what the server has when it falls asleep.
                outcomes.append(await store.txn([Is(f"log/{number}", 0)], [Put(f"log/{number}", b"")]))

            await append(0)
            own_zookeeper.pause(0)
            sent = [asyncio.create_task(append(number)) for number in range(1, 6)]
            assert isinstance(store, ZookeeperMetaStore)
            await until(lambda: len(store._client._kazoo._pending) >= 5, "all of them are sent")
            own_zookeeper.kill(0)
            results = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(result) for result in results] == [Unknown] * 5
            await asyncio.to_thread(own_zookeeper.restart, 0)
            # A server that was killed asleep had done nothing, and nobody sends it again.
            assert [kv.key for kv in await store.list("log/")] == ["log/0"]
            assert (await store.txn([Is("n", done.versions["n"])], [Put("n", b"1")])).ok

    asyncio.run(scenario())


def test_a_thousand_callers_learn_together_that_the_server_is_away(
    own_zookeeper: ZookeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(own_zookeeper.url()) as store:
            own_zookeeper.kill(0)
            monkeypatch.setattr(zookeeper_client, "CONNECT_S", 1.0)
            # One after the other, or fifty at a time, they would take longer than the test has.
            async with asyncio.timeout(PATIENCE_S):
                answers = await asyncio.gather(*(store.get("a") for _ in range(5_000)), return_exceptions=True)
            assert {type(answer) for answer in answers} == {Unavailable}

    asyncio.run(scenario())


def test_a_watch_ends_with_its_store(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            hints = store.watch("a/")
            assert await anext(hints) is RESYNC
            waiting = asyncio.ensure_future(anext(hints, None))
            await asyncio.sleep(0)
        assert await asyncio.wait_for(waiting, PATIENCE_S) is None
        with pytest.raises(Unavailable, match="closed"):
            await anext(store.watch("a/"))
        with pytest.raises(Unavailable, match="closed"):
            await store.get("a/1")

    asyncio.run(scenario())


# Like the others


def test_random_transactions_end_as_they_do_in_sqlite(url: str, tmp_path: Path) -> None:
    keys = ["a", "a/b", "a/b/c", "d/e", "d/f"]
    chance = random.Random(11)

    def condition(versions: list[dict[str, int]]) -> tuple[Condition, Condition]:
        """The same for both stores, whose versions are not the same numbers."""
        key, kind = chance.choice(keys), chance.random()
        if kind < 0.3:
            return Has(key), Has(key)
        if kind < 0.5:
            return Is(key, 0), Is(key, 0)
        offset = chance.choice([0, 0, 0, 1])
        return Is(key, versions[0].get(key, 0) + offset), Is(key, versions[1].get(key, 0) + offset)

    async def scenario() -> None:
        async with opened(url) as ours, opened(f"sqlite:{tmp_path / 'metadata.db'}") as theirs:
            stores = [ours, theirs]
            sessions = [await store.session(30) for store in stores]
            outcomes: Counter[bool] = Counter()
            rounds = amount(400, 100)
            for number in range(rounds):
                versions = [{kv.key: kv.version for kv in await everything(store)} for store in stores]
                conditions = [condition(versions) for _ in range(chance.randrange(3))]
                written = chance.sample(keys, chance.randrange(4))
                kinds = [chance.choice(["put", "put", "session", "delete"]) for _ in written]
                answers: list[Txn] = []
                for index, (store, session) in enumerate(zip(stores, sessions, strict=True)):
                    operations: list[Operation] = [
                        Del(key)
                        if kind == "delete"
                        else Put(key, str(number).encode(), session if kind == "session" else None)
                        for key, kind in zip(written, kinds, strict=True)
                    ]
                    answers.append(await store.txn([pair[index] for pair in conditions], operations))
                assert answers[0].ok == answers[1].ok, (number, conditions, written, kinds)
                outcomes[answers[0].ok] += 1
                left, right = [
                    [(kv.key, kv.value, answer.versions.get(kv.key, kv.version) == kv.version) for kv in found]
                    for found, answer in [(await everything(s), a) for s, a in zip(stores, answers, strict=True)]
                ]
                assert left == right, (number, conditions, written, kinds)
                if number % 100 == 99:
                    for session in sessions:
                        await session.close()
                    assert [kv.key for kv in await everything(ours)] == [kv.key for kv in await everything(theirs)]
                    sessions = [await store.session(30) for store in stores]
            assert min(outcomes[True], outcomes[False]) > rounds // 8, outcomes

    async def everything(store: MetaStore) -> list[KV]:
        top = await store.get("a")
        return [*([top] if top is not None else []), *await store.list("a/"), *await store.list("d/")]

    asyncio.run(scenario())
