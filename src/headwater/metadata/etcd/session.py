"""A session as a lease of etcd, renewed by its owner four times in its time to live.

A renewal goes from member to member until etcd answers: time that passes without an answer suspends the session, and
only etcd's word ends it. A leader that was elected a moment ago may not know a lease yet, and then says that there is
none. So before a session counts as lost, etcd is asked through its log, where the answer is certain: by a put into the
lease.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final

from headwater.logs.events import log_event
from headwater.metadata.etcd import etcd_pb2 as pb
from headwater.metadata.etcd.client import EtcdClient
from headwater.metadata.etcd.member import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, TXN, NoAnswer, Refused
from headwater.metadata.store import Unavailable, Unknown

MIN_TTL_S: Final = 6
"""A shorter lease would end in an election."""
KEEP_ALIVES_PER_TTL: Final = 4
RENEWAL_S: Final = 0.75
"""For one member to answer: all of three are asked in the time between two renewals, and one more."""
RETRY_S: Final = 0.1


class EtcdSession:
    """See `Session`. Open with `open`."""

    def __init__(
        self,
        client: EtcdClient,
        lease: pb.LeaseGrantResponse,
        asked_at: float,
        probe_key: bytes,
        ended: "Callable[[EtcdSession], None]",
    ) -> None:
        self._client = client
        self.lease = lease.ID
        self._ttl_s = lease.TTL
        self._probe_key = probe_key
        self._ended = ended
        self._lost = asyncio.Event()
        # Counted from before etcd was asked, so that it never outlives what etcd grants.
        self._valid_until = asked_at + lease.TTL
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, client: EtcdClient, ttl_s: float, probes: bytes, ended: "Callable[[EtcdSession], None]"
    ) -> "EtcdSession":
        """`probes` is a prefix of keys that is used for nothing else. A repeated grant leaves a lease that ends
        unused."""
        asked_at = time.monotonic()
        lease = await client.ask(LEASE_GRANT, pb.LeaseGrantRequest(TTL=max(MIN_TTL_S, math.ceil(ttl_s))))
        session = cls(client, lease, asked_at, probes + f"{lease.ID:x}".encode(), ended)
        session._keeper = asyncio.create_task(session._keep_alive(), name=f"metadata-session-{session.id}")
        return session

    @property
    def id(self) -> str:
        return f"{self.lease:x}"

    @property
    def lost(self) -> asyncio.Event:
        return self._lost

    def valid_until(self) -> float:
        return self._valid_until

    async def close(self) -> None:
        keeper = self.abandon()
        if keeper is not None:
            await asyncio.gather(keeper, return_exceptions=True)
        try:
            await self._client.ask(LEASE_REVOKE, pb.LeaseRevokeRequest(ID=self.lease))
        except Refused as error:
            if not error.is_not_found:
                raise
        except Unavailable as error:
            raise Unknown(f"session {self.id} may not have ended yet: {error}") from error
        self._end()

    def abandon(self) -> asyncio.Task[None] | None:
        """Stop asking for more time; the task that did is returned, to be awaited."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
        return keeper

    async def _keep_alive(self) -> None:
        is_alive = True
        while is_alive:
            await asyncio.sleep(self._ttl_s / KEEP_ALIVES_PER_TTL)
            is_alive = await self._renew()
        log_event("metadata_session_lost", logging.WARNING, session=self.id)
        self._keeper = None
        self._end()

    async def _renew(self) -> bool:
        """Whether etcd still knows the session; returns with etcd's answer, not before."""
        failures = 0
        while True:
            asked_at = time.monotonic()
            try:
                ttl_s = await self._ask_for_time()
                if ttl_s > 0:
                    self._valid_until = asked_at + ttl_s
                    return True
                if not await self._is_known():
                    return False
            except (NoAnswer, Unavailable, Unknown) as error:
                failures += 1
                if failures == 1:
                    log_event("metadata_session_not_renewed", logging.WARNING, session=self.id, error=error)
            await asyncio.sleep(RETRY_S)

    async def _ask_for_time(self) -> int:
        member = self._client.member
        try:
            async with member.stream(LEASE_KEEP_ALIVE, RENEWAL_S) as stream:
                await stream.send(pb.LeaseKeepAliveRequest(ID=self.lease))
                return (await stream.receive()).TTL
        except (NoAnswer, Refused, asyncio.CancelledError):
            self._client.rotate(member)
            raise

    async def _is_known(self) -> bool:
        put = pb.RequestOp(request_put=pb.PutRequest(key=self._probe_key, lease=self.lease))
        try:
            await self._client.tell_once(TXN, pb.TxnRequest(success=[put]))
        except Refused as error:
            if error.is_not_found:
                return False
            raise
        return True

    def _end(self) -> None:
        self._lost.set()
        self._ended(self)
