"""AddPartitionsToTxn (24): partitions become part of a transaction, before the first record is written there.

Versions 0 to 3 come from clients of the older protocol: one transaction, all or nothing. Versions 4 and 5 carry
several, and may ask to look only (KIP-890). From 2 on PRODUCER_FENCED is understood.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.transactions.effects import AddAnswer
from headwater.transactions.requests import AddPartitions
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=24, name="AddPartitionsToTxn", min_version=0, max_version=5)

FIRST_WITH_FENCED = 2
FIRST_BATCHED = 4


def handle(broker: "Broker", request: Message, context: RequestContext) -> Message | Coroutine[Any, Any, Message]:
    """At once if the coordinator's event is on disk at once."""
    if context.api_version >= FIRST_BATCHED:
        return _add_batched(broker, request, context)
    adding = _Adding(
        broker,
        context,
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        request.v3_and_below_topics,
        is_verify_only=False,
    )
    return _add_later(adding) if not adding.is_answered else Message(results_by_topic_v3_and_below=adding.results())


async def _add_later(adding: "_Adding") -> Message:
    await adding.answered()
    return Message(results_by_topic_v3_and_below=adding.results())


async def _add_batched(broker: "Broker", request: Message, context: RequestContext) -> Message:
    results: list[Message] = []
    for each in request.transactions:
        adding = _Adding(
            broker,
            context,
            each.transactional_id,
            each.producer_id,
            each.producer_epoch,
            each.topics,
            is_verify_only=each.verify_only,
        )
        await adding.answered()
        results.append(Message(transactional_id=each.transactional_id, topic_results=adding.results()))
    return Message(error_code=ErrorCode.NONE, results_by_transaction=results)


class _Adding:
    """One transaction of a request: asked of the coordinator at once, unless a partition is not there."""

    def __init__(
        self,
        broker: "Broker",
        context: RequestContext,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topics: list[Message],
        *,
        is_verify_only: bool,
    ) -> None:
        self._topics = topics
        self._api_version = context.api_version
        self._is_verify_only = is_verify_only
        self._found = {
            (topic.name, index): _find(broker, topic.name, index) for topic in topics for index in topic.partitions
        }
        self._partitions = frozenset(each for each in self._found.values() if isinstance(each, PartitionId))
        self._error: ErrorCode | None = None
        self._answer: asyncio.Future[AddAnswer] | None = None
        if any(isinstance(each, ErrorCode) for each in self._found.values()):
            return
        add = AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=self._partitions,
            is_verify_only=is_verify_only,
            version=1,
            connection=context.connection.serial if context.api_version < FIRST_BATCHED else 0,
        )
        try:
            self._answer = broker.transactions.add_partitions(add)
        except RequestError as error:
            self._error = error.code

    @property
    def is_answered(self) -> bool:
        return self._answer is None or self._answer.done()

    async def answered(self) -> None:
        """Returns when it is, in whatever way."""
        if self._answer is not None:
            with contextlib.suppress(RequestError):
                await self._answer

    def results(self) -> list[Message]:
        """The answer for each partition, in the shape that all versions share."""
        errors = self._errors()
        if self._is_verify_only:
            errors = _replaced(errors, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
        if self._api_version < FIRST_WITH_FENCED:
            errors = _replaced(errors, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        return [
            Message(
                name=topic.name,
                results_by_partition=[
                    Message(partition_index=index, partition_error_code=errors[topic.name, index])
                    for index in topic.partitions
                ],
            )
            for topic in self._topics
        ]

    def _errors(self) -> dict[tuple[str, int], ErrorCode]:
        if self._answer is None and self._error is None:
            # One that cannot be added spoils the others: the client mends its request and sends it again.
            return {
                name: each if isinstance(each, ErrorCode) else ErrorCode.OPERATION_NOT_ATTEMPTED
                for name, each in self._found.items()
            }
        refused = self._refused()
        return {
            name: refused.get(each, ErrorCode.NONE)
            for name, each in self._found.items()
            if isinstance(each, PartitionId)
        }

    def _refused(self) -> dict[PartitionId, ErrorCode]:
        if self._answer is None:
            return dict.fromkeys(self._partitions, self._error or ErrorCode.NONE)
        try:
            return self._answer.result().errors(self._partitions)
        except RequestError as error:
            return dict.fromkeys(self._partitions, error.code)


def _replaced(
    errors: dict[tuple[str, int], ErrorCode], old: ErrorCode, new: ErrorCode
) -> dict[tuple[str, int], ErrorCode]:
    return {name: new if code is old else code for name, code in errors.items()}


def _find(broker: "Broker", name: str, index: int) -> PartitionId | ErrorCode:
    topic = broker.catalog.find(name)
    if topic is None or not topic.has(index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.is_internal:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return topic.partition_id(index)
