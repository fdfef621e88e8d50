"""The leases that a member of a queue holds, and the ack ids by which clients of HTTP name them. No I/O, no clock.

    ack id    base64url of: partition u32 | offset u64 | lease u64 | check 8 bytes

The check is a keyed hash with a secret of the member: an id that was made up, or belongs to another member, is unknown
here. A record that is leased again has a lease with another number, so that an ack id names one delivery.
"""

import base64
import binascii
import enum
import hashlib
import hmac
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_BODY = struct.Struct(">IQQ")
_CHECK_BYTES = 8
MAX_ACK_ID_CHARS = 64
MAX_ACKNOWLEDGED = 10_000
"""Leases that are remembered after they were acknowledged, for clients that repeat a request."""


class LeaseEnd(enum.Enum):
    """Why an ack id names no lease that is held. The values are the statuses of an ack's answer."""

    UNKNOWN = "unknown"
    """Made up, or of a member that has left."""
    EXPIRED = "expired"
    ACKNOWLEDGED = "settled"
    """It was accepted, released or rejected before."""


@dataclass(slots=True)
class Lease:
    partition: int
    offset: int
    number: int
    until_ms: int


class HeldLeases:
    def __init__(self, secret: bytes, limit: int) -> None:
        assert len(secret) >= 16, "a secret that can be guessed is none"
        self.limit = limit
        self._secret = secret
        self._held: dict[tuple[int, int], Lease] = {}
        self._acknowledged: OrderedDict[int, None] = OrderedDict()
        self._next = 1

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._held.values()))

    @property
    def room(self) -> int:
        return max(self.limit - len(self._held), 0)

    def lend(self, partition: int, offset: int, until_ms: int) -> Lease:
        """Keep a lease that the broker gave. It replaces the lease of an earlier delivery of the record."""
        lease = Lease(partition, offset, self._next, until_ms)
        self._next += 1
        self._held[partition, offset] = lease
        return lease

    def ack_id(self, partition: int, offset: int, number: int) -> str:
        body = _BODY.pack(partition, offset, number)
        return base64.urlsafe_b64encode(body + self._check(body)).rstrip(b"=").decode()

    def named(self, ack_id: str, now_ms: int) -> Lease | LeaseEnd:
        """The lease that an ack id names."""
        fields = self._read(ack_id)
        return LeaseEnd.UNKNOWN if fields is None else self.held(*fields, now_ms)

    def held(self, partition: int, offset: int, number: int, now_ms: int) -> Lease | LeaseEnd:
        if number in self._acknowledged:
            return LeaseEnd.ACKNOWLEDGED
        lease = self._held.get((partition, offset))
        if lease is None or lease.number != number or lease.until_ms <= now_ms:
            return LeaseEnd.EXPIRED
        return lease

    def acknowledge(self, lease: Lease) -> None:
        """The lease is not held any more. Called before the broker is asked, so that it is not acknowledged twice."""
        self._forget(lease)
        self._acknowledged[lease.number] = None
        if len(self._acknowledged) > MAX_ACKNOWLEDGED:
            self._acknowledged.popitem(last=False)

    def fail(self, lease: Lease) -> None:
        """The broker refused the acknowledgement: a client that repeats it gets `expired`."""
        self._acknowledged.pop(lease.number, None)
        self._forget(lease)

    def renew(self, lease: Lease, until_ms: int) -> None:
        if self._held.get((lease.partition, lease.offset)) is lease:
            lease.until_ms = until_ms

    def drop_partitions(self, partitions: Iterable[int]) -> None:
        """The broker has taken back the leases of these partitions."""
        gone = set(partitions)
        self._held = {key: lease for key, lease in self._held.items() if key[0] not in gone}

    def drop_expired(self, now_ms: int) -> None:
        self._held = {key: lease for key, lease in self._held.items() if lease.until_ms > now_ms}

    def _forget(self, lease: Lease) -> None:
        if self._held.get((lease.partition, lease.offset)) is lease:
            del self._held[lease.partition, lease.offset]

    def _read(self, ack_id: str) -> tuple[int, int, int] | None:
        if len(ack_id) > MAX_ACK_ID_CHARS:
            return None
        try:
            raw = base64.b64decode(ack_id.encode() + b"=" * (-len(ack_id) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        body, check = raw[: _BODY.size], raw[_BODY.size :]
        if len(body) != _BODY.size or not hmac.compare_digest(check, self._check(body)):
            return None
        partition, offset, number = _BODY.unpack(body)
        return partition, offset, number

    def _check(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, key=self._secret, digest_size=_CHECK_BYTES).digest()
