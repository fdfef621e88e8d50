"""Offsets sent to a transaction are the group's when it commits, and never were when it aborts."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.clients.every_transactor import (
    every_member_of_transactions,
    every_transactor,
    every_transactor_that_tells_membership,
)
from tests.clients.judged import Client, NewTopic, Record, Refused
from tests.clients.transacting import (
    CLASSIC,
    END,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Member,
    Place,
    TransactionalProducer,
    Transactor,
    poll_until,
    read_to_the_end,
    sent,
)
from tests.support.eventually import eventually

INPUTS = 10
SETTLE_TIMEOUT_S = 60.0

OpenTransactor = Callable[[str, str], Transactor]
WaitUntilCommitted = Callable[[str, Place, int], None]


@pytest.fixture
def place(new_topic: NewTopic, confluent: Client) -> Place:
    """A partition of ten records."""
    topic = new_topic()
    confluent.produce(topic, [Record(b"%d" % number) for number in range(INPUTS)])
    return topic, 0


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def producer(transactor: Transactor) -> Iterator[TransactionalProducer]:
    producer = transactor.producer(f"writer-{uuid.uuid4().hex[:10]}")
    yield producer
    producer.close()


@contextmanager
def joined(transactor: Transactor, topic: str | None, group: str, protocol: str = CLASSIC) -> Iterator[Member]:
    member = transactor.member(topic, group, protocol)
    try:
        yield member
    finally:
        member.close()


@pytest.fixture
def wait_until_committed(bootstrap: str, open_transactor: OpenTransactor) -> WaitUntilCommitted:
    """Returns when the group is at an offset, asked by one who does not wait for transactions that are open. A
    transaction is answered when its outcome is decided; a moment later its offsets are there."""

    def wait(group: str, place: Place, offset: int) -> None:
        asking = open_transactor("confluent", bootstrap).member(None, group, isolation=READ_UNCOMMITTED)
        try:
            claim = f"the group is at {offset}"
            eventually(lambda: asking.committed(place) == offset, claim, patience_s=SETTLE_TIMEOUT_S)
        finally:
            asking.close()

    return wait


@every_member_of_transactions
def test_offsets_and_output_are_committed_together_or_not_at_all(
    transactor: Transactor,
    protocol: str,
    producer: TransactionalProducer,
    place: Place,
    group: str,
    new_topic: NewTopic,
    confluent: Client,
) -> None:
    output = new_topic(), 0
    with joined(transactor, place[0], group, protocol) as member:
        values = [record.value for record in poll_until(member, INPUTS)]
        assert values == [b"%d" % number for number in range(INPUTS)]
        producer.begin()
        producer.send(sent([output], b"from 0 to 5"))
        producer.send_offsets(member, {place: 6})
        producer.commit()
        producer.begin()
        producer.send(sent([output], b"from 6 to 8"))
        producer.send_offsets(member, {place: 9})
        producer.abort()
        assert member.committed(place) == 6, "what an aborted transaction sent never counted"
        producer.begin()
        producer.send(sent([output], b"from 6 to 9"))
        producer.send_offsets(member, {place: 7})
        producer.send_offsets(member, {place: 10})
        producer.commit()
        assert member.committed(place) == 10, "the last position that a transaction sent is the one"
    confluent.produce(output[0], [Record(END)])
    written = read_to_the_end(transactor.reader([output], READ_COMMITTED), [output])
    assert written == {output: [b"from 0 to 5", b"from 6 to 9"]}


@every_member_of_transactions
def test_a_member_resumes_behind_the_offsets_that_were_committed(
    transactor: Transactor, protocol: str, producer: TransactionalProducer, place: Place, group: str
) -> None:
    with joined(transactor, place[0], group, protocol) as member:
        poll_until(member, INPUTS)
        producer.begin()
        producer.send_offsets(member, {place: 4})
        producer.commit()
        producer.begin()
        producer.send_offsets(member, {place: 8})
        producer.abort()
    with joined(transactor, place[0], group, protocol) as member:
        assert [record.value for record in poll_until(member, 6)] == [b"%d" % number for number in range(4, 10)]


@every_transactor
def test_offsets_of_an_open_transaction_are_not_yet_the_group_s(
    producer: TransactionalProducer, place: Place, group: str, wait_until_committed: WaitUntilCommitted
) -> None:
    producer.begin()
    producer.send_offsets(group, {place: 3})
    producer.commit()
    wait_until_committed(group, place, 3)
    producer.begin()
    producer.send_offsets(group, {place: 5})
    wait_until_committed(group, place, 3)
    producer.commit()
    wait_until_committed(group, place, 5)


@every_transactor_that_tells_membership
def test_a_member_that_starts_waits_for_offsets_that_are_not_settled(
    transactor: Transactor, protocol: str, producer: TransactionalProducer, place: Place, group: str
) -> None:
    """aiokafka is not asked: its version of the request for a group's offsets knows nothing of transactions."""
    producer.begin()
    producer.send_offsets(group, {place: 6})
    with joined(transactor, place[0], group, protocol) as member:
        assert member.poll(1.0) == [], "it cannot know where to start"
        producer.commit()
        assert [record.value for record in poll_until(member, 4)] == [b"6", b"7", b"8", b"9"]


@every_transactor_that_tells_membership
def test_offsets_from_a_member_that_left_are_refused_and_the_producer_lives_on(
    transactor: Transactor, protocol: str, producer: TransactionalProducer, place: Place, group: str
) -> None:
    with joined(transactor, place[0], group, protocol) as left:
        poll_until(left, INPUTS)
        producer.begin()
        producer.send_offsets(left, {place: 5})
        producer.commit()
    with joined(transactor, place[0], group, protocol) as member:
        poll_until(member, 5)
        producer.begin()
        with pytest.raises(Refused):
            producer.send_offsets(left, {place: 9})
        producer.abort()
        assert member.committed(place) == 5
        producer.begin()
        producer.send_offsets(member, {place: 7})
        producer.commit()
        assert member.committed(place) == 7


@pytest.mark.parametrize("transactor", ["confluent", "kafka-python", "java"], indirect=True)
def test_offsets_for_several_groups_and_partitions_are_part_of_one_transaction(
    producer: TransactionalProducer,
    place: Place,
    new_topic: NewTopic,
    group: str,
    wait_until_committed: WaitUntilCommitted,
) -> None:
    """aiokafka is not asked: it sends the offsets of one group per transaction."""
    topic = new_topic(2)
    others = {(topic, 0): 11, (topic, 1): 12}
    producer.begin()
    producer.send_offsets(group, {place: 1, **others})
    producer.send_offsets(f"{group}-too", {place: 2})
    producer.commit()
    wait_until_committed(group, place, 1)
    for other, offset in others.items():
        wait_until_committed(group, other, offset)
    wait_until_committed(f"{group}-too", place, 2)
