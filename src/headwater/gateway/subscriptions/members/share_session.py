"""A member's session with one broker (KIP-932): records lent of the partitions that it leads, and their
acknowledgements.

Two connections: a fetch may wait, and what is acknowledged meanwhile must not wait behind it. The requests of a session
are numbered, and a broker takes them in order; on two connections one may overtake another, and is refused until the
other has come. It is then sent again, with its number.

Losing either connection loses the session. The broker then takes back what was lent in it, as it must: it is no longer
known which of them were acknowledged.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar
from uuid import UUID

from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.client.asyncio_connection import AsyncioConnection
from headwater.client.errors import ConnectionLost, check
from headwater.model.errors import ErrorCode
from headwater.model.ids import Offset
from headwater.wire.message import Records, Request
from headwater.wire.typed.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from headwater.wire.typed.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)

RECORD_LIMIT = 1
"""The acquire mode that lends no more records than were asked for (KIP-1206)."""
MAX_OVERTAKINGS = 200
OVERTAKEN_PAUSE_S = 0.001
_LAST_EPOCH = 2**31 - 1

AckBatch: TypeAlias = tuple[int, int, Sequence[int]]
"""First and last offset, and one type for all or one for each."""

ResponseT = TypeVar("ResponseT", ShareFetchResponse, ShareAcknowledgeResponse)


@dataclass(frozen=True, slots=True)
class Lent:
    """Of one partition."""

    partition: int
    records: Records
    ranges: Sequence[tuple[int, int, int]]
    """First offset, last offset, delivery count."""


@dataclass(frozen=True, slots=True)
class Fetched:
    lent: Sequence[Lent]
    lock_ms: int
    has_errors: bool
    """Some partition is not led there, or not for this member: look anew who leads what."""


class ShareSessionClient:
    def __init__(self, cluster: AsyncioCluster, node_id: int, topic_id: UUID, *, group: str, member_id: str) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._topic_id = topic_id
        self._group = group
        self._member_id = member_id
        self._fetching: AsyncioConnection | None = None
        self._acknowledging: AsyncioConnection | None = None
        self._epoch = 0
        self.partitions: frozenset[int] = frozenset()
        """Partitions of the session, as the broker knows it."""

    async def fetch(self, partitions: frozenset[int], max_records: int, max_bytes: int, wait_ms: int) -> Fetched:
        """Raises ClientError: the session has ended."""
        if self._fetching is None:
            self._fetching = await self._cluster.dial(self._node_id)
        added, forgotten = sorted(partitions - self.partitions), sorted(self.partitions - partitions)
        asked = [FetchPartition(partition_index=index) for index in added]
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._next_epoch(),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=RECORD_LIMIT,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=asked)] if asked else [],
            forgotten_topics_data=(
                [ForgottenTopic(topic_id=self._topic_id, partitions=forgotten)] if forgotten else []
            ),
        )
        response = await _in_order(self._fetching, request, wait_s=wait_ms / 1000)
        self.partitions = partitions
        lent, has_errors = [], False
        for topic in response.responses:
            for each in topic.partitions:
                has_errors = has_errors or bool(each.error_code)
                ranges = [(got.first_offset, got.last_offset, got.delivery_count) for got in each.acquired_records]
                if ranges:
                    lent.append(Lent(each.partition_index, each.records or b"", ranges))
        return Fetched(lent, response.acquisition_lock_timeout_ms, has_errors)

    async def acknowledge(self, batches: Mapping[int, Sequence[AckBatch]], *, renews: bool) -> dict[int, int]:
        """The error code of each partition. One call at a time. Raises ClientError: the session ended."""
        if self._epoch == 0:
            raise ConnectionLost("the session has not begun")
        if self._acknowledging is None:
            self._acknowledging = await self._cluster.dial(self._node_id)
        asked = [
            AcknowledgePartition(partition_index=index, acknowledgement_batches=[_batch(*each) for each in of_index])
            for index, of_index in batches.items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._next_epoch(),
            is_renew_ack=renews,
            topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=asked)] if asked else [],
        )
        response = await _in_order(self._acknowledging, request)
        codes = {each.partition_index: each.error_code for topic in response.responses for each in topic.partitions}
        return {partition: codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR) for partition in batches}

    def close(self) -> None:
        """What is held goes back to the queue at once."""
        for connection in (self._fetching, self._acknowledging):
            if connection is not None:
                connection.close()

    def _next_epoch(self) -> int:
        epoch = self._epoch
        self._epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return epoch


async def _in_order(connection: AsyncioConnection, request: Request[ResponseT], *, wait_s: float = 0.0) -> ResponseT:
    """The response, when the requests of the session before this one have come."""
    for _ in range(MAX_OVERTAKINGS):
        response = await connection.ask(request, wait_s=wait_s)
        if response.error_code != ErrorCode.INVALID_SHARE_SESSION_EPOCH:
            break
        await asyncio.sleep(OVERTAKEN_PAUSE_S)
    check(response.error_code, response.error_message, "The share session")
    return response


def _batch(first: int, last: int, types: Sequence[int]) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=Offset(first), last_offset=Offset(last), acknowledge_types=list(types))
