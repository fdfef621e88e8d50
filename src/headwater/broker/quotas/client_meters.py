"""What the clients of this node have used of their quotas, and what limits each of them.

Usage is counted by every node for itself, as in Kafka, and shared by all connections of a user, client id or address.
Without a quota that could limit a client nothing is counted, and nothing is asked beyond `limits_clients`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from headwater.broker.quotas.client_quotas import ClientQuotas
from headwater.broker.quotas.request_usage import HeldLimits, RequestUsage
from headwater.model.clock import Clock
from headwater.security.quota_entities import Metered, QuotaKey
from headwater.security.quota_meters import ByteMeter, Meter, MeterTable, MutationMeter, RateMeter
from headwater.transport.connection import Connection

MAX_SHOWN: Final = 200
"""Meters of one kind of limit that a page shows, of those that were used last."""


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """What was used of one limit."""

    key: QuotaKey
    metered: Metered
    limit: float
    meter: Meter


class ClientMeters:
    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self.monotonic: Final = clock.monotonic
        self.received: Final = MeterTable(ByteMeter)
        self.sent: Final = MeterTable(ByteMeter)
        self.loop_time: Final = MeterTable(RateMeter)
        self.mutations: Final = MeterTable(MutationMeter)
        self.connections: Final = MeterTable(RateMeter)
        self.limits_clients = False
        """Whether any quota could limit a request."""
        self.table = quotas.table
        self._follow()
        quotas.watchers.append(self._follow)

    def now_ms(self) -> int:
        return int(self.monotonic() * 1_000)

    def usage_of(
        self, connection: Connection, api_key: int, client_id: str | None, started_s: float
    ) -> RequestUsage | None:
        """Of a request that has begun. None if nothing limits its client; nothing does before its login."""
        limits: HeldLimits | None = connection.limits
        if limits is None or limits.table is not self.table or limits.client_id != client_id:
            if not connection.is_trusted:
                return None
            known = self.table.limits(connection.principal.name, client_id)
            limits = connection.limits = HeldLimits(self, self.table, client_id, known)
        return limits.usage or limits.usage_of(api_key, connection, started_s)

    def connection_wait_s(self, address: str) -> float:
        """How long a connection from this address that was just made is held before it is refused; 0 if it may stay.
        One that is refused is not counted."""
        limit = self.table.connection_limit(address) if self.table.limits_addresses else None
        if limit is None:
            return 0.0
        now_ms = self.now_ms()
        meter = self.connections.meter(limit.metered, now_ms)
        wait_ms = meter.charge(1, limit.value, now_ms)
        if wait_ms:
            meter.take_back(1, now_ms)
        return wait_ms / 1_000

    def usages(self) -> Iterator[QuotaUsage]:
        """Of every kind of limit a bounded number, those that were used last first."""
        tables: dict[QuotaKey, Iterator[tuple[Metered, Meter]]] = {
            QuotaKey.PRODUCER_BYTE_RATE: iter(self.received),
            QuotaKey.CONSUMER_BYTE_RATE: iter(self.sent),
            QuotaKey.REQUEST_PERCENTAGE: iter(self.loop_time),
            QuotaKey.CONTROLLER_MUTATION_RATE: iter(self.mutations),
            QuotaKey.CONNECTION_CREATION_RATE: iter(self.connections),
        }
        for key, meters in tables.items():
            for metered, meter in islice(meters, MAX_SHOWN):
                limit = self.table.limit_of(key, metered)
                if limit is not None:
                    yield QuotaUsage(key, metered, limit.value, meter)

    def _follow(self) -> None:
        self.table = self._quotas.table
        self.limits_clients = self.table.limits_clients
