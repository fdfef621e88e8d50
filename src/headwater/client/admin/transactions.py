"""Transactions. Two parts of the cluster know one: its coordinator, by its transactional id, and each partition that it
touched, by its producer's id."""

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.client.cluster_view import TRANSACTION, Coordinated
from headwater.client.errors import check
from headwater.client.question import Question, question
from headwater.model.ids import PartitionName
from headwater.wire.typed.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from headwater.wire.typed.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from headwater.wire.typed.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headwater.wire.typed.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NO_TRANSACTION = -1


class UnknownState(Exception):
    """A filter names a state that transactions do not have; the argument is the name."""


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[PartitionName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_written_ms: int


def list_transactions(states: Sequence[str], longer_than_ms: int) -> Question[list[ListedTransaction]]:
    """Those that one broker coordinates. Its reader raises UnknownState as well."""

    def read(response: ListTransactionsResponse) -> list[ListedTransaction]:
        check(response.error_code, None, "The list of transactions")
        if response.unknown_state_filters:
            raise UnknownState(response.unknown_state_filters[0])
        return [
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]

    return question(ListTransactionsRequest(state_filters=states, duration_filter=longer_than_ms), read)


def describe_transaction(transactional_id: str) -> Question[DescribedTransaction]:
    def read(response: DescribeTransactionsResponse) -> DescribedTransaction:
        (described,) = response.transaction_states
        check(described.error_code, None, f"Transactional id {transactional_id}")
        return DescribedTransaction(
            transactional_id=transactional_id,
            producer_id=described.producer_id,
            producer_epoch=described.producer_epoch,
            state=described.transaction_state,
            timeout_ms=described.transaction_timeout_ms,
            started_ms=described.transaction_start_time_ms if described.transaction_start_time_ms >= 0 else None,
            partitions=tuple((topic.topic, index) for topic in described.topics for index in topic.partitions),
        )

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    return question(request, read, Coordinated(TRANSACTION, transactional_id))


def open_transactions(topic: str, partition: int) -> Question[list[OpenTransaction]]:
    """For the leader of the partition."""

    def read(response: DescribeProducersResponse) -> list[OpenTransaction]:
        ((described,),) = (each.partitions for each in response.topics)
        check(described.error_code, described.error_message, f"Partition {partition} of {topic}")
        return [
            OpenTransaction(
                topic=topic,
                partition=partition,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=producer.coordinator_epoch,
                start_offset=producer.current_txn_start_offset,
                last_written_ms=producer.last_timestamp,
            )
            for producer in described.active_producers
            if producer.current_txn_start_offset != NO_TRANSACTION
        ]

    return question(DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])]), read)


def abort_marker(transaction: OpenTransaction) -> Question[None]:
    """For the leader of the partition, which writes an abort marker without asking the coordinator."""

    def read(response: WriteTxnMarkersResponse) -> None:
        for marker in response.markers:
            for topic in marker.topics:
                for each in topic.partitions:
                    check(each.error_code, None, f"Partition {each.partition_index} of {topic.name}")

    marker = WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=transaction.topic, partition_indexes=[transaction.partition])],
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    return question(WriteTxnMarkersRequest(markers=[marker]), read)
