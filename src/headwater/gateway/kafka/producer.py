"""Records to the cluster: a producer that many requests share.

librdkafka batches the records of all requests and reports each one to a callback, which it calls when it is polled. It
is polled on the event loop, by a timer that runs while something is in flight: a dedicated thread would have to win the
interpreter back for every single report, and the loop would then have to be woken.

What is in flight is bounded in records and bytes; requests beyond that are refused at once (429).
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from headwater.gateway.config import GatewayConfig
from headwater.gateway.kafka.errors import ClientBusy, ClusterUnavailable
from headwater.gateway.kafka.settings import producer_settings

POLL_INTERVAL_S = 0.001
MAX_POLL_INTERVAL_S = 0.010
"""While the cluster is slow there is no use in looking every millisecond."""
CLOSE_TIMEOUT_S = 5.0
ANY_PARTITION = -1
NOW = 0

log = logging.getLogger(__name__)


class OutgoingRecord(msgspec.Struct, gc=False):
    value: bytes | None = None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] | None = None
    partition: int = ANY_PARTITION
    timestamp_ms: int = NOW

    @property
    def size_bytes(self) -> int:
        size = len(self.value or b"") + len(self.key or b"")
        for name, value in self.headers or ():
            size += len(name) + len(value)
        return size


class Delivered(msgspec.Struct, gc=False):
    """Where a record is now."""

    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, as the cluster has it."""


DeliveryOutcome: TypeAlias = Delivered | KafkaError
"""Of one record: where it is, or why it was not written."""


class _Pending:
    """The records of one request, until the last of them is reported."""

    __slots__ = ("client", "done", "missing", "outcomes", "size_bytes")

    def __init__(
        self, client: Producer, done: "asyncio.Future[list[DeliveryOutcome]]", count: int, size_bytes: int
    ) -> None:
        self.client = client
        self.done = done
        self.missing = count
        self.outcomes: list[Any] = [None] * count
        self.size_bytes = size_bytes


class RecordProducer:
    def __init__(self, config: GatewayConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._loop = loop
        self._client = Producer(producer_settings(config))
        self._timer: asyncio.TimerHandle | None = None
        self._interval_s = POLL_INTERVAL_S
        self._is_closed = False
        self.in_flight = 0
        self.in_flight_bytes = 0

    def send(
        self, topic: str, records: Sequence[OutgoingRecord], size_bytes: int
    ) -> "asyncio.Future[list[DeliveryOutcome]]":
        """Take records that belong together. The future has an outcome for each, in their order, and never fails.

        The topic should exist: one that does not is found out after a second. Raises ClientBusy, ClusterUnavailable."""
        if self._is_closed:
            raise ClusterUnavailable("The gateway is stopping.")
        count = len(records)
        # One request may always go through, however large; the bound is on how many wait together.
        if self.in_flight and (
            self.in_flight + count > self._config.max_in_flight
            or self.in_flight_bytes + size_bytes > self._config.max_buffered_bytes
        ):
            raise ClientBusy(f"{self.in_flight} records wait for the cluster. Try it again in a moment.")
        pending = _Pending(self._client, self._loop.create_future(), count, size_bytes)
        self.in_flight += count
        self.in_flight_bytes += size_bytes
        produce = self._client.produce
        reported = self._reported
        for index, record in enumerate(records):
            try:
                if record.headers is None:
                    produce(
                        topic, record.value, record.key, record.partition, partial(reported, pending, index),
                        timestamp=record.timestamp_ms,
                    )  # fmt: skip
                else:
                    produce(
                        topic, record.value, record.key, record.partition, partial(reported, pending, index),
                        timestamp=record.timestamp_ms, headers=record.headers,
                    )  # fmt: skip
            except KafkaException as error:
                self._report(pending, index, error.args[0])
            except BufferError:
                self._report(pending, index, KafkaError(KafkaError._QUEUE_FULL))
            except (TypeError, ValueError) as error:
                self._report(pending, index, KafkaError(KafkaError._INVALID_ARG, str(error)))
        if self._timer is None and self.in_flight:
            self._interval_s = POLL_INTERVAL_S
            self._timer = self._loop.call_later(POLL_INTERVAL_S, self._poll)
        return pending.done

    async def close(self) -> None:
        """Wait a moment for what is in flight, and tell the rest that it failed."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await asyncio.to_thread(self._client.flush, CLOSE_TIMEOUT_S)
        self._client.purge()
        self._client.poll(0.1)

    def _poll(self) -> None:
        self._timer = None
        if self._client.poll(0):
            self._interval_s = POLL_INTERVAL_S
        else:
            self._interval_s = min(self._interval_s * 1.2, MAX_POLL_INTERVAL_S)
        if self.in_flight:
            self._timer = self._loop.call_later(self._interval_s, self._poll)

    def _reported(self, pending: _Pending, index: int, error: Any, message: Any) -> None:
        if error is None:
            outcome: DeliveryOutcome = Delivered(message.partition(), message.offset(), message.timestamp()[1])
        else:
            outcome = error
        if self._is_closed:  # the last reports come in the thread that closes
            self._loop.call_soon_threadsafe(self._report, pending, index, outcome)
        else:
            self._report(pending, index, outcome)

    def _report(self, pending: _Pending, index: int, outcome: DeliveryOutcome) -> None:
        pending.outcomes[index] = outcome
        pending.missing -= 1
        self.in_flight -= 1
        if pending.client is self._client and isinstance(outcome, KafkaError) and outcome.fatal():
            self._replace()
        if not pending.missing:
            self.in_flight_bytes -= pending.size_bytes
            if not pending.done.done():
                pending.done.set_result(pending.outcomes)

    def _replace(self) -> None:
        """A producer that met a fatal error takes no more records; the next one begins afresh."""
        log.warning("producer_replaced in_flight=%d", self.in_flight)
        retired, self._client = self._client, Producer(producer_settings(self._config))
        self._loop.call_soon(self._drain, retired)  # not from here: this may be one of its callbacks

    def _drain(self, retired: Producer) -> None:
        """The records that it still held have failed; the requests that wait for them get the error."""
        retired.purge()
        retired.poll(0)
        if len(retired):
            self._loop.call_later(MAX_POLL_INTERVAL_S, self._drain, retired)
