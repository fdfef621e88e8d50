"""What one user, client or address has used, against its limit; and a bounded table of that.

Three kinds, by what is limited:

    ByteMeter        bytes: the wait has no end but what a response has room for
    RateMeter        time of the loop, connections: a wait of a second at most, and what that leaves is forgiven
    MutationMeter    partitions created and deleted: all of a request or nothing of it, as long as nothing is owed

A window forgets after eleven seconds, and gives ten seconds' worth again, also to a client that waited all that time.
In Kafka a producer with large requests thus gets up to 1.7 times its limit, and one with many connections, each of
which waits for itself, several times. A ByteMeter counts in a bucket of ten seconds' worth, too; the longer wait
counts, and in the long run the limit holds.

A fetch asks what is owed before it reads. If anything is, its answer is empty, with the wait, and nothing is counted.
Else it reads what there is room for, and what it read is sent and counted; if a batch was larger than the room, the
wait comes after it. Kafka reads and counts first, and withholds what is over: a batch of more than ten seconds' worth
for ever; and a consumer that is far behind gets half its limit.

The table forgets the meter that was used longest ago, as soon as it is full: names of clients are free, and any number
of them may come. A client whose meter was forgotten has its whole allowance again. Therefore:

- A meter that made its client wait stays for the time of the wait and a window after it, which is when the client has
  its whole allowance again anyway. What is forgotten earlier was not over its limit.
- If every meter of the table has to stay, names that are new share one meter, and so one limit, until there is room.
- Meters that go by the name of a client, and those of users alone or addresses, have a room each: inventing names of
  clients makes no user forgotten, and none share.

Looking a meter up costs as much as using it. A connection keeps the meter that it used last, weakly, and uses it again
without a look at the table as long as it collects. It does so for the rest of a sample at most: a meter in use is thus
looked up every second, and the table knows when each was used, to a second. One that was forgotten is gone.
"""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

from headwater.model.deadlines import Deadlines
from headwater.security.quota_entities import Metered, QuotaLimit
from headwater.security.quota_window import (
    LONGEST_WAIT_MS,
    SAMPLE_MS,
    SAMPLES,
    WHOLE_WINDOW_S,
    WINDOW_MS,
    SampledRate,
    TokenBucket,
    whole_wait_ms,
)

MAX_METERS: Final = 1_000
"""Of clients, and as many of users."""
MUTATION_BURST_S: Final = SAMPLES * SAMPLE_MS / 1_000
LONGEST_RATE_WAIT_MS: Final = SAMPLE_MS


class Meter:
    """What all kinds have: until when its client waits, and how often it had to."""

    __slots__ = ("__weakref__", "recovered_ms", "throttled_ms", "violations")

    def __init__(self) -> None:
        self.recovered_ms = 0
        """When a client that had to wait has its whole allowance again."""
        self.violations = 0
        """How many requests or connections came with a wait."""
        self.throttled_ms = 0
        """All these waits together."""

    def per_second(self, now_ms: int) -> float:
        raise NotImplementedError

    def waits_ms(self, now_ms: int) -> int:
        """How long the client still has to wait, unless its limit was altered meanwhile."""
        return max(self.recovered_ms - WINDOW_MS - now_ms, 0)

    def _noted(self, wait_ms: int, now_ms: int) -> int:
        """`wait_ms`, which the client is told."""
        if wait_ms:
            self.violations += 1
            self.throttled_ms += wait_ms
        self._note_owed(wait_ms, now_ms)
        return wait_ms

    def _note_owed(self, owed_ms: int, now_ms: int) -> None:
        if owed_ms:
            self.recovered_ms = now_ms + owed_ms + WINDOW_MS
        elif self.recovered_ms > now_ms + WINDOW_MS:
            self.recovered_ms = now_ms + WINDOW_MS


M = TypeVar("M", bound=Meter)


class WindowMeter(Meter):
    """Usage that is far from the limit is not put into the window at once: it is collected for the rest of a sample,
    as long as there is certainly room for it."""

    __slots__ = ("_collected", "_collected_ms", "_rate", "_safe_limit", "_safe_room", "_safe_until_ms")

    def __init__(self) -> None:
        super().__init__()
        self._rate = SampledRate()
        self._collected = 0.0
        self._collected_ms = 0
        self._safe_room = 0.0
        self._safe_limit = 0.0
        self._safe_until_ms = 0

    def collect(self, value: float, limit: float, now_ms: int) -> bool:
        """Count usage if there is certainly room for it, and no wait. Else nothing is counted: `charge` has to be
        called, of the meter that the table has."""
        left = self._safe_room - value
        if left < 0 or now_ms >= self._safe_until_ms or limit != self._safe_limit:
            return False
        self._safe_room = left
        self._collected += value
        self._collected_ms = now_ms
        return True

    def charge(self, value: float, limit: float, now_ms: int) -> int:
        """Count usage; returns how long the client has to wait after it."""
        raise NotImplementedError

    def per_second(self, now_ms: int) -> float:
        self._settle()
        return self._rate.per_second(now_ms)

    def count(self, value: float, now_ms: int) -> None:
        """The same, at the time of a charge, of what becomes known when it is too late for a wait: the next charge
        finds it."""
        self._safe_room -= value
        self._collected += value
        self._collected_ms = now_ms

    def _collects_from_now_on(self, limit: float, now_ms: int) -> None:
        self._safe_room, self._safe_until_ms = self._rate.safe_room(limit, now_ms)
        self._safe_limit = limit

    def _settle(self) -> None:
        """What was collected is in the window, and nothing more may be collected until the next charge says so."""
        if self._collected:
            self._rate.record(self._collected, self._collected_ms)
            self._collected = 0.0
        self._safe_until_ms = 0


class ByteMeter(WindowMeter):
    __slots__ = ("_bucket",)

    def __init__(self) -> None:
        super().__init__()
        self._bucket = TokenBucket(WHOLE_WINDOW_S)

    def collect(self, value: float, limit: float, now_ms: int) -> bool:
        # On the path of each produce and fetch: what a WindowMeter does and what a bucket does, in one step.
        left = self._safe_room - value
        if left < 0 or now_ms >= self._safe_until_ms or limit != self._safe_limit:
            return False
        bucket = self._bucket
        tokens = bucket.level if now_ms == bucket.filled_ms else bucket.tokens(limit, now_ms)
        if tokens < value:
            return False
        bucket.level = tokens - value
        self._safe_room = left
        self._collected += value
        self._collected_ms = now_ms
        return True

    def charge(self, size_bytes: float, limit: float, now_ms: int) -> int:
        """Count bytes that came or went; returns how long the client has to wait after them."""
        if self.collect(size_bytes, limit, now_ms):
            return 0
        self._settle()
        self._rate.record(size_bytes, now_ms)
        self._bucket.take(size_bytes, limit, now_ms)
        wait_ms = self._noted(whole_wait_ms(self._wait_ms(limit, now_ms)), now_ms)
        if not wait_ms:
            self._collects_from_now_on(limit, now_ms)
        return wait_ms

    def take_back(self, size_bytes: int, limit: float, now_ms: int) -> None:
        """The bytes that were just charged are not sent after all."""
        self._settle()
        self._rate.record(-size_bytes, now_ms)
        self._bucket.take(-size_bytes, limit, now_ms)

    def owed_ms(self, limit: float, now_ms: int) -> int:
        """How long the client has to wait before anything is sent to it.

        Rounded down, so that a consumer that got nothing comes before the one that got too much."""
        self._settle()
        return self._noted(int(min(self._wait_ms(limit, now_ms), LONGEST_WAIT_MS)), now_ms)

    def room_bytes(self, limit: float, now_ms: int) -> int:
        """How much a fetch reads at most, besides a first batch that is larger. Never more than ten seconds' worth."""
        room_bytes = self.safe_room_bytes(limit, now_ms)
        if room_bytes:
            return room_bytes
        self._settle()
        room = min(self._rate.room(limit, now_ms), self._bucket.tokens(limit, now_ms), limit * WHOLE_WINDOW_S)
        return max(int(room), 0)

    def safe_room_bytes(self, limit: float, now_ms: int) -> int:
        """The same as long as usage is collected and there is much room, else 0."""
        room, level = self._safe_room, self._bucket.level  # which has been filled since: it has no less
        if level < room:
            room = level
        return int(room) if room > limit and now_ms < self._safe_until_ms and limit == self._safe_limit else 0

    def _wait_ms(self, limit: float, now_ms: int) -> float:
        return max(self._rate.wait_ms(limit, now_ms), self._bucket.wait_ms(limit, now_ms))


class RateMeter(WindowMeter):
    __slots__ = ()

    def charge(self, value: float, limit: float, now_ms: int) -> int:
        """Count percents of a second, or connections; returns how long the client has to wait after them."""
        if self.collect(value, limit, now_ms):
            return 0
        self._settle()
        self._rate.record(value, now_ms)
        wait_ms = self._noted(whole_wait_ms(self._rate.wait_ms(limit, now_ms), LONGEST_RATE_WAIT_MS), now_ms)
        if not wait_ms:
            self._collects_from_now_on(limit, now_ms)
        return wait_ms

    def take_back(self, value: float, now_ms: int) -> None:
        """The connection that was just charged is not accepted."""
        self._settle()
        self._rate.record(-value, now_ms)


class MutationMeter(Meter):
    __slots__ = ("_bucket", "_rate")

    def __init__(self) -> None:
        super().__init__()
        self._bucket = TokenBucket(MUTATION_BURST_S)
        self._rate = SampledRate()
        """For people: mutations are admitted by the bucket alone."""

    def admit(self, mutations: int, limit: float, now_ms: int) -> int:
        """Returns 0 if the mutations may be done, and they are counted; else how long the client has to wait."""
        tokens = self._bucket.tokens(limit, now_ms)
        wait_ms = 0 if tokens >= 0 else max(whole_wait_ms(self._bucket.wait_ms(limit, now_ms)), 1)
        if not wait_ms:
            self._take(mutations, limit, now_ms)
        self._noted(wait_ms, now_ms)
        self._note_owed(whole_wait_ms(self._bucket.wait_ms(limit, now_ms)), now_ms)
        return wait_ms

    def charge(self, mutations: int, limit: float, now_ms: int) -> int:
        """Count mutations that are done in any case; returns how long the client has to wait after them."""
        self._take(mutations, limit, now_ms)
        return self._noted(whole_wait_ms(self._bucket.wait_ms(limit, now_ms)), now_ms)

    def take_back(self, mutations: int, limit: float, now_ms: int) -> None:
        """The mutations that were just admitted are not done after all."""
        self._take(-mutations, limit, now_ms)
        self._note_owed(whole_wait_ms(self._bucket.wait_ms(limit, now_ms)), now_ms)

    def per_second(self, now_ms: int) -> float:
        return self._rate.per_second(now_ms)

    def _take(self, mutations: int, limit: float, now_ms: int) -> None:
        self._bucket.take(mutations, limit, now_ms)
        self._rate.record(mutations, now_ms)


class MeterTable(Generic[M]):
    """The meters for one key."""

    def __init__(self, make: Callable[[], M], max_meters: int = MAX_METERS) -> None:
        self._clients = _Room(make, max_meters)
        self._others = _Room(make, max_meters)

    def __len__(self) -> int:
        return len(self._clients) + len(self._others)

    def __iter__(self) -> Iterator[tuple[Metered, M]]:
        """Users and addresses before clients; of each, those that had to stay first, then the one used last."""
        return chain(self._others, self._clients)

    def meter(self, metered: Metered, now_ms: int) -> M:
        """To be used at once, and kept by a `HeldMeter` alone: the table may forget it."""
        room = self._others if metered.client_id is None else self._clients
        return room.meter(metered, now_ms)


W = TypeVar("W", bound=WindowMeter)


class HeldMeter(Generic[W]):
    """A limit of the client of one connection, and the meter that its requests used last."""

    __slots__ = ("_metered", "_table", "recall", "value")

    def __init__(self, table: MeterTable[W], limit: QuotaLimit) -> None:
        self._table = table
        self._metered = limit.metered
        self.value: Final = limit.value
        self.recall: Callable[[], W | None] = _forgotten
        """The meter, to collect with it, unless it is forgotten."""

    def meter(self, now_ms: int) -> W:
        """The meter that the table has, for all else."""
        meter = self._table.meter(self._metered, now_ms)
        self.recall = weakref.ref(meter)
        return meter


def _forgotten() -> None:
    return None


class _Room(Generic[M]):
    __slots__ = ("_deadlines", "_make", "_max_meters", "_meters", "_shared", "_staying")

    def __init__(self, make: Callable[[], M], max_meters: int) -> None:
        self._make = make
        self._max_meters = max_meters
        self._meters: OrderedDict[Metered, M] = OrderedDict()
        """The one used longest ago first."""
        self._staying: dict[Metered, M] = {}
        """What was found to have to stay when there was no room."""
        self._deadlines: Deadlines[Metered] = Deadlines()
        """Until when each of them does, or longer."""
        self._shared = make()

    def __len__(self) -> int:
        return len(self._meters) + len(self._staying)

    def __iter__(self) -> Iterator[tuple[Metered, M]]:
        return chain(self._staying.items(), reversed(self._meters.items()))

    def meter(self, metered: Metered, now_ms: int) -> M:
        meter = self._meters.get(metered)
        if meter is not None:
            self._meters.move_to_end(metered)
            return meter
        meter = self._staying.get(metered)
        if meter is not None:
            return meter
        if len(self) >= self._max_meters and not self._forget_one(now_ms):
            return self._shared
        meter = self._meters[metered] = self._make()
        return meter

    def _forget_one(self, now_ms: int) -> bool:
        """Forget what was used longest ago and does not have to stay. False if there is nothing of the kind."""
        self._release(now_ms)
        while self._meters:
            metered, meter = self._meters.popitem(last=False)
            if meter.recovered_ms <= now_ms:
                return True
            self._stay(metered, meter)
        return False

    def _release(self, now_ms: int) -> None:
        while (metered := self._deadlines.take_due(now_ms)) is not None:
            meter = self._staying.pop(metered)
            if meter.recovered_ms > now_ms:
                self._stay(metered, meter)
            else:
                self._meters[metered] = meter
                self._meters.move_to_end(metered, last=False)

    def _stay(self, metered: Metered, meter: M) -> None:
        self._staying[metered] = meter
        self._deadlines.set(metered, meter.recovered_ms)
