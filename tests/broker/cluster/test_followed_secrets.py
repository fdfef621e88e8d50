"""The secret of a cluster where it is kept, and how it is replaced while nodes run."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.broker.cluster.followed_secrets import (
    FollowedSecrets,
    UnusableSecret,
    cluster_secrets,
    decoded,
    encoded,
    read_secret_file,
)
from headwater.broker.settings.setting import ConfigError
from headwater.cli.cluster.secret_rotation import FilePlace, MetadataPlace, SecretPlace, rotate
from headwater.cli.output import CommandFailed
from headwater.metadata import keys
from headwater.metadata.store import Del, MetaStore, Put
from headwater.model.cluster import Node
from tests.broker.cluster_fakes import metadata_store
from tests.support.eventually import until
from tests.support.log_lines import own_lines
from tests.support.tasks import running

OLD, NEW = bytes(range(32)), bytes(range(32, 64))


def secret_file(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "cluster-secret"
    path.touch(0o600)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_has_a_line_for_each_secret_in_digits_or_as_a_text(tmp_path: Path) -> None:
    words = "a sentence that nobody else would think of"
    assert read_secret_file(secret_file(tmp_path, f"{OLD.hex()}\n\n  {words}\n")) == [OLD, words.encode()]
    assert read_secret_file(secret_file(tmp_path, words, 0o640)) == [words.encode()]


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("", 0o600, "one line with a secret"),
        ("\n".join([OLD.hex(), NEW.hex(), "x" * 32]), 0o600, "or two while it is being replaced"),
        ("too short for a secret", 0o600, "at least 32 characters"),
        (f"{OLD.hex()}\n{OLD.hex()}", 0o600, "are the same"),
        (OLD.hex(), 0o644, "everybody on this machine may read"),
        ("x" * 5000, 0o600, "one line with a secret"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_without_repeating_it(
    tmp_path: Path, text: str, mode: int, reason: str
) -> None:
    path = secret_file(tmp_path, text, mode)
    with pytest.raises(UnusableSecret, match=reason) as refused:
        read_secret_file(path)
    assert not text or text[:20] not in str(refused.value)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"secret": "xyz"}', b'{"secret": 5}', b'{"secret": "00"}'])
def test_what_is_no_secret_in_the_metadata_is_refused(value: bytes) -> None:
    with pytest.raises(UnusableSecret, match="metadata store"):
        decoded(value)


def test_an_earlier_version_reads_the_secret_that_nodes_prove() -> None:
    value = encoded([NEW, OLD])
    assert json.loads(value)["secret"] == NEW.hex()
    assert decoded(value) == [NEW, OLD]
    assert decoded(encoded([OLD])) == [OLD]


def test_a_node_follows_its_file_and_keeps_what_it_knows_while_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        path = secret_file(tmp_path, OLD.hex())
        async with metadata_store(tmp_path) as metadata:
            followed = await FollowedSecrets.open(metadata, path)
            assert await metadata.get(keys.SECRET) is None, "the store has none of it"
            changes = []
            followed.current.watchers.append(lambda: changes.append(followed.current.accepted))
            assert not await followed.look()
            path.write_text(f"{OLD.hex()}\n{NEW.hex()}")
            assert await followed.look()
            path.unlink()
            assert not await followed.look() and not await followed.look()
            assert followed.current.accepted == (OLD, NEW)
            assert changes == [(OLD, NEW)]
            lines = [line for line in own_lines(caplog) if "cluster_secret_not_read" in line]
            assert len(lines) == 1, "once is enough"
            with pytest.raises(ConfigError, match="cluster_secret_file"):
                await FollowedSecrets.open(metadata, path)

    asyncio.run(scenario())


def test_a_secret_that_has_vanished_from_the_metadata_is_not_drawn_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            followed = await FollowedSecrets.open(metadata, None)
            known = followed.current.accepted
            await metadata.txn([], [Del(keys.SECRET)])
            assert not await followed.look()
            assert followed.current.accepted == known
            with pytest.raises(CommandFailed, match="no secret of a cluster"):
                await rotate(MetadataPlace(metadata), metadata, 1.0, print)
            assert await metadata.get(keys.SECRET) is None

    asyncio.run(scenario())


@asynccontextmanager
async def followers(metadata: MetaStore, place: SecretPlace, count: int = 3) -> AsyncIterator[list[Sequence[bytes]]]:
    """Nodes that take the secrets where they are kept, each in its own time, and tell of it. Gives what the first has
    seen."""
    seen: list[Sequence[bytes]] = []

    async def follow(number: int) -> None:
        known = FollowedSecrets(place, (await FollowedSecrets.open(metadata, None)).current)
        node = Node(number, number, "h", 1, "h", 2)
        while True:
            await known.look()
            if number == 1 and (not seen or seen[-1] != known.current.accepted):
                seen.append(known.current.accepted)
            told = replace(node, secret_ids=known.current.ids)
            await metadata.txn([], [Put(keys.node_key(number, number), keys.encode(told))])
            await asyncio.sleep(0.001 * number)

    async def all_tell() -> bool:
        return len(await metadata.list(keys.NODES)) == count

    async with running(*(follow(number) for number in range(1, count + 1))):
        await until(all_tell)
        yield seen


@pytest.mark.parametrize("is_file", [False, True])
def test_a_rotation_goes_by_steps_that_every_node_has_taken(tmp_path: Path, is_file: bool) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            (old,) = await cluster_secrets(metadata)
            path = secret_file(tmp_path, old.hex(), 0o640)
            place: SecretPlace = FilePlace(path) if is_file else MetadataPlace(metadata)
            told: list[str] = []
            async with followers(metadata, place) as seen:
                await rotate(place, metadata, 60.0, told.append)
                (new,) = await place.read()
                await until(lambda: seen[-1] == (new,))
            assert new != old
            assert seen == [(old,), (old, new), (new, old), (new,)]
            assert len(told) == 3
            assert path.stat().st_mode & 0o777 == 0o640
            assert [each.name for each in tmp_path.glob(".cluster-secret*")] == []

    asyncio.run(scenario())


def test_a_rotation_that_was_interrupted_is_ended_with_what_nodes_prove(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            await metadata.txn([], [Put(keys.SECRET, encoded([OLD, NEW]))])
            place, told = MetadataPlace(metadata), list[str]()
            async with followers(metadata, place) as seen:
                await rotate(place, metadata, 60.0, told.append)
            assert "an earlier rotation is ended first" in told[0]
            assert list(seen[:2]) == [(OLD, NEW), (OLD,)]

    asyncio.run(scenario())


def test_a_node_that_does_not_take_the_step_stops_the_rotation_where_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            (old,) = await cluster_secrets(metadata)
            place = MetadataPlace(metadata)
            with pytest.raises(CommandFailed, match="No node of the cluster is alive"):
                await rotate(place, metadata, 1.0, print)
            stuck = Node(7, 7, "h", 1, "h", 2)
            await metadata.txn([], [Put(keys.node_key(7, 7), keys.encode(stuck))])
            with pytest.raises(CommandFailed, match="Nodes 7 run a version"):
                await rotate(place, metadata, 1.0, print)
            ids = (await FollowedSecrets.open(metadata, None)).current.ids
            await metadata.txn([], [Put(keys.node_key(7, 7), keys.encode(replace(stuck, secret_ids=ids)))])
            with pytest.raises(CommandFailed, match="Nodes 7 do not have what the metadata store has"):
                await rotate(place, metadata, 0.3, print)
            found = await cluster_secrets(metadata)
            assert (len(found), found[0]) == (2, old), "nodes still prove the old one"

    asyncio.run(scenario())
