"""What a producer asks the coordinators of its transactional id and of its group, each question in one place.

A transactional id goes by the older protocol, in which a producer says itself which partitions it writes.
"""

from collections.abc import Iterable, Mapping

from headwater.client.cluster_view import GROUP, TRANSACTION, Coordinated
from headwater.client.question import Question, question
from headwater.client.topic_partition import TopicPartition
from headwater.model.errors import ErrorCode
from headwater.model.ids import Offset
from headwater.pipelines.sink.coordinator import check_codes
from headwater.pipelines.sink.producer import SinkProducerIdentity
from headwater.wire.typed.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headwater.wire.typed.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headwater.wire.typed.end_txn import EndTxnRequest, EndTxnResponse
from headwater.wire.typed.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.typed.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from headwater.wire.typed.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)


def init_producer(transactional_id: str | None, transaction_timeout_ms: int) -> Question[SinkProducerIdentity]:
    """A new epoch for the transactional id; None: a producer without one, which any broker gives."""

    def read(response: InitProducerIdResponse) -> SinkProducerIdentity:
        check_codes([response.error_code])
        return SinkProducerIdentity(response.producer_id, response.producer_epoch, transactional_id)

    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms)
    return question(request, read, None if transactional_id is None else Coordinated(TRANSACTION, transactional_id))


def add_partitions(identity: SinkProducerIdentity, partitions: Iterable[TopicPartition]) -> Question[None]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transaction,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    return question(request, _check_added, Coordinated(TRANSACTION, identity.transaction))


def add_group(identity: SinkProducerIdentity, group_id: str) -> Question[None]:
    """The transaction will commit offsets of the group."""
    request = AddOffsetsToTxnRequest(
        transactional_id=identity.transaction,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )
    return question(request, _check_code, Coordinated(TRANSACTION, identity.transaction))


def commit_offsets(
    identity: SinkProducerIdentity, group_id: str, offsets: Mapping[TopicPartition, tuple[int, str]]
) -> Question[None]:
    """Offsets of the group with the text beside each, as a part of the transaction."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), (offset, text) in offsets.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=Offset(offset), committed_metadata=text
            )
        )
    request = TxnOffsetCommitRequest(
        transactional_id=identity.transaction,
        group_id=group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    return question(request, _check_committed, Coordinated(GROUP, group_id))


def end_transaction(identity: SinkProducerIdentity, *, is_commit: bool) -> Question[None]:
    request = EndTxnRequest(
        transactional_id=identity.transaction,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=is_commit,
    )
    return question(request, _check_code, Coordinated(TRANSACTION, identity.transaction))


def fetch_stable_offsets(group_id: str) -> Question[list[tuple[int, str | None]]]:
    """All offsets of the group, each with the text beside it, when no transaction may change them any more."""
    request = OffsetFetchRequest(group_id=group_id, topics=None, require_stable=True)
    return question(request, _stable_offsets, Coordinated(GROUP, group_id))


def _check_code(response: AddOffsetsToTxnResponse | EndTxnResponse) -> None:
    check_codes([response.error_code])


def _check_added(response: AddPartitionsToTxnResponse) -> None:
    """One that cannot be added spoils the others, which say so."""
    results = (each for topic in response.results_by_topic_v3_and_below for each in topic.results_by_partition)
    codes = [result.partition_error_code for result in results]
    check_codes(code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED)


def _check_committed(response: TxnOffsetCommitResponse) -> None:
    check_codes(partition.error_code for topic in response.topics for partition in topic.partitions)


def _stable_offsets(response: OffsetFetchResponse) -> list[tuple[int, str | None]]:
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    check_codes([*(partition.error_code for partition in partitions), response.error_code])
    return [(partition.committed_offset, partition.metadata) for partition in partitions]
