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
from headwater.security.quota_entities import ClientLimits, QuotaLimit
from headwater.transport.connection import Connection

if TYPE_CHECKING:
    from headwater.broker.quotas.client_meters import ClientMeters

T = TypeVar("T")
PERCENT: Final = 100.0


class RequestUsage:
    __slots__ = (
        "_connection",
        "_counted_s",
        "_is_answered",
        "_limits",
        "_looked_ms",
        "_meter",
        "_meters",
        "_spent_s",
        "_step_s",
        "_time_limit",
        "_until_ms",
    )

    def __init__(self, meters: "ClientMeters", limits: ClientLimits, connection: Connection, started_s: float) -> None:
        """`started_s`: when the loop began with the request, by `time.perf_counter`."""
        # Made for each request: what only some of them need is set where it is needed first.
        self._meters = meters
        self._limits = limits
        self._connection = connection
        self._until_ms = 0
        limit = self._time_limit = limits.request_percentage
        if limit is not None:
            self._step_s: float | None = started_s
            self._spent_s = 0.0
            self._counted_s = 0.0
            self._is_answered = False

    # Bytes

    def received(self, size_bytes: int) -> None:
        """A produce has come."""
        limit = self._limits.producer_byte_rate
        if limit is not None:
            now_ms = self._meters.now_ms()
            self._wait(self._meters.received.meter(limit.metered, now_ms).charge(size_bytes, limit.value, now_ms))

    def room_to_read(self) -> int | None:
        """How much may be sent now, besides a first batch that is larger: None if nothing limits it, and 0 if nothing
        may be sent, for which the client waits."""
        limit = self._limits.consumer_byte_rate
        if limit is None:
            return None
        meters = self._meters
        now_ms = self._looked_ms = meters.now_ms()
        meter = self._meter = meters.sent.meter(limit.metered, now_ms)
        room_bytes = meter.room_bytes(limit.value, now_ms)
        if room_bytes:
            return room_bytes
        wait_ms = meter.owed_ms(limit.value, now_ms)
        self._wait(wait_ms)
        return 0 if wait_ms else 1

    def room_bytes(self) -> int:
        """How much may be read now. Only where reads are limited: the client does not wait for it."""
        limit = self._limits.consumer_byte_rate
        assert limit is not None, "reads are limited"
        now_ms = self._meters.now_ms()
        return self._meters.sent.meter(limit.metered, now_ms).room_bytes(limit.value, now_ms)

    def sent_later(self, size_bytes: int) -> None:
        """An answer with records is made, some time after it was asked whether there is room."""
        limit = self._limits.consumer_byte_rate
        if limit is not None:
            now_ms = self._looked_ms = self._meters.now_ms()
            self._meter = self._meters.sent.meter(limit.metered, now_ms)
            self.sent(size_bytes)

    def sent(self, size_bytes: int) -> None:
        """As above, at once after it was asked."""
        limit = self._limits.consumer_byte_rate
        if limit is not None:
            self._wait(self._meter.charge(size_bytes, limit.value, self._looked_ms))

    # Partitions that are created and deleted

    @property
    def mutation_limit(self) -> QuotaLimit | None:
        return self._limits.controller_mutation_rate

    def admit_mutations(self, partitions: int, limit: QuotaLimit) -> None:
        """Raises RequestError if the client has to wait before it may do anything of the kind."""
        now_ms = self._meters.now_ms()
        wait_ms = self._meters.mutations.meter(limit.metered, now_ms).admit(partitions, limit.value, now_ms)
        if wait_ms:
            self._wait(wait_ms)
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def charge_mutations(self, partitions: int, limit: QuotaLimit) -> None:
        """They are done in any case."""
        now_ms = self._meters.now_ms()
        self._wait(self._meters.mutations.meter(limit.metered, now_ms).charge(partitions, limit.value, now_ms))

    def take_back_mutations(self, partitions: int, limit: QuotaLimit) -> None:
        now_ms = self._meters.now_ms()
        self._meters.mutations.meter(limit.metered, now_ms).take_back(partitions, limit.value, now_ms)

    # Time of the event loop

    def step_began(self) -> None:
        self._step_s = time.perf_counter()

    def step_ended(self) -> None:
        """The loop goes on with something else."""
        limit = self._time_limit
        if limit is None:
            return
        if self._step_s is not None:
            self._spent_s += time.perf_counter() - self._step_s
            self._step_s = None
        if self._is_answered:
            now_ms = self._meters.now_ms()
            self._meters.loop_time.meter(limit.metered, now_ms).count(self._uncounted_percents(), now_ms)

    def timed(self, request: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """`request`, with the time of its steps counted."""
        return request if self._time_limit is None else TimedSteps(request, self)

    # The answer

    def answer(self, *, is_told: bool = True) -> int:
        """The answer is about to be made: returns its throttle time. Of what is answered with nothing the time of the
        loop is not limited, as in Kafka."""
        limit = self._time_limit
        if limit is not None and is_told:
            self._is_answered = True
            if self._step_s is not None:
                now_s = time.perf_counter()
                self._spent_s += now_s - self._step_s
                self._step_s = now_s
            now_ms = self._meters.now_ms()
            meter = self._meters.loop_time.meter(limit.metered, now_ms)
            self._wait(meter.charge(self._uncounted_percents(), limit.value, now_ms))
        return max(self._until_ms - self._meters.now_ms(), 0) if self._until_ms else 0

    def _uncounted_percents(self) -> float:
        spent_s = self._spent_s - self._counted_s
        self._counted_s = self._spent_s
        return spent_s * PERCENT

    def _wait(self, wait_ms: int) -> None:
        if wait_ms:
            self._until_ms = max(self._until_ms, self._meters.now_ms() + wait_ms)
            self._connection.throttle(wait_ms / 1_000)


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
            self._usage.step_ended()

    def throw(self, *error: Any) -> Any:
        self._usage.step_began()
        try:
            return self._request.throw(*error)
        finally:
            self._usage.step_ended()

    def close(self) -> None:
        self._request.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._request.__await__()
