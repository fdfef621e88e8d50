"""TxnOffsetCommit over a socket, in every version that is served, and what OffsetFetch shows of it."""

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.broker.handlers import txn_offset_commit
from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from tests.support.eventually import eventually
from tests.support.messages import nested
from tests.support.wire import ask

COMMIT, FETCH, INIT, ADD_OFFSETS, END, TXN_COMMIT, DELETE_GROUPS, HEARTBEAT = 8, 9, 22, 25, 26, 28, 42, 68
SETTLE_S = 60.0
names = itertools.count()
versions = pytest.mark.parametrize(
    "version", range(txn_offset_commit.API.min_version, txn_offset_commit.API.max_version + 1)
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 2, 1)]).values():
            future.result(60)
        yield broker


@dataclass
class Producer:
    """A transactional producer that says everything itself. Version 5 of TxnOffsetCommit is the newer protocol."""

    broker: Broker
    version: int
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1

    @classmethod
    def start(cls, broker: Broker, version: int, transactional_id: str | None = None) -> "Producer":
        producer = cls(broker, version, transactional_id or f"t{next(names)}")
        started = ask(
            broker,
            INIT,
            4,
            transactional_id=producer.transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        assert started.error_code == 0
        producer.producer_id, producer.epoch = started.producer_id, started.producer_epoch
        return producer

    def begin(self, group: str) -> None:
        """Make the group's offsets part of the transaction, where that is for the client to do."""
        if self.version < 5:
            assert ask(self.broker, ADD_OFFSETS, 3, group_id=group, **self.identity).error_code == 0

    def commit(self, group: str, *offsets: tuple[str, int, int], **who: object) -> list[ErrorCode]:
        topics = [
            nested(
                name=topic,
                partitions=[
                    nested(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata="",
                    )
                ],
            )
            for topic, index, offset in offsets
        ]
        member = {"generation_id": -1, "member_id": "", "group_instance_id": None, **who}
        answer = ask(self.broker, TXN_COMMIT, self.version, group_id=group, topics=topics, **self.identity, **member)
        return [ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions]

    def end(self, is_commit: bool = True) -> None:
        answer = ask(self.broker, END, 5 if self.version >= 5 else 3, committed=is_commit, **self.identity)
        assert answer.error_code == 0
        if self.version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def identity(self) -> dict[str, object]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


def fetch(broker: Broker, group: str, version: int = 8, *, stable: bool, all_topics: bool = False) -> dict[int, object]:
    """By partition: the offset, or the code of the refusal."""
    topics = None if all_topics else [nested(name="orders", partition_indexes=[0, 1])]
    if version < 8:
        answer = ask(broker, FETCH, version, group_id=group, topics=topics, require_stable=stable)
    else:
        asked = nested(group_id=group, member_id=None, member_epoch=-1, topics=topics)
        (answer,) = ask(broker, FETCH, version, groups=[asked], require_stable=stable).groups
    assert answer.error_code == 0
    return {
        each.partition_index: ErrorCode(each.error_code) if each.error_code else each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


def stable_offsets(broker: Broker, group: str) -> dict[int, object]:
    """As a consumer waits for them: it asks until no end of a transaction can change the answer."""

    def stable() -> dict[int, object] | None:
        offsets = fetch(broker, group, stable=True)
        return None if ErrorCode.UNSTABLE_OFFSET_COMMIT in offsets.values() else offsets

    return eventually(stable, "the transaction has ended")


def group_name() -> str:
    return f"g{next(names)}"


UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@versions
def test_offsets_count_when_their_transaction_commits(broker: Broker, version: int) -> None:
    group, producer = group_name(), Producer.start(broker, version)
    producer.begin(group)
    assert producer.commit(group, ("orders", 0, 7)) == [ErrorCode.NONE]
    assert fetch(broker, group, stable=False) == {0: -1, 1: -1}
    assert fetch(broker, group, stable=True) == {0: UNSTABLE, 1: -1}
    producer.end()
    assert stable_offsets(broker, group) == {0: 7, 1: -1}


@versions
def test_offsets_vanish_when_their_transaction_aborts_and_the_next_one_starts_anew(
    broker: Broker, version: int
) -> None:
    group, producer = group_name(), Producer.start(broker, version)
    producer.begin(group)
    producer.commit(group, ("orders", 0, 7), ("orders", 1, 7))
    producer.end(is_commit=False)
    assert stable_offsets(broker, group) == {0: -1, 1: -1}
    producer.begin(group)
    assert producer.commit(group, ("orders", 1, 8)) == [ErrorCode.NONE]
    producer.end()
    assert stable_offsets(broker, group) == {0: -1, 1: 8}


@versions
def test_partitions_that_are_not_there_are_refused_alone(broker: Broker, version: int) -> None:
    group, producer = group_name(), Producer.start(broker, version)
    producer.begin(group)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = producer.commit(group, ("orders", 0, 7), ("orders", 9, 7), ("none", 0, 7))
    assert found == [ErrorCode.NONE, unknown, unknown]
    assert producer.commit(group, ("none", 0, 7)) == [unknown]


@pytest.mark.parametrize(
    ("version", "refused"),
    [(version, ErrorCode.INVALID_TXN_STATE) for version in range(4)] + [(4, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_offsets_that_were_not_added_to_the_transaction_are_refused(
    broker: Broker, version: int, refused: ErrorCode
) -> None:
    group, producer = group_name(), Producer.start(broker, version)
    assert producer.commit(group, ("orders", 0, 7), ("orders", 1, 7)) == [refused, refused]
    assert fetch(broker, group, stable=True) == {0: -1, 1: -1}


@versions
def test_a_producer_that_was_replaced_is_fenced(broker: Broker, version: int) -> None:
    group, old = group_name(), Producer.start(broker, version)
    old.begin(group)
    old.commit(group, ("orders", 0, 7))
    new = Producer.start(broker, version, old.transactional_id)
    assert new.epoch > old.epoch
    assert old.commit(group, ("orders", 0, 8)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert stable_offsets(broker, group) == {0: -1, 1: -1}, "what the old one left open was aborted"


@versions
def test_a_transactional_id_that_nobody_started_is_refused(broker: Broker, version: int) -> None:
    producer = Producer(broker, version, f"t{next(names)}", 1_000_000, 0)
    assert producer.commit(group_name(), ("orders", 0, 7)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@versions
def test_a_group_needs_a_name(broker: Broker, version: int) -> None:
    producer = Producer.start(broker, version)
    assert producer.commit("", ("orders", 0, 7)) == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_member_of_the_new_protocol_commits_in_its_epoch_only(broker: Broker, version: int) -> None:
    group, producer = group_name(), Producer.start(broker, version)
    joined = ask(
        broker, HEARTBEAT, 1, group_id=group, member_id=str(uuid.uuid4()), member_epoch=0, instance_id=None,
        rack_id=None, rebalance_timeout_ms=30_000, subscribed_topic_names=["orders"], subscribed_topic_regex=None,
        server_assignor=None, topic_partitions=[],
    )  # fmt: skip
    assert joined.error_code == 0
    producer.begin(group)
    who = {"member_id": joined.member_id, "generation_id": joined.member_epoch}
    assert producer.commit(group, ("orders", 0, 7), **who) == [ErrorCode.NONE]
    stale = {**who, "generation_id": joined.member_epoch + 1}
    assert producer.commit(group, ("orders", 0, 8), **stale) == [ErrorCode.ILLEGAL_GENERATION]
    assert producer.commit(group, ("orders", 0, 8), **{**who, "member_id": "x"}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    producer.end()
    assert stable_offsets(broker, group) == {0: 7, 1: -1}


@pytest.mark.parametrize("fetch_version", [7, 8, 9])
def test_who_asks_for_all_offsets_is_told_what_is_unstable(broker: Broker, fetch_version: int) -> None:
    group, producer = group_name(), Producer.start(broker, 5)
    plain = nested(partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata="")
    ask(
        broker, COMMIT, 8, group_id=group, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[nested(name="orders", partitions=[plain])],
    )  # fmt: skip
    producer.commit(group, ("orders", 0, 7), ("orders", 1, 7))
    assert fetch(broker, group, fetch_version, stable=False, all_topics=True) == {0: 5}
    assert fetch(broker, group, fetch_version, stable=True, all_topics=True) == {0: UNSTABLE, 1: UNSTABLE}
    producer.end()
    stable_offsets(broker, group)
    assert fetch(broker, group, fetch_version, stable=True, all_topics=True) == {0: 7, 1: 7}


def test_topic_ids_are_told_what_is_unstable_too(broker: Broker) -> None:
    group, producer = group_name(), Producer.start(broker, 5)
    producer.commit(group, ("orders", 1, 7))
    (described,) = ask(
        broker, 3, 12, topics=[nested(topic_id=uuid.UUID(int=0), name="orders")], allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    ).topics  # fmt: skip
    asked = nested(
        group_id=group,
        member_id=None,
        member_epoch=-1,
        topics=[nested(topic_id=described.topic_id, partition_indexes=[0, 1])],
    )
    (found,) = ask(broker, FETCH, 10, groups=[asked], require_stable=True).groups
    assert [each.error_code for each in found.topics[0].partitions] == [0, UNSTABLE]
    producer.end(is_commit=False)


def test_a_group_is_deleted_with_what_is_pending(broker: Broker) -> None:
    group, producer = group_name(), Producer.start(broker, 5)
    producer.commit(group, ("orders", 0, 7))
    (deleted,) = ask(broker, DELETE_GROUPS, 2, groups_names=[group]).results
    assert deleted.error_code == 0
    assert fetch(broker, group, stable=True) == {0: -1, 1: -1}
    producer.end()
    assert stable_offsets(broker, group) == {0: -1, 1: -1}
