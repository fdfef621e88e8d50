"""A transactional producer that speaks bytes."""

from dataclasses import dataclass

from headwater.records.batch import TRANSACTIONAL
from tests.support.local_broker import INIT_PRODUCER_ID, PRODUCE, Client, batch_of
from tests.support.messages import nested

ADD_PARTITIONS, END = 24, 26
ID = "orders"


@dataclass
class Producer:
    client: Client
    id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def begin(self, timeout_ms: int = 60_000) -> None:
        answer = await self.client.ask(
            INIT_PRODUCER_ID, 4, transactional_id=ID, transaction_timeout_ms=timeout_ms, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        assert answer.error_code == 0
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def send(self, value: bytes, version: int, partition: int = 0) -> None:
        batch = batch_of(
            [value],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL,
        )
        self.sequence += 1
        data = nested(name="t", partition_data=[nested(index=partition, records=bytes(batch))])
        self.client.send(PRODUCE, version, transactional_id=ID, acks=-1, timeout_ms=5_000, topic_data=[data])

    async def sent(self, version: int) -> int:
        """The error code of the batch whose answer is next."""
        answer = await self.client.answer(PRODUCE, version)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    def end(self, version: int, is_commit: bool = True) -> None:
        self.client.send(
            END, version, transactional_id=ID, producer_id=self.id, producer_epoch=self.epoch, committed=is_commit
        )

    async def ended(self, version: int) -> int:
        answer = await self.client.answer(END, version)
        if version >= 5 and not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        code: int = answer.error_code
        return code

    def add(self, *partitions: int) -> None:
        self.client.send(
            ADD_PARTITIONS, 0, v3_and_below_transactional_id=ID, v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch, v3_and_below_topics=[nested(name="t", partitions=partitions)],
        )  # fmt: skip

    async def added(self) -> list[int]:
        answer = await self.client.answer(ADD_PARTITIONS, 0)
        (topic,) = answer.results_by_topic_v3_and_below
        return [each.partition_error_code for each in topic.results_by_partition]
