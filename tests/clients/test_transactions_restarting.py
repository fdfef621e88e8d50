"""A broker that is killed in the middle of transactions ends each of them as it was, or as it would have been."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.clients.every_transactor import TRANSACTORS
from tests.clients.judged import Client, Record
from tests.clients.restartable import Restartable, restartable
from tests.clients.transacting import (
    END,
    READ_COMMITTED,
    Place,
    Transactor,
    poll_until,
    read_to_the_end,
    sent,
)
from tests.clients.transaction_wire import BUSY, END_TXN, Code, Wire
from tests.clients.with_confluent import ConfluentClient

OpenTransactor = Callable[[str, str], Transactor]

each_client = pytest.mark.parametrize("name", list(TRANSACTORS))


@pytest.fixture(scope="module")
def broker(ours_only: None) -> Iterator[Restartable]:
    """A broker of this file alone: the others' tests would notice its ends."""
    with restartable() as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: Restartable, open_client: Callable[[str, str], Client]) -> Client:
    return open_client(ConfluentClient.name, broker.bootstrap)


@pytest.fixture
def transactional_id() -> str:
    return f"writer-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def places(client: Client) -> list[Place]:
    topic = f"restarted-{uuid.uuid4().hex[:10]}"
    client.create_topic(topic, 3)
    return [(topic, partition) for partition in range(3)]


def read(transactor: Transactor, client: Client, places: list[Place]) -> list[bytes]:
    """What each of the places holds: the same in all of them."""
    for topic, partition in places:
        client.produce(topic, [Record(END, partition=partition)])
    found = read_to_the_end(transactor.reader(places, READ_COMMITTED), places)
    assert len(set(map(tuple, found.values()))) == 1, found
    return found[places[0]]


@each_client
def test_transactions_that_were_open_are_committed_and_aborted_after_a_kill(
    broker: Restartable,
    client: Client,
    open_transactor: OpenTransactor,
    places: list[Place],
    transactional_id: str,
    name: str,
) -> None:
    transactor, group = open_transactor(name, broker.bootstrap), f"group-{transactional_id}"
    kept, given_up = (transactor.producer(f"{transactional_id}-{word}") for word in ("kept", "given-up"))
    kept.begin()
    kept.send(sent(places, b"kept before"))
    kept.send_offsets(group, {places[0]: 5})
    given_up.begin()
    given_up.send(sent(places, b"given up before"))
    given_up.send_offsets(group, {places[1]: 6})
    broker.kill()
    broker.start()
    kept.send(sent(places, b"kept after"))
    given_up.send(sent(places, b"given up after"))
    kept.commit()
    given_up.abort()
    kept.begin()
    kept.send(sent(places, b"the next one"))
    kept.commit()
    kept.close()
    given_up.close()
    asking = transactor.member(None, group)
    try:
        assert asking.committed(places[0]) == 5
        assert asking.committed(places[1]) is None
    finally:
        asking.close()
    assert read(transactor, client, places) == [b"kept before", b"kept after", b"the next one"]


@each_client
def test_a_commit_that_was_answered_is_a_commit_though_the_broker_is_killed_at_once(
    broker: Restartable,
    client: Client,
    open_transactor: OpenTransactor,
    places: list[Place],
    transactional_id: str,
    name: str,
) -> None:
    """The answer comes when the outcome is decided, before the partitions know of it: most of the time, the broker
    ends in between."""
    transactor = open_transactor(name, broker.bootstrap)
    producer = transactor.producer(transactional_id)
    producer.begin()
    producer.send(sent(places, b"kept"))
    producer.commit()
    broker.kill()
    broker.start()
    producer.begin()
    producer.send(sent(places, b"given up"))
    producer.abort()
    producer.begin()
    producer.send(sent(places, b"the next one"))
    producer.commit()
    producer.close()
    assert read(transactor, client, places) == [b"kept", b"the next one"]


def test_ends_that_were_answered_are_completed_by_the_next_start(
    broker: Restartable, client: Client, transactional_id: str
) -> None:
    """Commits and aborts, in the older protocol and the newer, answered all at once and killed in the same moment."""
    ends = [(is_commit, version) for is_commit in (True, False) for version in (3, 5)]
    topic = f"restarted-{transactional_id}"
    client.create_topic(topic, len(ends))
    places = [(topic, index) for index in range(len(ends))]
    wires = [Wire(broker.bootstrap) for _ in ends]
    before = [wire.producer(f"{transactional_id}-{index}") for index, wire in enumerate(wires)]
    for wire, who, place in zip(wires, before, places, strict=True):
        assert wire.add(who, [place]) == [Code.NONE]
        assert wire.produce(who, place, [b"value"]).error_code == Code.NONE
    for wire, who, (is_commit, version) in zip(wires, before, ends, strict=True):
        wire.send_end(who, is_commit, version)
    answers = [wire.answer(END_TXN, version) for wire, (_, version) in zip(wires, ends, strict=True)]
    broker.kill()
    for wire in wires:
        wire.close()
    assert [answer.error_code for answer in answers] == [Code.NONE] * len(ends)
    broker.start()
    wire = Wire(broker.bootstrap)
    for who, (is_commit, version) in zip(before, ends, strict=True):
        wire.send_end(who, is_commit, version)
        early = wire.answer(END_TXN, version).error_code
        assert early in (Code.NONE, *BUSY), "a coordinator that has not loaded yet does not deny what it cannot know"
    for who, place, (is_commit, version) in zip(before, places, ends, strict=True):
        wire.wait_for_coordinator(who.transactional_id)
        word = "commit" if is_commit else "abort"
        wire.wait_for_state(who.transactional_id, f"Complete{word.capitalize()}")
        assert [value for _, value in wire.stored(place)] == [b"value", word]
        assert wire.end(who, not is_commit, version).error_code == Code.INVALID_TXN_STATE
        again = wire.end(who, is_commit, version)
        assert again.error_code == Code.NONE
        following = who.but(epoch=again.producer_epoch) if version == 5 else who
        assert wire.add(following, [place]) == [Code.NONE], "the next transaction begins"
        wire.ended(following, False, version)
    wire.close()


def test_readers_go_on_where_they_were_after_a_kill(
    broker: Restartable, client: Client, open_transactor: OpenTransactor, places: list[Place], transactional_id: str
) -> None:
    """Some clients ask a broker with a new leader epoch where the last one ended, and go back if it was before."""
    transactors = [open_transactor(name, broker.bootstrap) for name in TRANSACTORS]
    producer = transactors[0].producer(transactional_id)
    producer.begin()
    producer.send(sent(places, *(b"%d" % number for number in range(50))))
    producer.commit()
    readers = [transactor.reader(places, READ_COMMITTED) for transactor in transactors]
    try:
        for reader in readers:
            assert len(poll_until(reader, 150)) == 150
        broker.kill()
        broker.start()
        producer.begin()
        producer.send(sent(places, b"after"))
        producer.commit()
        for name, reader in zip(TRANSACTORS, readers, strict=True):
            seen = [(record.partition, record.offset, record.value) for record in poll_until(reader, 3)]
            assert sorted(seen) == [(partition, 51, b"after") for partition in range(3)], name
    finally:
        producer.close()
        for reader in readers:
            reader.close()
