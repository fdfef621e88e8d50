"""A member of a queue and one broker that leads some of its partitions: fetches while somebody wants records, and
settles what was decided. A session that is lost is begun again.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from uuid import UUID

from headwater.gateway.kafka.brokers import Brokers, Refused
from headwater.gateway.kafka.connection import BrokerGone
from headwater.gateway.subscriptions.members.share_session import Fetched, ShareSession
from headwater.gateway.subscriptions.settling import MAX_AT_ONCE, Settling, Verdict, ack_batches

FIRST_REST_S, LONGEST_REST_S = 0.05, 2.0


class ShareLink:
    def __init__(self, brokers: Brokers, node_id: int, group: str, member_id: str, topic_id: UUID) -> None:
        self.partitions: frozenset[int] = frozenset()
        """What the broker leads of those that the member was given."""
        self.rounds = 0
        """Fetches that came back."""
        self.is_fetching = False
        self._make = partial(ShareSession, brokers, node_id, group, member_id, topic_id)
        self._session = self._make()
        self._waiting: deque[Settling] = deque()
        self._has_settlings = asyncio.Event()

    async def run(
        self,
        demand: Callable[[], tuple[int, int, int]],
        wanted: asyncio.Event,
        lend: Callable[["ShareLink", Fetched], None],
        lost: Callable[["ShareLink"], None],
    ) -> None:
        """Until cancelled. `demand` tells records, bytes and ms to wait, `lend` takes what came, `lost` learns that
        everything that was lent here is taken back."""
        rest_s = FIRST_REST_S
        try:
            while True:
                rounds = self.rounds
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(self._settle())
                        tasks.create_task(self._fetch(demand, wanted, lend))
                except* (BrokerGone, Refused) as group:
                    self._fail(group.exceptions[0])
                    self._session.close()
                    self._session = self._make()
                    lost(self)
                rest_s = FIRST_REST_S if self.rounds > rounds else min(2 * rest_s, LONGEST_REST_S)
                await asyncio.sleep(rest_s)
        finally:
            self._fail(BrokerGone("the member has left"))
            self._session.close()

    def settle(self, settlings: Iterable[Settling]) -> None:
        self._waiting.extend(settlings)
        self._has_settlings.set()

    @property
    def is_settled(self) -> bool:
        return not self._waiting and not self._has_settlings.is_set()

    async def _fetch(
        self,
        demand: Callable[[], tuple[int, int, int]],
        wanted: asyncio.Event,
        lend: Callable[["ShareLink", Fetched], None],
    ) -> None:
        while True:
            await wanted.wait()
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

    async def _settle(self) -> None:
        while True:
            await self._has_settlings.wait()
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_AT_ONCE))]
            if not batch:
                self._has_settlings.clear()
                continue
            try:
                renews = any(each.verdict is Verdict.EXTEND for each in batch)
                codes = await self._session.acknowledge(ack_batches(batch), renews=renews)
            except BaseException as error:
                _end(batch, error if isinstance(error, Exception) else BrokerGone("the member has left"))
                raise
            for each in batch:
                if each.done is not None and not each.done.done():
                    each.done.set_result(codes[each.lease.partition])

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._has_settlings.clear()
        _end(waiting, error)


def _end(settlings: Iterable[Settling], error: Exception) -> None:
    for each in settlings:
        if each.done is not None:
            with contextlib.suppress(asyncio.InvalidStateError):
                each.done.set_exception(error)
                each.done.exception()  # whoever went away need not ask
