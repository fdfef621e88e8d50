"""Hints for the watchers of a prefix, from ZooKeeper's watches, each of which reports one change of one node and is
gone.

- A tree is watched by asking for the children of its folders and for the data of its keys. A watch is set again before
  the hint is given: a read after the hint sees this change, and the next change gives another hint.
- ZooKeeper forgets the watches of a connection that is gone, as far as kazoo is concerned. Then the whole tree is
  watched again, and RESYNC given.
- A path counts as watched from before the question is sent: the answer and the event come by different threads.
- One callback serves all trees, so that kazoo keeps it once for each node, however often a watch begins.
"""

import asyncio
import contextlib
import logging
from typing import Any, Final

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from headwater.logs.events import log_event
from headwater.metadata.store import RESYNC, Resync, Unavailable
from headwater.metadata.zookeeper import requests
from headwater.metadata.zookeeper.client import Interrupted, ZookeeperClient
from headwater.metadata.zookeeper.paths import ZookeeperPaths, is_folder, is_key

BATCH: Final = 256
"""Nodes that one tree asks for at a time."""
PAUSE_S: Final = 0.5
"""Before another try to watch, after one that failed."""


class Watches:
    """All that is watched through one client."""

    def __init__(self, client: ZookeeperClient, paths: ZookeeperPaths) -> None:
        self._client = client
        self._paths = paths
        self._loop = asyncio.get_running_loop()
        self._trees: set[WatchedTree] = set()
        client.subscribe(self._connection_changed)

    def begin(self, prefix: str) -> "WatchedTree":
        tree = WatchedTree(self._client, self._paths, self._paths.folder(prefix), self._on_event)
        self._trees.add(tree)
        return tree

    def end(self, tree: "WatchedTree") -> None:
        self._trees.discard(tree)

    def _connection_changed(self) -> None:
        for tree in self._trees:
            tree.lose_all()

    def _on_event(self, event: WatchedEvent) -> None:
        """Called by kazoo's thread. A lost connection is an event for each node; it is heard of otherwise."""
        if event.type != EventType.NONE:
            with contextlib.suppress(RuntimeError):  # the event loop was closed before the store
                self._loop.call_soon_threadsafe(self._changed, event.path)

    def _changed(self, path: str) -> None:
        for tree in self._trees:
            tree.changed(path)


class WatchedTree:
    def __init__(self, client: ZookeeperClient, paths: ZookeeperPaths, folder: str, on_event: requests.OnEvent) -> None:
        self._client = client
        self._paths = paths
        self._folder = folder
        self._on_event = on_event
        self._watched: set[str] = set()
        self._changed: set[str] = set()
        self._must_resync = True
        self._wake = asyncio.Event()
        self._wake.set()

    def changed(self, path: str) -> None:
        if path in self._watched:
            self._changed.add(path)
            self._wake.set()

    def lose_all(self) -> None:
        self._must_resync = True
        self._wake.set()

    async def next_hint(self) -> set[str] | Resync | None:
        """None when the store was closed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._client.is_closed:
                return None
            try:
                hint = await (self._watch_all() if self._must_resync else self._watch_again())
            except (Unavailable, Interrupted) as error:
                log_event("metadata_watch_interrupted", logging.WARNING, folder=self._folder, error=error)
                self.lose_all()
                await asyncio.sleep(PAUSE_S)
                continue
            if hint:
                return hint

    async def _watch_all(self) -> Resync:
        self._must_resync = False
        self._watched.clear()
        self._changed.clear()
        await self._watch({self._folder})
        return RESYNC

    async def _watch_again(self) -> set[str]:
        changed, self._changed = self._changed, set()
        self._watched -= changed
        found = await self._watch(changed)
        return {self._paths.key(path) for path in changed | found if is_key(path)}

    async def _watch(self, paths: set[str]) -> set[str]:
        """Watch these nodes, and all below them that are not watched yet; the latter are returned."""
        found: set[str] = set()
        to_do = list(paths)
        while to_do:
            batch, to_do = to_do[:BATCH], to_do[BATCH:]
            self._watched.update(batch)
            for children in await asyncio.gather(*(self._watch_one(path) for path in batch)):
                new = children - self._watched - found
                found |= new
                to_do += new
        return found

    async def _watch_one(self, path: str) -> set[str]:
        """The children, of a folder. What is not there is not watched: its folder is, and tells when it comes."""
        if is_folder(path):
            return await self._watch_folder(path)
        (answer,) = await self._client.ask(requests.data(path, self._on_event))
        self._is_present(path, answer)
        return set()

    async def _watch_folder(self, path: str) -> set[str]:
        while True:
            (names,) = await self._client.ask(requests.children(path, self._on_event))
            if self._is_present(path, names):
                return {f"{path}/{name}" for name in names if is_folder(name) or is_key(name)}
            if path != self._folder:
                return set()
            # No other folder is watched that would show the top of the tree.
            self._watched.add(path)
            (stat,) = await self._client.ask(requests.stat(path, self._on_event))
            if stat is None:
                return set()

    def _is_present(self, path: str, answer: Any) -> bool:
        """Whether the node is there. A node that is not there is not watched."""
        if isinstance(answer, NoNodeError):
            self._watched.discard(path)
            return False
        if isinstance(answer, KazooException):
            raise Unavailable(f"ZooKeeper refuses to watch {path}: {answer!r}") from answer
        return True
