"""A member of a queue and one broker that leads some of its partitions: it fetches while readers wait for records, and
sends acknowledgements. A session that is lost is begun again.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from uuid import UUID

from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.client.errors import ClientError, ConnectionLost
from headwater.gateway.subscriptions.members.pending_acks import MAX_AT_ONCE, AckType, PendingAck, ack_batches
from headwater.gateway.subscriptions.members.share_session import Fetched, ShareSessionClient

FIRST_REST_S, LONGEST_REST_S = 0.05, 2.0


class ShareLink:
    def __init__(self, cluster: AsyncioCluster, node_id: int, topic_id: UUID, *, group: str, member_id: str) -> None:
        self.partitions: frozenset[int] = frozenset()
        """Those of the member's partitions that the broker leads."""
        self.rounds = 0
        """Fetches that were answered."""
        self.is_fetching = False
        self._make = partial(ShareSessionClient, cluster, node_id, topic_id, group=group, member_id=member_id)
        self._session = self._make()
        self._waiting: deque[PendingAck] = deque()
        self._has_acks = asyncio.Event()

    async def run(
        self,
        demand: Callable[[], tuple[int, int, int]],
        has_readers: asyncio.Event,
        lend: Callable[["ShareLink", Fetched], None],
        lost: Callable[["ShareLink"], None],
    ) -> None:
        """Until cancelled. `demand` gives records, bytes and ms to wait for the next fetch, `lend` is called with what
        a fetch brought, `lost` when the session ended and the broker has taken all leases back."""
        rest_s = FIRST_REST_S
        try:
            while True:
                rounds = self.rounds
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(self._send_acks())
                        tasks.create_task(self._fetch(demand, has_readers, lend))
                except* ClientError as group:
                    self._fail(group.exceptions[0])
                    self._session.close()
                    self._session = self._make()
                    lost(self)
                rest_s = FIRST_REST_S if self.rounds > rounds else min(2 * rest_s, LONGEST_REST_S)
                await asyncio.sleep(rest_s)
        finally:
            self._fail(ConnectionLost("the member has left"))
            self._session.close()

    def send(self, acks: Iterable[PendingAck]) -> None:
        """Queue acknowledgements for the next request."""
        self._waiting.extend(acks)
        self._has_acks.set()

    @property
    def is_drained(self) -> bool:
        """The broker has answered every acknowledgement."""
        return not self._waiting and not self._has_acks.is_set()

    async def _fetch(
        self,
        demand: Callable[[], tuple[int, int, int]],
        has_readers: asyncio.Event,
        lend: Callable[["ShareLink", Fetched], None],
    ) -> None:
        while True:
            await has_readers.wait()
            records, size_bytes, wait_ms = demand()
            if not records or not self.partitions:
                await asyncio.sleep(FIRST_REST_S)
                continue
            self.is_fetching = True
            try:
                fetched = await self._session.fetch(self.partitions, records, size_bytes, wait_ms)
            finally:
                self.is_fetching = False
            self.rounds += 1
            lend(self, fetched)
            if fetched.has_errors and not fetched.lent:
                await asyncio.sleep(FIRST_REST_S)

    async def _send_acks(self) -> None:
        while True:
            await self._has_acks.wait()
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_AT_ONCE))]
            if not batch:
                self._has_acks.clear()
                continue
            try:
                renews = any(ack.ack_type is AckType.EXTEND for ack in batch)
                codes = await self._session.acknowledge(ack_batches(batch), renews=renews)
            except BaseException as error:
                _end(batch, error if isinstance(error, Exception) else ConnectionLost("the member has left"))
                raise
            for ack in batch:
                if ack.done is not None and not ack.done.done():
                    ack.done.set_result(codes[ack.lease.partition])

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._has_acks.clear()
        _end(waiting, error)


def _end(acks: Iterable[PendingAck], error: Exception) -> None:
    for ack in acks:
        if ack.done is not None:
            with contextlib.suppress(asyncio.InvalidStateError):
                ack.done.set_exception(error)
                ack.done.exception()  # the request may have ended: asyncio must not report it as unseen
