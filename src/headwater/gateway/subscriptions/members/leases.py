"""What a member of a queue holds: leases, and the ids by which clients of HTTP name them. No I/O, no clock.

    ack id    base64url of: partition u32 | offset u64 | lease u64 | check 8 bytes

The check is a keyed hash with a secret of the member's own: an id that was made up, or belongs to another member, is
unknown here. A lease that ran out and was given again has another number, so that an id speaks of one delivery.
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
MAX_SETTLED = 10_000
"""Leases that are remembered after they were settled, for clients that repeat themselves."""


class Fate(enum.Enum):
    """Of an ack id that names no lease that is held."""

    UNKNOWN = "unknown"
    """Made up, or of a member that is gone."""
    EXPIRED = "expired"
    SETTLED = "settled"
    """It was accepted, released or rejected before."""


@dataclass(slots=True)
class Lease:
    partition: int
    offset: int
    number: int
    until_ms: int


class Leases:
    def __init__(self, secret: bytes, limit: int) -> None:
        assert len(secret) >= 16, "a secret that can be guessed is none"
        self.limit = limit
        self._secret = secret
        self._held: dict[tuple[int, int], Lease] = {}
        self._settled: OrderedDict[int, None] = OrderedDict()
        self._next = 1

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._held.values()))

    @property
    def room(self) -> int:
        return max(self.limit - len(self._held), 0)

    def lend(self, partition: int, offset: int, until_ms: int) -> Lease:
        """A lease that the broker gave. It ends one that was forgotten to be settled."""
        lease = Lease(partition, offset, self._next, until_ms)
        self._next += 1
        self._held[partition, offset] = lease
        return lease

    def ack_id(self, partition: int, offset: int, number: int) -> str:
        body = _BODY.pack(partition, offset, number)
        return base64.urlsafe_b64encode(body + self._check(body)).rstrip(b"=").decode()

    def named(self, ack_id: str, now_ms: int) -> Lease | Fate:
        read = self._read(ack_id)
        return Fate.UNKNOWN if read is None else self.held(*read, now_ms)

    def held(self, partition: int, offset: int, number: int, now_ms: int) -> Lease | Fate:
        if number in self._settled:
            return Fate.SETTLED
        lease = self._held.get((partition, offset))
        if lease is None or lease.number != number or lease.until_ms <= now_ms:
            return Fate.EXPIRED
        return lease

    def settle(self, lease: Lease) -> None:
        """It is held no more: told before the broker is, so that nobody settles it twice."""
        self._forget(lease)
        self._settled[lease.number] = None
        if len(self._settled) > MAX_SETTLED:
            self._settled.popitem(last=False)

    def fail(self, lease: Lease) -> None:
        """The broker did not take its settling: whoever repeats it learns that the lease is over."""
        self._settled.pop(lease.number, None)
        self._forget(lease)

    def renew(self, lease: Lease, until_ms: int) -> None:
        if self._held.get((lease.partition, lease.offset)) is lease:
            lease.until_ms = until_ms

    def drop_partitions(self, partitions: Iterable[int]) -> None:
        """The broker has taken back what was lent of them."""
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
