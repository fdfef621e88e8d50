"""A watch on etcd that outlives members, streams and compactions.

- A member is asked for its revision by a linearizable read, which makes it catch up, and then for what comes after: no
  watch is ever opened on a revision that its member has not reached.
- After a break the watch goes on where it was. When etcd no longer keeps what happened since, or is another cluster, or
  an older one that was restored, the hint is RESYNC.
- The revision moves by the events seen, never by a header: a header may be ahead of events that are still to come.
- A member that is silent for PROBE_S is asked for a read: one that cannot serve it no longer hears of changes either.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final

from headwater.logs.events import log_event
from headwater.metadata.etcd import etcd_pb2 as pb
from headwater.metadata.etcd.client import MEMBER_ASK_S, EtcdClient
from headwater.metadata.etcd.member import RANGE, WATCH, AnswerTooLarge, EtcdMember, EtcdStream, NoAnswer, Refused
from headwater.metadata.store import RESYNC, Resync

PROBE_S: Final = 5.0
FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0


class _Gap(Exception):
    """What happened since is not to be had."""


@dataclass(slots=True)
class EtcdWatch:
    """What changes from `first` on, before `end`. `name` gives the key that bytes stand for, None for a stranger's."""

    client: EtcdClient
    first: bytes
    end: bytes
    name: Callable[[bytes], str | None]
    _cluster_id: int = 0
    _revision: int = 0
    """The last one whose events were all seen."""
    _has_gap: bool = True
    _failures: int = 0

    async def hints(self) -> AsyncGenerator[set[str] | Resync, None]:
        """Ends when the client is closed."""
        while not self.client.is_closed:
            member = self.client.member
            try:
                await self._find_start(member)
                async with member.stream(WATCH) as stream:
                    await self._begin(stream)
                    if self._has_gap:
                        self._has_gap = False
                        yield RESYNC
                    while True:
                        hint = await self._next_hint(member, stream)
                        if hint:
                            yield hint
            except _Gap:
                self._has_gap = True
            except AnswerTooLarge:
                # Not of our making: a value beyond all limits. It cannot be seen, and is not waited for.
                self._has_gap = True
            except (NoAnswer, Refused) as error:
                self.client.rotate(member)
                if not self.client.is_closed:
                    await self._pause(error)

    async def _find_start(self, member: EtcdMember) -> None:
        header = await self._read_header(member)
        is_other = header.cluster_id != self._cluster_id or header.revision < self._revision
        if is_other or self._has_gap:
            self._has_gap = True
            self._cluster_id, self._revision = header.cluster_id, header.revision

    async def _read_header(self, member: EtcdMember) -> pb.ResponseHeader:
        return (await member.ask(RANGE, pb.RangeRequest(key=self.first, keys_only=True), MEMBER_ASK_S)).header

    async def _begin(self, stream: EtcdStream[pb.WatchRequest, pb.WatchResponse]) -> None:
        create = pb.WatchCreateRequest(
            key=self.first, range_end=self.end, start_revision=self._revision + 1, fragment=True
        )
        try:
            async with asyncio.timeout(MEMBER_ASK_S):
                await stream.send(pb.WatchRequest(create_request=create))
                answer = await stream.receive()
        except TimeoutError:
            raise NoAnswer("the watch was not opened in time", is_sent=True) from None
        self._check(answer)
        if self._failures:
            log_event("metadata_watch_resumed", failures=self._failures)
        self._failures = 0

    async def _next_hint(self, member: EtcdMember, stream: EtcdStream[pb.WatchRequest, pb.WatchResponse]) -> set[str]:
        # A task, because gRPC ends the whole stream when one read of it is cancelled.
        reading = asyncio.create_task(stream.receive(), name="metadata-watch")
        try:
            while not (await asyncio.wait({reading}, timeout=PROBE_S))[0]:
                await self._read_header(member)
            answer = reading.result()
        finally:
            if not reading.done():
                reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        self._check(answer)
        # The parts of one answer end with one that is no fragment; only then all of its revisions were seen.
        if answer.events and not answer.fragment:
            self._revision = max(self._revision, answer.events[-1].kv.mod_revision)
        return {key for event in answer.events if (key := self.name(event.kv.key)) is not None}

    def _check(self, answer: pb.WatchResponse) -> None:
        if answer.compact_revision:
            raise _Gap
        if answer.canceled:
            raise NoAnswer(f"the watch was ended: {answer.cancel_reason or 'no reason given'}", is_sent=True)

    async def _pause(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            log_event("metadata_watch_interrupted", logging.WARNING, error=error)
        await asyncio.sleep(min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._failures, 10)))
