"""Acknowledgements on their way to the broker: gathered while a request is under way, sent together. No I/O."""

import asyncio
import enum
from collections.abc import Iterable

from headwater.gateway.subscriptions.members.leases import Lease
from headwater.gateway.subscriptions.members.share_session import AckBatch

MAX_AT_ONCE = 5_000


class AckType(enum.IntEnum):
    """The acknowledge types of the protocol (KIP-932, and KIP-1222 for the last)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    EXTEND = 4


class PendingAck:
    """The acknowledgement of one lease. `done` gets the error code, or the exception that ended the session."""

    __slots__ = ("ack_type", "done", "lease")

    def __init__(self, lease: Lease, ack_type: AckType, done: "asyncio.Future[int] | None") -> None:
        self.lease = lease
        self.ack_type = ack_type
        self.done = done


def ack_batches(acks: Iterable[PendingAck]) -> dict[int, list[AckBatch]]:
    """By partition, consecutive offsets of one type as one batch. Of two about one offset the later counts."""
    by_partition: dict[int, dict[int, AckType]] = {}
    for ack in acks:
        by_partition.setdefault(ack.lease.partition, {})[ack.lease.offset] = ack.ack_type
    batches: dict[int, list[AckBatch]] = {}
    for partition, types in by_partition.items():
        runs: list[AckBatch] = []
        for offset in sorted(types):
            ack_type = types[offset]
            if runs and runs[-1][1] == offset - 1 and runs[-1][2] == (ack_type,):
                runs[-1] = (runs[-1][0], offset, (ack_type,))
            else:
                runs.append((offset, offset, (ack_type,)))
        batches[partition] = runs
    return batches
