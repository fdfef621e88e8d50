"""Transactions as the commands show them.

A transaction that is open in a partition and unknown to every coordinator is hanging: nothing will end it, and readers
of committed records wait behind it for ever."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.cli.output import CommandFailed

if TYPE_CHECKING:
    from headwater.client.address import BrokerAddress
    from headwater.client.admin.transactions import DescribedTransaction, ListedTransaction, OpenTransaction
    from headwater.client.blocking_cluster import BlockingCluster

ANY_DURATION = -1


def list_transactions(
    cluster: "BlockingCluster", states: Sequence[str] = (), longer_than_ms: int = ANY_DURATION
) -> "list[ListedTransaction]":
    from headwater.client.admin import transactions

    try:
        listings = cluster.answer_everywhere(transactions.list_transactions(states, longer_than_ms))
    except transactions.UnknownState as error:
        raise CommandFailed(
            f"There is no state {str(error)!r}.",
            "They are Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit and CompleteAbort.",
            exit_code=2,
        ) from None
    return sorted((each for listing in listings for each in listing), key=lambda each: each.transactional_id)


def describe_transaction(cluster: "BlockingCluster", transactional_id: str) -> "DescribedTransaction":
    from headwater.client.admin import transactions

    return cluster.answer(transactions.describe_transaction(transactional_id))


def open_transactions(cluster: "BlockingCluster", topics: Iterable[str]) -> "list[OpenTransaction]":
    """In all partitions of these topics, the oldest first."""
    from headwater.client.admin import transactions

    found = [
        each
        for topic in topics
        for index, broker in _leaders(cluster, topic).items()
        for each in cluster.answer_at(broker, transactions.open_transactions(topic, index))
    ]
    return sorted(found, key=lambda each: each.last_written_ms)


def hanging_transactions(cluster: "BlockingCluster", topics: Iterable[str]) -> "list[OpenTransaction]":
    """Open transactions that no coordinator knows, so that nothing will end them."""
    found = open_transactions(cluster, topics)
    producer_ids = {each.producer_id for each in found}
    known = {
        (transaction.producer_id, *partition)
        for listed in list_transactions(cluster)
        if listed.producer_id in producer_ids
        for transaction in (describe_transaction(cluster, listed.transactional_id),)
        for partition in transaction.partitions
    }
    return [each for each in found if (each.producer_id, each.topic, each.partition) not in known]


def abort_transaction(cluster: "BlockingCluster", transaction: "OpenTransaction") -> None:
    """Write an abort marker to its partition, without asking its coordinator."""
    from headwater.client.admin.transactions import abort_marker

    broker = _leaders(cluster, transaction.topic)[transaction.partition]
    cluster.answer_at(broker, abort_marker(transaction))


def _leaders(cluster: "BlockingCluster", topic: str) -> "dict[int, BrokerAddress]":
    view = cluster.topics([topic]).get(topic)
    if view is None:
        raise CommandFailed(f"Topic {topic} does not exist.", "`headwater topic list` shows the existing topics.")
    found = {}
    for index in sorted(view.leaders):
        leader = cluster.view.leader(topic, index)
        if leader is None:
            raise CommandFailed(f"Partition {index} of {topic} has no leader now.", "Try it again.")
        found[index] = leader
    return found
