"""Readers that wait for records of a queue, and leased records that wait for a reader.

A record waits when its reader has left, or when two brokers lent at once: for a moment, in order, for the next reader.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping

from headwater.gateway.http.problems import too_busy, unavailable
from headwater.gateway.subscriptions.members.deliveries import Delivery, handed_over
from headwater.gateway.subscriptions.members.leases import HeldLeases, Lease
from headwater.gateway.subscriptions.members.share_link import ShareLink

MAX_WAITERS = 1_000
MAX_FETCH_RECORDS = 2_000
MAX_FETCH_BYTES = 16 * 1024 * 1024
FETCH_WAIT_MS = 500
"""Of one fetch: a reader that leaves must not leave a long fetch behind."""
GRACE_S = 2.0
"""How long after its time a reader waits for fetches that are under way."""
SPARE_S = 1.0
"""How long records wait for a reader."""


class _QueueReader:
    __slots__ = ("future", "max_bytes", "max_records", "rounds", "until_s")

    def __init__(self, max_records: int, max_bytes: int, until_s: float, rounds: Mapping[ShareLink, int]) -> None:
        self.max_records = max_records
        self.max_bytes = max_bytes
        self.until_s = until_s
        self.rounds = rounds
        """By link, the fetch that must have been answered before an empty answer is certain."""
        self.future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()


class ShareReaders:
    def __init__(self, group: str, leases: HeldLeases) -> None:
        self.has_readers = asyncio.Event()
        self._group = group
        self._leases = leases
        self._readers: deque[_QueueReader] = deque()
        self._spare: deque[Delivery] = deque()
        self._spare_since_s = 0.0
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._readers)

    def check_room(self) -> None:
        """Raises Problem."""
        if self._has_ended:
            raise unavailable(f"The reader of {self._group} has ended.")
        if len(self._readers) >= MAX_WAITERS:
            raise too_busy(f"{MAX_WAITERS} requests wait for records of {self._group} already.")
        if not self._leases.room and not self._spare:
            raise too_busy(f"{len(self._leases)} records of {self._group} are held and not acknowledged.", 5)

    async def take(self, max_records: int, max_bytes: int, wait_ms: int, links: Iterable[ShareLink]) -> list[Delivery]:
        loop = asyncio.get_running_loop()
        rounds = {link: link.rounds + link.is_fetching for link in links}
        reader = _QueueReader(max_records, max_bytes, loop.time() + wait_ms / 1000, rounds)
        self._readers.append(reader)
        self.has_readers.set()
        self._serve()
        timer = loop.call_at(reader.until_s, self._serve)
        try:
            return await handed_over(reader.future, reader.until_s + GRACE_S, self._take_back)
        finally:
            timer.cancel()
            if reader in self._readers:
                self._readers.remove(reader)
            self._update_has_readers()

    def demand(self) -> tuple[int, int, int]:
        """Records, bytes and ms to wait for the next fetch."""
        now_s = asyncio.get_running_loop().time()
        missing = sum(reader.max_records for reader in self._readers) - len(self._spare)
        size_bytes = max((reader.max_bytes for reader in self._readers), default=0)
        wait_ms = max((int((reader.until_s - now_s) * 1000) for reader in self._readers), default=0)
        return (
            max(min(missing, self._leases.room, MAX_FETCH_RECORDS), 0),
            min(size_bytes, MAX_FETCH_BYTES),
            min(max(wait_ms, 0), FETCH_WAIT_MS),
        )

    def arrived(self, deliveries: Iterable[Delivery]) -> None:
        """A fetch was answered, with these records or with none."""
        before = len(self._spare)
        self._spare.extend(deliveries)
        if len(self._spare) > before:
            self._spare_since_s = time.monotonic()
        self._serve()

    def untaken(self) -> list[Delivery]:
        """Take out the records that have waited too long for a reader."""
        if self._readers or not self._spare or time.monotonic() - self._spare_since_s <= SPARE_S:
            return []
        untaken, self._spare = list(self._spare), deque()
        return untaken

    def end(self) -> None:
        """Readers that wait get nothing, and new readers are refused."""
        self._has_ended = True
        for reader in self._readers:
            if not reader.future.done():
                reader.future.set_result([])

    def _serve(self) -> None:
        """Give the records that wait to the readers that wait, in their order."""
        while self._readers:
            reader = self._readers[0]
            deliveries = self._next_for(reader)
            if not deliveries and not _is_over(reader):
                break
            self._readers.popleft()
            if not reader.future.done():
                reader.future.set_result(deliveries)
            elif deliveries:
                self._take_back(deliveries)
        if len(self._readers) > 1 and not self._spare:
            for reader in [each for each in self._readers if _is_over(each)]:
                self._readers.remove(reader)
                if not reader.future.done():
                    reader.future.set_result([])
        self._update_has_readers()  # before a link looks, which would rest because there is no demand

    def _update_has_readers(self) -> None:
        if not self._readers:
            self.has_readers.clear()

    def _take_back(self, deliveries: list[Delivery]) -> None:
        self._spare.extendleft(reversed(deliveries))

    def _next_for(self, reader: _QueueReader) -> list[Delivery]:
        """Take records for a reader whose leases are still held."""
        deliveries: list[Delivery] = []
        size_bytes, now_ms = 0, time.time_ns() // 1_000_000
        while self._spare and len(deliveries) < reader.max_records:
            delivery = self._spare[0]
            if deliveries and size_bytes + delivery.size_bytes > reader.max_bytes:
                break
            self._spare.popleft()
            held = self._leases.held(delivery.partition, delivery.offset, delivery.lease, now_ms)
            if isinstance(held, Lease):
                deliveries.append(delivery)
                size_bytes += delivery.size_bytes
        return deliveries


def _is_over(reader: _QueueReader) -> bool:
    """Its time is up, and every broker has answered a fetch since it came."""
    if asyncio.get_running_loop().time() < reader.until_s:
        return False
    return all(link.rounds > seen for link, seen in reader.rounds.items())
