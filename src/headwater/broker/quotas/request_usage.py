"""What one request uses of its client's quotas, and how long the client waits for it.

A wait begins when usage is counted: from then on the connection is not read, while its answers go out at once (KIP-219)
and tell what is left of the wait. Produced bytes are counted when the request has come, fetched bytes when they go, and
time of the event loop when the answer is made. What the loop spends on a request is the call of the dispatcher and the
steps of its coroutine; what others do for it (threads, the store, the flush that many requests share) is not counted.
"""

import time
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headwater.model.errors import ErrorCode, RequestError
from headwater.security.quota_entities import UNLIMITED, ClientLimits, QuotaLimit, QuotaTable
from headwater.security.quota_meters import HeldMeter, MeterTable, W
from headwater.transport.connection import Connection
from headwater.wire.api_keys import ApiKey

if TYPE_CHECKING:
    from headwater.broker.quotas.client_meters import ClientMeters

T = TypeVar("T")
PERCENT: Final = 100.0
UNMETERED_APIS: Final = frozenset({ApiKey.WRITE_TXN_MARKERS})
"""What brokers ask of each other in Kafka is not limited."""


class HeldLimits:
    """What limits the client of a connection, as long as the table and its client id are these; with the meters that
    its requests used last."""

    __slots__ = (
        "client_id",
        "is_unlimited",
        "loop_time",
        "meters",
        "monotonic",
        "mutations",
        "received",
        "sent",
        "table",
        "usage",
    )

    def __init__(self, meters: "ClientMeters", table: QuotaTable, client_id: str | None, limits: ClientLimits) -> None:
        self.meters: Final = meters
        self.monotonic: Final = meters.monotonic
        self.table: Final = table
        self.client_id: Final = client_id
        self.is_unlimited: Final = limits is UNLIMITED
        self.received: Final = _held(meters.received, limits.producer_byte_rate)
        self.sent: Final = _held(meters.sent, limits.consumer_byte_rate)
        self.loop_time: Final = _held(meters.loop_time, limits.request_percentage)
        self.mutations: Final = limits.controller_mutation_rate
        self.usage: RequestUsage | None = None
        """Shared by requests that have nothing to remember: their time is not limited, and none of them had to wait."""

    def usage_of(self, api_key: int, connection: Connection, started_s: float) -> "RequestUsage | None":
        """Of a request that has begun, if it cannot be the `usage` that others have. None if nothing limits it."""
        if self.is_unlimited or api_key in UNMETERED_APIS:
            return None
        usage = RequestUsage(self, connection, started_s)
        if not usage.is_timed:
            self.usage = usage
        return usage


def _held(table: MeterTable[W], limit: QuotaLimit | None) -> HeldMeter[W] | None:
    return None if limit is None else HeldMeter(table, limit)


class RequestUsage:
    __slots__ = (
        "_connection",
        "_is_answered",
        "_limits",
        "_looked_ms",
        "_spent_s",
        "_step_s",
        "_time",
        "_until_ms",
        "is_timed",
    )

    def __init__(self, limits: HeldLimits, connection: Connection, started_s: float) -> None:
        """`started_s`: when the loop began with the request, by `time.perf_counter`."""
        # Made for each request whose time is limited, and else rarely.
        self._limits = limits
        self._connection = connection
        self._until_ms = 0
        limit = limits.loop_time
        if limit is None:
            self.is_timed = False
        else:
            self.is_timed = True
            self._time = limit
            self._step_s: float | None = started_s
            self._spent_s = 0.0
            """In its steps, and not counted yet."""
            self._is_answered = False

    # Bytes

    def received(self, size_bytes: int) -> bool:
        """A produce has come. False if its answer need not ask whether there is a throttle time."""
        limit = self._limits.received
        if limit is not None:
            now_ms = int(self._limits.monotonic() * 1_000)
            meter = limit.recall()
            if meter is None or not meter.collect(size_bytes, limit.value, now_ms):
                return self._wait(limit.meter(now_ms).charge(size_bytes, limit.value, now_ms)) or self.is_timed
        return self.is_timed

    def room_to_read(self) -> int | None:
        """How much may be sent now, besides a first batch that is larger: None if nothing limits it, and 0 if nothing
        may be sent, for which the client waits."""
        limit = self._limits.sent
        if limit is None:
            return None
        now_ms = self._looked_ms = int(self._limits.monotonic() * 1_000)
        held = limit.recall()
        if held is not None:
            room_bytes = held.safe_room_bytes(limit.value, now_ms)
            if room_bytes:
                return room_bytes
        meter = limit.meter(now_ms)
        room_bytes = meter.room_bytes(limit.value, now_ms)
        if room_bytes:
            return room_bytes
        wait_ms = meter.owed_ms(limit.value, now_ms)
        self._wait(wait_ms)
        return 0 if wait_ms else 1

    def room_bytes(self) -> int:
        """How much may be read now. Only where reads are limited: the client does not wait for it."""
        limit = self._limits.sent
        assert limit is not None, "reads are limited"
        now_ms = int(self._limits.monotonic() * 1_000)
        held = limit.recall()
        room_bytes = held.safe_room_bytes(limit.value, now_ms) if held is not None else 0
        return room_bytes or limit.meter(now_ms).room_bytes(limit.value, now_ms)

    def sent_later(self, size_bytes: int) -> bool:
        """An answer with records is made, some time after it was asked whether there is room. As `received` says."""
        if self._limits.sent is not None:
            self._looked_ms = int(self._limits.monotonic() * 1_000)
        return self.sent(size_bytes)

    def sent(self, size_bytes: int) -> bool:
        """As above, at once after it was asked."""
        limit = self._limits.sent
        if limit is not None:
            now_ms = self._looked_ms
            meter = limit.recall()
            if meter is None or not meter.collect(size_bytes, limit.value, now_ms):
                self._wait(limit.meter(now_ms).charge(size_bytes, limit.value, now_ms))
        return self.is_timed or self._until_ms > 0

    # Partitions that are created and deleted

    @property
    def mutation_limit(self) -> QuotaLimit | None:
        return self._limits.mutations

    def admit_mutations(self, partitions: int, limit: QuotaLimit) -> None:
        """Raises RequestError if the client has to wait before it may do anything of the kind."""
        meters = self._limits.meters
        now_ms = meters.now_ms()
        wait_ms = meters.mutations.meter(limit.metered, now_ms).admit(partitions, limit.value, now_ms)
        if wait_ms:
            self._wait(wait_ms)
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def charge_mutations(self, partitions: int, limit: QuotaLimit) -> None:
        """They are done in any case."""
        meters = self._limits.meters
        now_ms = meters.now_ms()
        self._wait(meters.mutations.meter(limit.metered, now_ms).charge(partitions, limit.value, now_ms))

    def take_back_mutations(self, partitions: int, limit: QuotaLimit) -> None:
        meters = self._limits.meters
        now_ms = meters.now_ms()
        meters.mutations.meter(limit.metered, now_ms).take_back(partitions, limit.value, now_ms)

    # Time of the event loop: of all requests if it is limited, `is_timed`

    def step_began(self) -> None:
        self._step_s = time.perf_counter()

    def step_ended(self, now_s: float) -> None:
        """The loop goes on with something else. What it spent since the answer counts as spent with it."""
        if self._step_s is not None:
            self._spent_s += now_s - self._step_s
            self._step_s = None
        if self._is_answered:
            now_ms = self._looked_ms
            (self._time.recall() or self._time.meter(now_ms)).count(self._spent_s * PERCENT, now_ms)
            self._spent_s = 0.0

    def timed(self, request: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """`request`, with the time of its steps counted."""
        return TimedSteps(request, self) if self.is_timed else request

    # The answer

    def answer(self, *, is_told: bool = True) -> int:
        """The answer is about to be made: returns its throttle time. Of what is answered with nothing the time of the
        loop is not limited, as in Kafka."""
        if self.is_timed and is_told:
            self._is_answered = True
            if self._step_s is not None:
                now_s = time.perf_counter()
                self._spent_s += now_s - self._step_s
                self._step_s = now_s
            percents = self._spent_s * PERCENT
            self._spent_s = 0.0
            now_ms = self._looked_ms = int(self._limits.monotonic() * 1_000)
            limit = self._time
            meter = limit.recall()
            if meter is None or not meter.collect(percents, limit.value, now_ms):
                self._wait(limit.meter(now_ms).charge(percents, limit.value, now_ms))
        return max(self._until_ms - self._limits.meters.now_ms(), 0) if self._until_ms else 0

    def _wait(self, wait_ms: int) -> bool:
        """Whether there is any."""
        if wait_ms:
            self._limits.usage = None
            self._until_ms = max(self._until_ms, self._limits.meters.now_ms() + wait_ms)
            self._connection.throttle(wait_ms / 1_000)
        return wait_ms > 0


class TimedSteps(Coroutine[Any, Any, T]):
    """A coroutine whose steps count as time of the event loop."""

    __slots__ = ("_request", "_usage")

    def __init__(self, request: Coroutine[Any, Any, T], usage: RequestUsage) -> None:
        self._request = request
        self._usage = usage

    def send(self, value: Any) -> Any:
        self._usage.step_began()
        try:
            return self._request.send(value)
        finally:
            self._usage.step_ended(time.perf_counter())

    def throw(self, *error: Any) -> Any:
        self._usage.step_began()
        try:
            return self._request.throw(*error)
        finally:
            self._usage.step_ended(time.perf_counter())

    def close(self) -> None:
        self._request.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._request.__await__()
