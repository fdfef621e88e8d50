"""Those who wait for records of a queue, and records that wait for them.

Records that were lent and nobody took, because their reader went or because two brokers gave at once, wait a moment for
the next reader, in their order.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping

from headwater.gateway.http.problems import too_busy, unavailable
from headwater.gateway.subscriptions.members.deliveries import Delivery, handed_over
from headwater.gateway.subscriptions.members.leases import Lease, Leases
from headwater.gateway.subscriptions.members.share_link import ShareLink

MAX_WAITERS = 1_000
MAX_FETCH_RECORDS = 2_000
MAX_FETCH_BYTES = 16 * 1024 * 1024
FETCH_WAIT_MS = 500
"""Of one fetch: a reader that goes leaves no fetch behind that waits for long."""
GRACE_S = 2.0
"""How long after its time a reader waits for fetches that are under way."""
SPARE_S = 1.0
"""How long records wait for a reader."""


class _Reader:
    __slots__ = ("future", "max_bytes", "max_records", "rounds", "until_s")

    def __init__(self, max_records: int, max_bytes: int, until_s: float, rounds: Mapping[ShareLink, int]) -> None:
        self.max_records = max_records
        self.max_bytes = max_bytes
        self.until_s = until_s
        self.rounds = rounds
        """Of each link, the fetch that must have come back before nothing is nothing."""
        self.future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()


class ShareReaders:
    def __init__(self, group: str, leases: Leases) -> None:
        self.wanted = asyncio.Event()
        """Somebody waits."""
        self._group = group
        self._leases = leases
        self._readers: deque[_Reader] = deque()
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
        reader = _Reader(max_records, max_bytes, loop.time() + wait_ms / 1000, rounds)
        self._readers.append(reader)
        self.wanted.set()
        self._serve()
        timer = loop.call_at(reader.until_s, self._serve)
        try:
            return await handed_over(reader.future, reader.until_s + GRACE_S, self._take_back)
        finally:
            timer.cancel()
            if reader in self._readers:
                self._readers.remove(reader)
            self._tell_wanted()

    def demand(self) -> tuple[int, int, int]:
        """Records, bytes and ms to wait: what a fetch is to ask for."""
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
        """A fetch came back, with these or with nothing."""
        before = len(self._spare)
        self._spare.extend(deliveries)
        if len(self._spare) > before:
            self._spare_since_s = time.monotonic()
        self._serve()

    def untaken(self) -> list[Delivery]:
        """Records that have waited long enough for a reader, taken out."""
        if self._readers or not self._spare or time.monotonic() - self._spare_since_s <= SPARE_S:
            return []
        untaken, self._spare = list(self._spare), deque()
        return untaken

    def end(self) -> None:
        """Nothing comes any more: those who wait get nothing, and those who come are refused."""
        self._has_ended = True
        for reader in self._readers:
            if not reader.future.done():
                reader.future.set_result([])

    def _serve(self) -> None:
        """Give what there is to those who wait, in their order."""
        while self._readers:
            reader = self._readers[0]
            given = self._next_for(reader)
            if not given and not _is_over(reader):
                break
            self._readers.popleft()
            if not reader.future.done():
                reader.future.set_result(given)
            elif given:
                self._take_back(given)
        if len(self._readers) > 1 and not self._spare:
            for reader in [each for each in self._readers if _is_over(each)]:
                self._readers.remove(reader)
                if not reader.future.done():
                    reader.future.set_result([])
        self._tell_wanted()  # before a link looks, which would rest because nobody wants anything

    def _tell_wanted(self) -> None:
        if not self._readers:
            self.wanted.clear()

    def _take_back(self, given: list[Delivery]) -> None:
        self._spare.extendleft(reversed(given))

    def _next_for(self, reader: _Reader) -> list[Delivery]:
        """Of the records that are still ours."""
        given: list[Delivery] = []
        size_bytes, now_ms = 0, time.time_ns() // 1_000_000
        while self._spare and len(given) < reader.max_records:
            delivery = self._spare[0]
            if given and size_bytes + delivery.size_bytes > reader.max_bytes:
                break
            self._spare.popleft()
            held = self._leases.held(delivery.partition, delivery.offset, delivery.lease, now_ms)
            if isinstance(held, Lease):
                given.append(delivery)
                size_bytes += delivery.size_bytes
        return given


def _is_over(reader: _Reader) -> bool:
    """Its time is over, and every fetch since it came has given nothing."""
    if asyncio.get_running_loop().time() < reader.until_s:
        return False
    return all(link.rounds > seen for link, seen in reader.rounds.items())
