"""`headwater cluster rotate-secret`: another secret for nodes that go on working.

    kept where nodes read it      nodes prove       nodes take
    old                           old               old
    old, new                      old               old and new
    new, old                      new               old and new
    new                           new               new

The next step is taken when every node that is alive says, in its record, that it has taken the one before. So between
any two nodes at most one step lies, and they understand each other. A rotation that was interrupted leaves two secrets:
it is ended first, with the one that nodes prove.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from headwater.broker.cluster.followed_secrets import (
    SECRET_BYTES,
    MetadataSecret,
    UnusableSecret,
    encoded,
    read_secret_file,
    secret_line,
)
from headwater.cli.output import CommandFailed
from headwater.metadata import keys
from headwater.metadata.store import Is, MetaStore, Put
from headwater.model.cluster import Node
from headwater.peers.cluster_secrets import secret_id

LOOK_EVERY_S: Final = 0.2


class SecretPlace(Protocol):
    """Where the nodes read the secret."""

    @property
    def name(self) -> str: ...

    async def read(self) -> Sequence[bytes]:
        """Raises UnusableSecret."""

    async def write(self, cluster: Sequence[bytes], before: Sequence[bytes]) -> None:
        """Replace what was there before. Raises CommandFailed if that is something else by now."""


class MetadataPlace:
    name = "the metadata store"

    def __init__(self, metadata: MetaStore) -> None:
        self._metadata = metadata

    async def read(self) -> Sequence[bytes]:
        return await MetadataSecret(self._metadata).read()

    async def write(self, cluster: Sequence[bytes], before: Sequence[bytes]) -> None:
        found = await self._metadata.get(keys.SECRET)
        if found is not None and await self.read() == before:
            written = await self._metadata.txn([Is(keys.SECRET, found.version)], [Put(keys.SECRET, encoded(cluster))])
            if written.ok:
                return
        raise CommandFailed("The secret in the metadata store was replaced by another command meanwhile.")


class FilePlace:
    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        return str(self._path)

    async def read(self) -> Sequence[bytes]:
        return await asyncio.to_thread(read_secret_file, self._path)

    async def write(self, cluster: Sequence[bytes], before: Sequence[bytes]) -> None:
        if await self.read() != before:
            raise CommandFailed(f"{self._path} was replaced by another command meanwhile.")
        try:
            await asyncio.to_thread(_replace, self._path.resolve(), "".join(f"{secret_line(it)}\n" for it in cluster))
        except OSError as error:
            raise CommandFailed(f"{self._path} cannot be replaced: {error.strerror}.") from error


async def rotate(place: SecretPlace, metadata: MetaStore, wait_s: float, tell: Callable[[str], None]) -> None:
    """Raises CommandFailed."""
    try:
        found = await place.read()
        first = found[0]
        await _until_taken(metadata, found, wait_s, place)
        if len(found) > 1:
            tell(f"{place.name} has two secrets: an earlier rotation is ended first.")
            await _step(place, metadata, [first], found, wait_s)
        new = secrets.token_bytes(SECRET_BYTES)
        steps = (
            ([first, new], "Nodes take the new secret, too."),
            ([new, first], "Nodes prove the new secret."),
            ([new], "Nodes take the new secret alone."),
        )
        before: Sequence[bytes] = [first]
        for after, words in steps:
            await _step(place, metadata, after, before, wait_s)
            tell(words)
            before = after
    except UnusableSecret as error:
        raise CommandFailed(f"The secret cannot be replaced: {error}.") from None


async def _step(
    place: SecretPlace, metadata: MetaStore, after: Sequence[bytes], before: Sequence[bytes], wait_s: float
) -> None:
    await place.write(after, before)
    await _until_taken(metadata, after, wait_s, place)


async def _until_taken(metadata: MetaStore, cluster: Sequence[bytes], wait_s: float, place: SecretPlace) -> None:
    """Return when every node that is alive has these secrets."""
    ids = tuple(map(secret_id, cluster))
    deadline_s = time.monotonic() + wait_s
    while late := [node for node in await _nodes(metadata) if node.secret_ids != ids]:
        names = ", ".join(str(node.node_id) for node in late)
        if any(not node.secret_ids for node in late):
            raise CommandFailed(
                f"Nodes {names} run a version that cannot replace its secret, or tell of none.", "Upgrade them first."
            )
        if time.monotonic() >= deadline_s:
            raise CommandFailed(
                f"Nodes {names} do not have what {place.name} has after {wait_s:g} s.",
                "The cluster goes on as it is. Do they read the secret there (cluster_secret_file), and does their log "
                "say cluster_secret_not_read? Then run the command again.",
            )
        await asyncio.sleep(LOOK_EVERY_S)


async def _nodes(metadata: MetaStore) -> Sequence[Node]:
    nodes = [keys.decode_node(kv.value) for kv in await metadata.list(keys.NODES)]
    if not nodes:
        raise CommandFailed("No node of the cluster is alive.", "The secret is replaced while all of them run.")
    return sorted(nodes, key=lambda node: node.node_id)


def _replace(path: Path, text: str) -> None:
    """In one moment, with owner and mode as before. Raises OSError."""
    earlier = path.stat()
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchown(file.fileno(), earlier.st_uid, earlier.st_gid)
            os.fchmod(file.fileno(), earlier.st_mode & 0o777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
