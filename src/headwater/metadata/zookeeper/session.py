"""A session of the contract: a dedicated ZooKeeper session, because a node belongs to the session that created it.

- While the session lives there is a node that marks it. A transaction that writes for the session checks the mark, so
  that one which comes too late is refused by ZooKeeper, whatever this process believes.
- Keep-alives check the mark through a majority of the servers. An answer counts from the moment of the question.
- The session is lost when ZooKeeper says so: the session expired, or the mark is gone.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from headwater.logs.events import log_event
from headwater.metadata.store import Unavailable, Unknown
from headwater.metadata.zookeeper import requests
from headwater.metadata.zookeeper.client import Interrupted, ZookeeperClient
from headwater.metadata.zookeeper.plan import Writer

KEEP_ALIVES_PER_TTL: Final = 4


class ZookeeperSession:
    """`client` is the session's own. `is_absent` asks, through another one, whether a node is gone."""

    def __init__(
        self,
        client: ZookeeperClient,
        folder: str,
        ttl_s: float,
        ended: "Callable[[ZookeeperSession], None]",
        is_absent: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._client = client
        self._id = uuid.uuid4().hex
        self._mark = f"{folder}/{self._id}"
        self._ttl_s = ttl_s
        self._owner = 0
        self._valid_until = 0.0
        self._ended = ended
        self._is_absent = is_absent
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._is_closing = False
        client.subscribe(self._connection_changed)

    @property
    def id(self) -> str:
        return self._id

    @property
    def lost(self) -> asyncio.Event:
        return self._lost

    @property
    def client(self) -> ZookeeperClient:
        """What the session's nodes must be created through."""
        return self._client

    @property
    def writer(self) -> Writer:
        return Writer(self._owner, self._mark)

    def valid_until(self) -> float:
        return self._valid_until

    async def begin(self) -> None:
        """Leave the mark. Raises Unavailable, and Interrupted when another try makes sense."""
        owner = self._client.session_number
        asked_at = time.monotonic()
        (answer,) = await self._client.ask(requests.mark(self._mark))
        if isinstance(answer, KazooException) and not isinstance(answer, NodeExistsError):
            raise Unavailable(f"no session in ZooKeeper: {answer!r}") from answer
        (stat,) = await self._client.ask(requests.stat(self._mark))
        if isinstance(stat, KazooException) or stat is None or stat.ephemeralOwner != owner:
            raise Unavailable("the session in ZooKeeper ended while it began")
        self._owner = owner
        self._valid_until = asked_at + self._promised_s
        self._keeper = asyncio.create_task(self._keep_alive(), name=f"metadata-session-{self._id}")

    async def close(self) -> None:
        """Raises Unknown when ZooKeeper could not be reached: then the keys vanish when the session expires."""
        await self.abandon()
        self._end()
        if not await self._is_absent(self._mark):
            raise Unknown("ZooKeeper could not be reached to end the session: its keys vanish when it expires")

    async def abandon(self) -> None:
        """Stop asking for more time, and close the connection."""
        self._is_closing = True
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        await self._client.close()

    @property
    def _promised_s(self) -> float:
        return min(self._ttl_s, self._client.granted_timeout_s)

    def _connection_changed(self) -> None:
        if self._client.is_expired and not self._is_closing:
            self._end()

    def _end(self) -> None:
        if not self._lost.is_set():
            self._lost.set()
            self._client.unsubscribe(self._connection_changed)
            self._ended(self)

    async def _keep_alive(self) -> None:
        while not self._lost.is_set():
            await asyncio.sleep(self._promised_s / KEEP_ALIVES_PER_TTL)
            asked_at = time.monotonic()
            try:
                (results,) = await self._client.ask(requests.through_majority(self._mark))
            except (Unavailable, Interrupted) as error:
                log_event("metadata_session_not_renewed", logging.WARNING, session=self._id, error=error)
                continue
            if isinstance(results, KazooException):
                log_event("metadata_session_not_renewed", logging.WARNING, session=self._id, error=repr(results))
            elif isinstance(results[0], NoNodeError):
                self._end()
            elif not isinstance(results[0], KazooException):
                self._valid_until = asked_at + self._promised_s
