"""Asks the coordinator of a transaction, here or on another node, whether partitions are part of it, or makes them so.

A coordinator that is here is asked and the batch appended without a pause in between, so nothing can come between. The
word of one that is far is old when it arrives: the transaction may have ended since, and its marker may have been
faster. What is written behind the marker would stay open for ever (KIP-890). So the batch is announced first, and a
marker that comes meanwhile refuses it:

    version 2   the marker has a later epoch than the batch, which is refused for that alone, also after a restart
    version 1   the marker has the batch's own epoch; only the announcement tells that it was faster. It cannot tell
                a batch of a transaction that is over, and that comes late, while the next one is open: that one has
                the right epoch, and its sequence number decides.

A batch that is written after the decision and before the marker is part of what the marker ends. A client that commits
has waited for its batches, and for one that aborts it makes no difference.
"""

import asyncio
from dataclasses import dataclass

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.nodes import node_messages
from headwater.broker.nodes.node_client import NOT_REACHED, ConnectionClass, NodeClient, NodeRequest
from headwater.broker.nodes.node_messages import NodeCallKind
from headwater.broker.nodes.routed import Route
from headwater.broker.transactions.transaction_coordinator import TransactionCoordinator
from headwater.groups.transaction_ends import TransactionEnds
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.transactions.effects import AddAnswer
from headwater.transactions.requests import AddPartitions

_MOVES = NOT_REACHED | {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


@dataclass(frozen=True, slots=True)
class Asked:
    request: AddPartitions
    answer: "asyncio.Future[AddAnswer]"
    is_far: bool


class TransactionAdmission:
    def __init__(self, transactions: TransactionCoordinator, groups: GroupCoordinator, nodes: NodeClient) -> None:
        self._transactions = transactions
        self._groups = groups
        self._nodes = nodes

    @property
    def ends(self) -> TransactionEnds:
        """Where to announce batches."""
        return self._transactions.markers.ends

    def ask(self, request: AddPartitions) -> Asked:
        """Often answered at once. Raises RequestError."""
        transactional_id = request.transactional_id
        route = Route(
            self._nodes,
            lambda: self._transactions.keeps(transactional_id),
            lambda: self._transactions.state_partition(transactional_id),
        )
        if route.is_here:
            return Asked(request, self._transactions.add_partitions(request), is_far=False)
        answer = asyncio.get_running_loop().create_task(_send(route, request))
        answer.add_done_callback(_seen)
        return Asked(request, answer, is_far=True)

    def refusals(self, asked: Asked) -> dict[PartitionId, ErrorCode]:
        """Of the partitions asked for, those that may not be written to; the others may, before the next await, if no
        marker was faster. Raises RequestError."""
        answer = asked.answer.result()
        if asked.is_far:
            return answer.errors(asked.request.partitions)
        return self._transactions.refusals(asked.request, answer)

    async def admit_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str, version: int
    ) -> None:
        """A group's offsets become part of the transaction; in version 1 they must be. Raises RequestError."""
        partition = await self._groups.offsets_partition(group_id)
        is_verify_only = version < 2
        request = AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=frozenset({partition}),
            is_verify_only=is_verify_only,
            version=version,
        )
        asked = self.ask(request)
        answer = await asked.answer
        refused = self.refusals(asked) if is_verify_only else answer.errors(request.partitions)
        for code in refused.values():
            raise RequestError(code)


async def _send(route: Route, request: AddPartitions) -> AddAnswer:
    try:
        return await route.send(
            NodeRequest(
                NodeCallKind.ADMIT,
                ConnectionClass.ADMISSIONS,
                lambda: node_messages.admission(request),
                node_messages.read_admitted,
            )
        )
    except RequestError as error:
        if error.code in _MOVES:
            # The client speaks with another coordinator, or with none: it can only ask again.
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
        raise


def _seen(answer: "asyncio.Future[AddAnswer]") -> None:
    """The request may be cancelled: then the exception is not retrieved anywhere else."""
    if not answer.cancelled():
        answer.exception()
