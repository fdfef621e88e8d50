"""Partitions, named by topic and index, become part of a transaction: all of them or none.

The coordinator is asked at once, unless one of the partitions cannot be part of a transaction. Then nothing is added:
the client mends its request and sends it again.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from headwater.broker.topics.catalog import Catalog
from headwater.broker.transactions.transaction_coordinator import TransactionCoordinator
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.transactions.effects import AddAnswer
from headwater.transactions.requests import AddPartitions

Name: TypeAlias = tuple[str, int]
"""Topic and index, as clients name a partition."""


class PartitionAddition:
    def __init__(
        self,
        catalog: Catalog,
        transactions: TransactionCoordinator,
        names: Iterable[Name],
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        is_verify_only: bool,
        connection: int,
        refused: Mapping[Name, ErrorCode] = MappingProxyType({}),
    ) -> None:
        """`refused` are those that the client may not write to: of them it is not asked whether they exist."""
        self._partitions: dict[Name, PartitionId] = {}
        self._invalid: dict[Name, ErrorCode] = dict(refused)
        self._is_verify_only = is_verify_only
        self._error: ErrorCode | None = None
        self._answer: asyncio.Future[AddAnswer] | None = None
        for name in names:
            if name in refused:
                continue
            try:
                self._partitions[name] = _find(catalog, *name)
            except RequestError as error:
                self._invalid[name] = error.code
        if self._invalid:
            return
        try:
            self._answer = transactions.add_partitions(
                AddPartitions(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    partitions=frozenset(self._partitions.values()),
                    is_verify_only=is_verify_only,
                    version=1,
                    connection=connection,
                )
            )
        except RequestError as error:
            self._error = error.code

    @property
    def is_answered(self) -> bool:
        """Whether `errors` may be called: often so from the beginning."""
        return self._answer is None or self._answer.done()

    async def answered(self) -> None:
        """Returns when the coordinator has answered or refused."""
        if self._answer is not None:
            with contextlib.suppress(RequestError):
                await self._answer

    def errors(self) -> dict[Name, ErrorCode]:
        """The outcome for each partition, NONE for those that are part of the transaction."""
        if self._invalid:
            return dict.fromkeys(self._partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | self._invalid
        refused = self._refused()
        errors = {name: refused.get(partition, ErrorCode.NONE) for name, partition in self._partitions.items()}
        if self._is_verify_only:  # a client that only asks whether partitions were added can abort and go on (KIP-890)
            return replaced(errors, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
        return errors

    def _refused(self) -> dict[PartitionId, ErrorCode]:
        partitions = self._partitions.values()
        if self._answer is None:
            return dict.fromkeys(partitions, self._error or ErrorCode.NONE)
        try:
            return self._answer.result().errors(partitions)
        except RequestError as error:
            return dict.fromkeys(partitions, error.code)


def replaced(errors: dict[Name, ErrorCode], old: ErrorCode, new: ErrorCode) -> dict[Name, ErrorCode]:
    return {name: new if code is old else code for name, code in errors.items()}


def _find(catalog: Catalog, name: str, index: int) -> PartitionId:
    topic = catalog.find(name)
    if topic is None or not topic.has(index):
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return topic.partition_id(index)
