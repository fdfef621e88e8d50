"""Acknowledgements of one request, piggy-backed or alone: decided at once, answered when they are logged."""

import asyncio
from collections.abc import Iterable
from typing import TypeAlias

from headwater.broker.queues.share_coordinator import ShareCoordinator
from headwater.broker.queues.share_rights import ShareRights
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.queues.outcomes import AcknowledgedBatch, AcknowledgeType
from headwater.wire.typed import share_acknowledge, share_fetch

AcknowledgedTopic: TypeAlias = share_fetch.FetchTopic | share_acknowledge.AcknowledgeTopic
"""As each of the two APIs has it."""
AcknowledgementBatch: TypeAlias = share_fetch.AcknowledgementBatch | share_acknowledge.AcknowledgementBatch
Acknowledged: TypeAlias = "dict[PartitionId, ErrorCode | asyncio.Future[ErrorCode]]"


class Acknowledging:
    def __init__(
        self, shares: ShareCoordinator, group_id: str, member_id: str, rights: ShareRights | None, *, may_renew: bool
    ) -> None:
        self._shares = shares
        self._group_id = group_id
        self._member_id = member_id
        self._rights = rights
        self._may_renew = may_renew
        self._errors: dict[PartitionId, ErrorCode] = {}
        self._logged: dict[PartitionId, asyncio.Future[None]] = {}

    def decide(self, topics: Iterable[AcknowledgedTopic]) -> None:
        """Take over what the topics of a request acknowledge."""
        for topic in topics:
            for asked in topic.partitions:
                if asked.acknowledgement_batches:
                    self._decide(PartitionId(topic.topic_id, asked.partition_index), asked.acknowledgement_batches)

    async def errors(self) -> dict[PartitionId, ErrorCode]:
        """What became of each partition's acknowledgements, when everything is on disk."""
        for partition, logged in self._logged.items():
            try:
                await logged
            except RequestError as error:
                self._errors[partition] = error.code
        return self._errors

    def _decide(self, partition: PartitionId, batches: Iterable[AcknowledgementBatch]) -> None:
        if partition in self._errors:
            self._errors[partition] = ErrorCode.INVALID_REQUEST  # named twice
            return
        if self._rights is not None and (refusal := self._rights.error(partition.topic_id)):
            self._errors[partition] = refusal
            return
        queue = self._shares.find(self._group_id, partition)
        if queue is None:
            self._errors[partition] = self._shares.refusal(partition)
            return
        asked = [
            AcknowledgedBatch(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
            for batch in batches
        ]
        if not self._may_renew and any(AcknowledgeType.RENEW in batch.types for batch in asked):
            self._errors[partition] = ErrorCode.INVALID_REQUEST
            return
        result, self._logged[partition] = queue.acknowledge(self._member_id, asked)
        self._errors[partition] = result.error
