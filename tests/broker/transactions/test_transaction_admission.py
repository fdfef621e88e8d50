"""Batches that ask a coordinator on another node, and markers that are faster than its answer."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.broker.nodes.node_messages import Marker
from headwater.broker.server import Broker
from headwater.broker.transactions.transaction_coordinator import STATE_TOPIC
from headwater.broker.transactions.transaction_gate import Entrant
from headwater.model.errors import ErrorCode
from headwater.model.ids import PartitionId
from headwater.transactions.requests import AddPartitions
from tests.broker.two_nodes import name_kept_by, new_partition, two_nodes
from tests.support.eventually import until


class Producer:
    """One whose partition is led by the first node, and that the second one coordinates."""

    def __init__(self, leader: Broker, coordinator: Broker, place: PartitionId, name: str) -> None:
        self.leader = leader
        self.coordinator = coordinator
        self.place = place
        self.name = name
        self.id = self.epoch = -1

    async def init(self) -> None:
        answer = await self.coordinator.transactions.init_producer(self.name, 60_000, -1, -1)
        assert answer.error is ErrorCode.NONE
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    async def add_partition(self) -> None:
        request = AddPartitions(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            partitions=frozenset({self.place}),
        )
        assert (await self.coordinator.transactions.add_partitions(request)).error is ErrorCode.NONE

    def entrant(self, version: int) -> Entrant:
        partition = self.leader.catalog.topic_by_id(self.place.topic_id).partition(0)
        return Entrant(self.name, self.id, self.epoch, (partition,), version, understands_abortable=True)

    def marked(self, epoch: int, attempt: int = 1_000) -> None:
        """A marker comes, of a transaction that ended in this epoch."""
        self.leader.transactions.markers.receive(Marker(self.place, self.id, epoch, False, 0, attempt))


def play(tmp_path: Path, scenario: Callable[[Producer], Awaitable[None]]) -> None:
    async def run() -> None:
        async with two_nodes(tmp_path) as (leader, coordinator):
            place = await new_partition(leader, coordinator)
            await coordinator.transactions.ensure_ready()
            name = await name_kept_by(coordinator, STATE_TOPIC)
            await until(lambda: leader.catalog.find(STATE_TOPIC) is not None)
            await until(lambda: all(log.is_loaded for log in coordinator.transactions._topic))
            producer = Producer(leader, coordinator, place, name)
            await producer.init()
            async with asyncio.timeout(60):
                await scenario(producer)

    asyncio.run(run())


async def refusal(producer: Producer, version: int, meanwhile: Callable[[], None] = lambda: None) -> ErrorCode:
    """What the gate says to a batch, if something happens while the coordinator is asked."""
    question = producer.leader.transaction_gate.ask(producer.entrant(version))
    try:
        assert not question.is_answered, "the coordinator is another node"
        meanwhile()
        await question.answered()
        refused = question.refused()
    finally:
        question.close()
    return refused[producer.place].code if refused else ErrorCode.NONE


@pytest.mark.parametrize("version", [1, 2])
def test_a_coordinator_on_another_node_lets_a_batch_in(tmp_path: Path, version: int) -> None:
    async def scenario(producer: Producer) -> None:
        if version == 1:
            assert await refusal(producer, version) is ErrorCode.TRANSACTION_ABORTABLE, "it was not added"
            await producer.add_partition()
        assert await refusal(producer, version) is ErrorCode.NONE
        described = producer.coordinator.transactions.described(producer.name)
        assert described.partitions == {producer.place}

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "later", "told"),
    [
        (1, 0, ErrorCode.TRANSACTION_ABORTABLE),
        (1, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_marker_that_is_faster_refuses_the_batch(tmp_path: Path, version: int, later: int, told: ErrorCode) -> None:
    async def scenario(producer: Producer) -> None:
        if version == 1:
            await producer.add_partition()
        assert await refusal(producer, version, lambda: producer.marked(producer.epoch + later)) is told

    play(tmp_path, scenario)


def test_the_marker_of_the_transaction_before_refuses_nothing_in_the_newer_protocol(tmp_path: Path) -> None:
    """There a transaction ends in the epoch in which the next one begins."""

    async def scenario(producer: Producer) -> None:
        assert await refusal(producer, 2, lambda: producer.marked(producer.epoch)) is ErrorCode.NONE

    play(tmp_path, scenario)


def test_a_marker_that_comes_too_late_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    async def scenario(producer: Producer) -> None:
        producer.marked(producer.epoch, attempt=7)
        await producer.add_partition()
        with pytest.raises(Exception, match="later marker"):
            producer.marked(producer.epoch, attempt=6)
        assert await refusal(producer, 1) is ErrorCode.NONE

    play(tmp_path, scenario)


def test_a_coordinator_that_cannot_be_reached_has_the_client_come_back(tmp_path: Path) -> None:
    async def scenario(producer: Producer) -> None:
        await producer.add_partition()
        producer.leader.nodes.close()
        assert producer.coordinator.member is not None
        await producer.coordinator.member.membership.server.close()
        assert await refusal(producer, 1) is ErrorCode.NOT_ENOUGH_REPLICAS

    play(tmp_path, scenario)


def test_a_transactional_id_that_nobody_has_is_refused_from_afar(tmp_path: Path) -> None:
    async def scenario(producer: Producer) -> None:
        producer.name = await name_kept_by(producer.coordinator, STATE_TOPIC)
        assert await refusal(producer, 2) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    play(tmp_path, scenario)
