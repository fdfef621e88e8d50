"""Transactions: read the nodes, plan ZooKeeper's steps, commit them at once, and plan again if another writer was
faster.

Only the commit changes keys, and it is sent once for each plan: a plan that is out of date had no effect, and when the
connection breaks the outcome is Unknown. Folders are made before the commit, and those that a deletion leaves empty
are deleted after it; both may be done twice, or in vain.
"""

import asyncio
import functools
import logging
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kazoo.exceptions import KazooException, NoNodeError

from headwater.logs.events import log_event
from headwater.metadata.store import Condition, Del, Operation, Put, Txn, Unavailable, Unknown
from headwater.metadata.zookeeper import requests
from headwater.metadata.zookeeper.client import Interrupted, ZookeeperClient
from headwater.metadata.zookeeper.paths import ZookeeperPaths, parent
from headwater.metadata.zookeeper.plan import NO_OWNER, CreateNode, SetData, Step, Verdict, judge, keys_to_read, plan
from headwater.metadata.zookeeper.reader import ZookeeperReader
from headwater.metadata.zookeeper.session import ZookeeperSession
from headwater.metadata.zookeeper.url import ZookeeperAddress

MAX_PLANS: Final = 50
"""Each plan that is out of date means that another writer's transaction was done."""
MAX_BACKOFF_S: Final = 0.1
MAX_KNOWN_FOLDERS: Final = 100_000


class ZookeeperWriter:
    def __init__(
        self, address: ZookeeperAddress, client: ZookeeperClient, paths: ZookeeperPaths, reader: ZookeeperReader
    ) -> None:
        self._address = address
        self._client = client
        self._paths = paths
        self._reader = reader
        self._known_folders: set[str] = set()

    async def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        session = _session_of(operations)
        try:
            return await self._txn(conditions, operations, session)
        except Unavailable:
            if session is not None and session.lost.is_set():
                return Txn(False, {})
            raise

    async def make_folders(self, folders: Iterable[str]) -> None:
        for folder in folders:
            if folder not in self._known_folders:
                (answer,) = await self._reader.until_done(functools.partial(self._client.ask, requests.folder(folder)))
                # One above it may have been deleted meanwhile: the commit will find out.
                self._reader.expect(answer, NoNodeError)
                if len(self._known_folders) >= MAX_KNOWN_FOLDERS:
                    self._known_folders.clear()
                self._known_folders.add(folder)

    async def _txn(
        self, conditions: Sequence[Condition], operations: Sequence[Operation], session: ZookeeperSession | None
    ) -> Txn:
        keys = keys_to_read(conditions, operations)
        for attempt in range(MAX_PLANS):
            if session is not None and session.lost.is_set():
                return Txn(False, {})
            # What any server knows is good enough to plan with, but not to refuse.
            is_current = attempt > 0
            seen = await self._reader.see(keys, is_current)
            steps = plan(self._paths, conditions, operations, seen, session.writer if session is not None else None)
            if steps is None:
                if is_current:
                    return Txn(False, {})
                continue
            folders = {parent(step.action.path) for step in steps if isinstance(step.action, CreateNode)}
            await self.make_folders(folders)
            results = await self._commit(session.client if session is not None else self._client, steps)
            try:
                verdict = judge(steps, results)
            except KazooException as error:
                raise Unavailable(f"{self._address} refuses: {type(error).__name__}") from error
            if verdict is Verdict.DONE:
                answer = _answer(self._paths, operations, steps, results, session)
                await self._delete_empty_folders(operations)
                return answer
            if verdict is Verdict.REFUSED:
                return Txn(False, {})
            self._known_folders -= folders
            await asyncio.sleep(random.uniform(0, min(0.001 * 2**attempt, MAX_BACKOFF_S)))
        raise Unavailable(f"{self._address}: {MAX_PLANS} times, other transactions on the same keys were faster")

    async def _commit(self, client: ZookeeperClient, steps: Sequence[Step]) -> Sequence[Any]:
        try:
            (results,) = await client.ask(requests.transaction(steps))
        except Interrupted as error:
            raise Unknown(f"{self._address} did not say whether the transaction was done: {error}") from error
        self._reader.expect(results)
        committed: Sequence[Any] = results
        return committed

    async def _delete_empty_folders(self, operations: Sequence[Operation]) -> None:
        """As far as it goes: the transaction is done, whatever becomes of this."""
        try:
            for folder in {parent(self._paths.node(op.key)) for op in operations if isinstance(op, Del)}:
                path = folder
                while path != self._paths.keys:
                    (stat,) = await self._client.ask(requests.stat(path))
                    if stat is None or isinstance(stat, KazooException) or stat.numChildren:
                        break
                    self._known_folders.discard(path)
                    (answer,) = await self._client.ask(requests.removal(path))
                    if isinstance(answer, KazooException):
                        break
                    path = parent(path)
        except (Interrupted, Unavailable) as error:
            log_event("metadata_folders_not_deleted", logging.WARNING, error=error)


def _session_of(operations: Sequence[Operation]) -> ZookeeperSession | None:
    """The one session that a transaction writes for."""
    for operation in operations:
        if isinstance(operation, Put) and operation.session is not None:
            if not isinstance(operation.session, ZookeeperSession):
                raise ValueError(f"session {operation.session.id} is not a session in ZooKeeper")
            return operation.session
    return None


def _answer(
    paths: ZookeeperPaths,
    operations: Sequence[Operation],
    steps: Sequence[Step],
    results: Sequence[Any],
    session: ZookeeperSession | None,
) -> Txn:
    """All nodes that one transaction writes get its number."""
    stats = {
        step.action.path: result
        for step, result in zip(steps, results, strict=True)
        if isinstance(step.action, SetData)
    }
    versions: dict[str, int] = {}
    for operation in operations:
        if isinstance(operation, Put):
            stat = stats[paths.node(operation.key)]
            owner = session.writer.owner if session is not None and operation.session is not None else NO_OWNER
            if stat.ephemeralOwner != owner:
                raise Unknown(f"{operation.key!r} changed hands at the same moment: it has the value, not the owner")
            versions[operation.key] = stat.mzxid
        else:
            versions[operation.key] = 0
    return Txn(True, versions)
