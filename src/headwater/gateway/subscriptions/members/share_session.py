"""A member's session with one broker (KIP-932): records lent of the partitions that it leads, and their
acknowledgements.

Two connections: a fetch may wait, and what is acknowledged meanwhile must not wait behind it. The requests of a session
are numbered, and a broker takes them in order; on two connections one may overtake another, and is refused until the
other has come. It is then sent again, with its number.

Losing either connection loses the session. The broker then takes back what was lent in it, as it must: it is no longer
known which of them were acknowledged.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from headwater.gateway.kafka.brokers import Brokers
from headwater.gateway.kafka.connection import KafkaConnection
from headwater.gateway.kafka.errors import BrokerGone, BrokerRefused
from headwater.model.errors import ErrorCode
from headwater.wire.message import Message

SHARE_FETCH, SHARE_ACKNOWLEDGE, VERSION = 78, 79, 2
RECORD_LIMIT = 1
"""The acquire mode that lends no more records than were asked for (KIP-1206)."""
MAX_OVERTAKINGS = 200
OVERTAKEN_PAUSE_S = 0.001
_LAST_EPOCH = 2**31 - 1

AckBatch: TypeAlias = tuple[int, int, Sequence[int]]
"""First and last offset, and one type for all or one for each."""


@dataclass(frozen=True, slots=True)
class Lent:
    """Of one partition."""

    partition: int
    records: bytes
    ranges: Sequence[tuple[int, int, int]]
    """First offset, last offset, delivery count."""


@dataclass(frozen=True, slots=True)
class Fetched:
    lent: Sequence[Lent]
    lock_ms: int
    has_errors: bool
    """Some partition is not led there, or not for this member: look anew who leads what."""


class ShareSessionClient:
    def __init__(self, brokers: Brokers, node_id: int, group: str, member_id: str, topic_id: UUID) -> None:
        self._brokers = brokers
        self._node_id = node_id
        self._names = {"group_id": group, "member_id": member_id}
        self._topic_id = topic_id
        self._fetching: KafkaConnection | None = None
        self._acknowledging: KafkaConnection | None = None
        self._epoch = 0
        self.partitions: frozenset[int] = frozenset()
        """Partitions of the session, as the broker knows it."""

    async def fetch(self, partitions: frozenset[int], max_records: int, max_bytes: int, wait_ms: int) -> Fetched:
        """Raises BrokerGone, BrokerRefused: the session has ended."""
        if self._fetching is None:
            self._fetching = await self._brokers.dial(self._node_id)
        added, forgotten = partitions - self.partitions, self.partitions - partitions
        answer = await self._numbered(
            self._fetching,
            SHARE_FETCH,
            wait_s=wait_ms / 1000,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=RECORD_LIMIT,
            is_renew_ack=False,
            topics=self._topics((index, ()) for index in sorted(added)),
            forgotten_topics_data=(
                [Message(topic_id=self._topic_id, partitions=sorted(forgotten))] if forgotten else []
            ),
        )
        self.partitions = partitions
        lent, has_errors = [], False
        for topic in answer.responses or ():
            for each in topic.partitions or ():
                has_errors = has_errors or bool(each.error_code)
                ranges = [(got.first_offset, got.last_offset, got.delivery_count) for got in each.acquired_records]
                if ranges:
                    lent.append(Lent(each.partition_index, each.records or b"", ranges))
        return Fetched(lent, answer.acquisition_lock_timeout_ms, has_errors)

    async def acknowledge(self, batches: Mapping[int, Sequence[AckBatch]], *, renews: bool) -> dict[int, int]:
        """The error code of each partition. One call at a time. Raises BrokerGone, BrokerRefused: the session ended."""
        if self._epoch == 0:
            raise BrokerGone("the session has not begun")
        if self._acknowledging is None:
            self._acknowledging = await self._brokers.dial(self._node_id)
        answer = await self._numbered(
            self._acknowledging, SHARE_ACKNOWLEDGE, is_renew_ack=renews, topics=self._topics(batches.items())
        )
        codes = {each.partition_index: each.error_code for topic in answer.responses for each in topic.partitions}
        return {partition: codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR) for partition in batches}

    def close(self) -> None:
        """What is held goes back to the queue at once."""
        for connection in (self._fetching, self._acknowledging):
            if connection is not None:
                connection.close()

    async def _numbered(
        self, connection: KafkaConnection, api_key: int, *, wait_s: float = 0.0, **fields: Any
    ) -> Message:
        epoch = self._epoch
        self._epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        for _ in range(MAX_OVERTAKINGS):
            answer = await connection.ask(
                api_key, VERSION, wait_s=wait_s, share_session_epoch=epoch, **self._names, **fields
            )
            if answer.error_code != ErrorCode.INVALID_SHARE_SESSION_EPOCH:
                break
            await asyncio.sleep(OVERTAKEN_PAUSE_S)
        if answer.error_code:
            raise BrokerRefused(answer.error_code, answer.error_message, "The share session")
        return answer

    def _topics(self, partitions: Iterable[tuple[int, Sequence[AckBatch]]]) -> list[Message]:
        asked = [
            Message(
                partition_index=index,
                acknowledgement_batches=[
                    Message(first_offset=first, last_offset=last, acknowledge_types=list(types))
                    for first, last, types in batches
                ],
            )
            for index, batches in partitions
        ]
        return [Message(topic_id=self._topic_id, partitions=asked)] if asked else []
