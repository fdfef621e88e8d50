"""What was decided about records, on its way to the broker: gathered while a request is under way, sent together.

No I/O: `ShareLink` asks for the next request and tells what came of it.
"""

import asyncio
import enum
from collections.abc import Iterable

from headwater.gateway.subscriptions.members.leases import Lease
from headwater.gateway.subscriptions.members.share_session import AckBatch

MAX_AT_ONCE = 5_000


class Verdict(enum.IntEnum):
    """The numbers of the protocol (KIP-932, and KIP-1222 for the last)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    EXTEND = 4


class Settling:
    """One lease and what is to become of it. `done` has the error code, or the exception that ended the session."""

    __slots__ = ("done", "lease", "verdict")

    def __init__(self, lease: Lease, verdict: Verdict, done: "asyncio.Future[int] | None") -> None:
        self.lease = lease
        self.verdict = verdict
        self.done = done


def ack_batches(settlings: Iterable[Settling]) -> dict[int, list[AckBatch]]:
    """By partition, runs of neighbours with the same verdict as one batch. Of two about one offset the later counts."""
    by_partition: dict[int, dict[int, Verdict]] = {}
    for each in settlings:
        by_partition.setdefault(each.lease.partition, {})[each.lease.offset] = each.verdict
    found: dict[int, list[AckBatch]] = {}
    for partition, verdicts in by_partition.items():
        runs: list[AckBatch] = []
        for offset in sorted(verdicts):
            verdict = verdicts[offset]
            if runs and runs[-1][1] == offset - 1 and runs[-1][2] == (verdict,):
                runs[-1] = (runs[-1][0], offset, (verdict,))
            else:
                runs.append((offset, offset, (verdict,)))
        found[partition] = runs
    return found
