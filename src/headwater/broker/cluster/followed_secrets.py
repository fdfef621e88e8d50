"""The secret of the cluster where it is kept, and what becomes of it while the node runs.

It is in the metadata store, drawn by the first node that asks, or in a file on each node (`cluster_secret_file`) for
those who do not want the store to have it. Either has one secret, or two while it is being replaced, the one that nodes
prove first:

    {"secret": "<hex>", "also": "<hex>"}      the metadata store; `also` is left out, or not known to an older version
    <hex or text>                             the file: a line for each
    <hex or text>

Both are looked at again every few seconds. What cannot be read leaves what is known as it is.
"""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from headwater.broker.settings.setting import ConfigError
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import Is, MetaStore, Put, Unavailable, Unknown
from headwater.peers.cluster_secrets import MAX_SECRETS, ClusterSecrets, check_secrets

LOOK_EVERY_S: Final = 2.0
SECRET_BYTES: Final = 32
MIN_LINE_CHARS: Final = 32
"""Of a secret in a file: half of it, if it is a sentence, is easily guessed."""
MAX_FILE_BYTES: Final = 4096
MAX_TRIES: Final = 20
_OTHERS: Final = stat.S_IRWXO


class UnusableSecret(Exception):
    """What is kept is no secret of a cluster, or others may read it. The message repeats nothing of it."""


class SecretSource(Protocol):
    async def read(self) -> Sequence[bytes]:
        """Raises UnusableSecret, Unavailable or Unknown."""


class MetadataSecret:
    def __init__(self, metadata: MetaStore) -> None:
        self._metadata = metadata

    async def read(self) -> Sequence[bytes]:
        """A secret that has vanished is not drawn anew: nodes that run have one."""
        found = await self._metadata.get(keys.SECRET)
        return decoded(found.value if found is not None else b"")


class SecretFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> Sequence[bytes]:
        return await asyncio.to_thread(read_secret_file, self._path)


class FollowedSecrets:
    def __init__(self, source: SecretSource, current: ClusterSecrets) -> None:
        self._source = source
        self._complaint = ""
        self.current: Final = current

    @classmethod
    async def open(cls, metadata: MetaStore, file: Path | None) -> "FollowedSecrets":
        """Raises ConfigError, Unavailable or Unknown."""
        source: SecretSource = MetadataSecret(metadata) if file is None else SecretFile(file)
        try:
            found = await cluster_secrets(metadata) if file is None else await source.read()
            return cls(source, ClusterSecrets(*found))
        except UnusableSecret as error:
            raise ConfigError(f"cluster_secret_file: {error}" if file is not None else str(error)) from None

    async def follow(self) -> None:
        """Look for other secrets, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            with contextlib.suppress(Unavailable, Unknown):
                await self.look()

    async def look(self) -> bool:
        """Whether there were other secrets. Raises Unavailable or Unknown."""
        try:
            is_other = self.current.replace(await self._source.read())
        except UnusableSecret as error:
            if str(error) != self._complaint:
                log_event("cluster_secret_not_read", logging.ERROR, reason=str(error))
            self._complaint = str(error)
            return False
        self._complaint = ""
        if is_other:
            log_event("cluster_secret_replaced", proves=self.current.ids[0], accepts=",".join(self.current.ids))
        return is_other


async def cluster_secrets(metadata: MetaStore) -> Sequence[bytes]:
    """As the metadata store has them. The first node that asks draws one. Raises UnusableSecret."""
    for _ in range(MAX_TRIES):
        found = await metadata.get(keys.SECRET)
        if found is not None:
            return decoded(found.value)
        value = encoded([secrets.token_bytes(SECRET_BYTES)])
        with contextlib.suppress(Unknown):
            await metadata.txn([Is(keys.SECRET, 0)], [Put(keys.SECRET, value)])
    raise Unavailable("the secret of the cluster could not be stored")


def encoded(cluster: Sequence[bytes]) -> bytes:
    """For the metadata store."""
    return json.dumps(dict(zip(("secret", "also"), [each.hex() for each in cluster], strict=False))).encode()


def decoded(value: bytes) -> Sequence[bytes]:
    """Raises UnusableSecret."""
    try:
        plain = json.loads(value)
        found = [bytes.fromhex(plain[name]) for name in ("secret", "also") if name in plain]
    except (ValueError, TypeError, KeyError):
        raise UnusableSecret(f"the key {keys.SECRET!r} of the metadata store has no secret of a cluster") from None
    return _checked(found, f"the key {keys.SECRET!r} of the metadata store")


def read_secret_file(path: Path) -> Sequence[bytes]:
    """Not for the event loop. Raises UnusableSecret."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UnusableSecret(f"{path} cannot be read: {error.strerror}") from None
    if mode & _OTHERS:
        raise UnusableSecret(
            f"everybody on this machine may read {path} (mode {stat.S_IMODE(mode):04o}). Run: chmod 600 {path}"
        )
    lines = [line.strip() for line in data.splitlines() if line.strip()]
    if len(data) > MAX_FILE_BYTES or not 1 <= len(lines) <= MAX_SECRETS:
        raise UnusableSecret(f"{path} has one line with a secret, or two while it is being replaced")
    if any(len(line) < MIN_LINE_CHARS for line in lines):
        raise UnusableSecret(
            f"{path}: a secret has at least {MIN_LINE_CHARS} characters. `openssl rand -hex {SECRET_BYTES}` makes one"
        )
    return _checked([_of_line(line) for line in lines], str(path))


def secret_line(secret: bytes) -> str:
    """Of such a file."""
    return secret.hex()


def _of_line(line: bytes) -> bytes:
    """Hexadecimal digits stand for their bytes, as in the metadata store: a secret can move from there to a file."""
    try:
        return bytes.fromhex(line.decode("ascii"))
    except ValueError:
        return line


def _checked(found: Sequence[bytes], where: str) -> Sequence[bytes]:
    try:
        check_secrets(found)
    except ValueError as error:
        raise UnusableSecret(f"{where}: {error}") from None
    return found
