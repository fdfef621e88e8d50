"""What is read from ZooKeeper, and when it counts.

A read that must be current is preceded by a barrier: a transaction that changes nothing and must pass a majority of the
servers. So neither a server that is behind nor a leader that was replaced and does not know it can answer. ZooKeeper's
own `sync` does not ask a majority.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from kazoo.exceptions import KazooException, NoNodeError

from headwater.metadata.store import KV, Unavailable
from headwater.metadata.zookeeper import requests
from headwater.metadata.zookeeper.client import Interrupted, ZookeeperClient
from headwater.metadata.zookeeper.paths import ZookeeperPaths, is_folder, is_key
from headwater.metadata.zookeeper.plan import Seen
from headwater.metadata.zookeeper.url import ZookeeperAddress

READ_S: Final = 20.0
"""How long a read is repeated over broken connections."""
PAUSE_S: Final = 0.1
BATCH: Final = 256
"""Nodes that one list asks for at a time."""

_T = TypeVar("_T")


class ZookeeperReader:
    def __init__(self, address: ZookeeperAddress, client: ZookeeperClient, paths: ZookeeperPaths) -> None:
        self._address = address
        self._client = client
        self._paths = paths
        self._barrier = requests.through_majority(paths.keys)

    async def get(self, key: str) -> KV | None:
        return await self.until_done(lambda: self._get(key))

    async def get_many(self, keys: Sequence[str]) -> list[KV | None]:
        return await self.until_done(lambda: self._get_many(keys))

    async def list_below(self, prefix: str) -> list[KV]:
        return await self.until_done(lambda: self._list(self._paths.folder(prefix)))

    async def see(self, keys: Sequence[str], is_current: bool) -> dict[str, Seen]:
        """The nodes of those keys that exist. With `is_current`, as of now; else as the nearest server knows them."""
        return await self.until_done(lambda: self._see(keys, is_current))

    async def is_absent(self, path: str) -> bool:
        return await self.until_done(lambda: self._is_absent(path))

    async def until_done(self, read: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat what may be done twice, until no connection breaks under it."""
        give_up_at = time.monotonic() + READ_S
        while True:
            session_number = self._client.session_number
            try:
                answer = await read()
                # Another session may be with a server that is behind the one that was asked first.
                if self._client.session_number == session_number:
                    return answer
                reason = "the connection was replaced"
            except Interrupted as error:
                reason = str(error)
            if time.monotonic() > give_up_at:
                raise Unavailable(f"{self._address} does not answer: {reason}")
            await asyncio.sleep(PAUSE_S)

    def expect(self, answer: Any, *expected: type[KazooException]) -> None:
        """Raises Unavailable for an answer that is an error, unless it is one of these."""
        if isinstance(answer, KazooException) and not isinstance(answer, expected):
            raise Unavailable(f"{self._address} refuses: {type(answer).__name__}") from answer

    async def _get(self, key: str) -> KV | None:
        node = self._paths.node(key)
        barrier, answer = await self._client.ask(self._barrier, requests.data(node))
        self.expect(barrier)
        return self._kv(node, answer)

    async def _get_many(self, keys: Sequence[str]) -> list[KV | None]:
        (barrier,) = await self._client.ask(self._barrier)
        self.expect(barrier)
        nodes = [self._paths.node(key) for key in keys]
        answers = await asyncio.gather(*(self._client.ask(requests.data(node)) for node in nodes))
        return [self._kv(node, answer) for node, (answer,) in zip(nodes, answers, strict=True)]

    async def _list(self, top: str) -> list[KV]:
        barrier, names = await self._client.ask(self._barrier, requests.children(top))
        self.expect(barrier)
        found: list[KV] = []
        to_do = self._children(top, names)
        while to_do:
            batch, to_do = to_do[:BATCH], to_do[BATCH:]
            asked = [requests.children(path) if is_folder(path) else requests.data(path) for path in batch]
            answers = await asyncio.gather(*map(self._client.ask, asked))
            for path, (answer,) in zip(batch, answers, strict=True):
                if is_folder(path):
                    to_do += self._children(path, answer)
                elif (kv := self._kv(path, answer)) is not None:
                    found.append(kv)
        return sorted(found, key=lambda kv: kv.key)

    async def _see(self, keys: Sequence[str], is_current: bool) -> dict[str, Seen]:
        if is_current:
            (barrier,) = await self._client.ask(self._barrier)
            self.expect(barrier)
        answers = await asyncio.gather(*(self._client.ask(requests.stat(self._paths.node(key))) for key in keys))
        seen: dict[str, Seen] = {}
        for key, (stat,) in zip(keys, answers, strict=True):
            self.expect(stat)
            if stat is not None:
                seen[key] = Seen(stat.mzxid, stat.version, stat.ephemeralOwner)
        return seen

    async def _is_absent(self, path: str) -> bool:
        barrier, stat = await self._client.ask(self._barrier, requests.stat(path))
        self.expect(barrier)
        self.expect(stat)
        return stat is None

    def _children(self, folder: str, names: Any) -> list[str]:
        self.expect(names, NoNodeError)
        if isinstance(names, NoNodeError):
            return []
        return [f"{folder}/{name}" for name in names if is_folder(name) or is_key(name)]

    def _kv(self, node: str, answer: Any) -> KV | None:
        self.expect(answer, NoNodeError)
        if isinstance(answer, NoNodeError):
            return None
        value, stat = answer
        return KV(self._paths.key(node), value, stat.mzxid)
