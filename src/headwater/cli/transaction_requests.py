"""Requests about transactions, sent to the brokers directly, because librdkafka has no calls for them.

Two parts of the cluster know a transaction: its coordinator, by its transactional id, and each partition that it
touched, by its producer's id. A transaction that is open in a partition and unknown to every coordinator is hanging:
nothing will end it, and readers of committed records wait behind it for ever."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.cli.bootstrap import Address
from headwater.cli.client import REQUEST_TIMEOUT_S
from headwater.cli.output import CommandFailed
from headwater.cli.raw_request import TRANSACTION_KEY, ask, brokers, check, coordinator, message

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 27, 61, 65, 66
NO_TRANSACTION = -1
ANY_DURATION = -1


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
    partitions: tuple[tuple[str, int], ...]


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


def list_transactions(
    client: "AdminClient", states: Iterable[str] = (), longer_than_ms: int = ANY_DURATION
) -> list[ListedTransaction]:
    found = []
    for broker in brokers(client):
        answer = ask(
            broker,
            LIST_TRANSACTIONS,
            1,
            state_filters=list(states),
            producer_id_filters=[],
            duration_filter=longer_than_ms,
        )
        check(answer.error_code, None, "The list of transactions")
        if answer.unknown_state_filters:
            raise CommandFailed(
                f"There is no state {answer.unknown_state_filters[0]!r}.",
                "They are Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit and CompleteAbort.",
                exit_code=2,
            )
        found += [
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state)
            for each in answer.transaction_states
        ]
    return sorted(found, key=lambda each: each.transactional_id)


def describe_transaction(client: "AdminClient", transactional_id: str) -> DescribedTransaction:
    broker = coordinator(client, transactional_id, TRANSACTION_KEY)
    (described,) = ask(broker, DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id]).transaction_states
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


def open_transactions(client: "AdminClient", topics: Iterable[str]) -> list[OpenTransaction]:
    """In all partitions of these topics, the oldest first."""
    found = []
    for topic in topics:
        for index, broker in _leaders(client, topic).items():
            answer = (
                ask(broker, DESCRIBE_PRODUCERS, 0, topics=[message(name=topic, partition_indexes=[index])])
                .topics[0]
                .partitions[0]
            )
            check(answer.error_code, answer.error_message, f"Partition {index} of {topic}")
            found += [
                OpenTransaction(
                    topic=topic,
                    partition=index,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    coordinator_epoch=producer.coordinator_epoch,
                    start_offset=producer.current_txn_start_offset,
                    last_written_ms=producer.last_timestamp,
                )
                for producer in answer.active_producers
                if producer.current_txn_start_offset != NO_TRANSACTION
            ]
    return sorted(found, key=lambda each: each.last_written_ms)


def hanging_transactions(client: "AdminClient", topics: Iterable[str]) -> list[OpenTransaction]:
    """Open transactions that no coordinator knows, so that nothing will end them."""
    found = open_transactions(client, topics)
    producer_ids = {each.producer_id for each in found}
    known = {
        (transaction.producer_id, *partition)
        for listed in list_transactions(client)
        if listed.producer_id in producer_ids
        for transaction in (describe_transaction(client, listed.transactional_id),)
        for partition in transaction.partitions
    }
    return [each for each in found if (each.producer_id, each.topic, each.partition) not in known]


def abort_transaction(client: "AdminClient", transaction: OpenTransaction) -> None:
    """Write an abort marker to its partition, without asking its coordinator. Raises CommandFailed."""
    broker = _leaders(client, transaction.topic)[transaction.partition]
    marker = message(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[message(name=transaction.topic, partition_indexes=[transaction.partition])],
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    answer = ask(broker, WRITE_TXN_MARKERS, 1, markers=[marker])
    (written,) = answer.markers[0].topics[0].partitions
    check(written.error_code, None, f"Partition {transaction.partition} of {transaction.topic}")


def _leaders(client: "AdminClient", topic: str) -> dict[int, Address]:
    metadata = client.list_topics(timeout=REQUEST_TIMEOUT_S)
    if topic not in metadata.topics:
        raise CommandFailed(f"Topic {topic} does not exist.", "`headwater topic list` shows the existing topics.")
    found = {}
    for index, partition in sorted(metadata.topics[topic].partitions.items()):
        leader = metadata.brokers.get(partition.leader)
        if leader is None:
            raise CommandFailed(f"Partition {index} of {topic} has no leader now.", "Try it again.")
        found[index] = (leader.host, leader.port)
    return found
