"""One transactional id, one producer: the newer fences the older, and time ends what nobody ends."""

import time
import uuid

import pytest

from tests.clients.every_transactor import every_transactor
from tests.clients.judged import Client, NewTopic, Record, Refused
from tests.clients.transacting import (
    END,
    READ_COMMITTED,
    Fenced,
    Place,
    TransactionalProducer,
    Transactor,
    poll_until,
    read_to_the_end,
    sent,
)

SHORT_TIMEOUT_MS = 1_000


@pytest.fixture
def transactional_id() -> str:
    return f"writer-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def place(new_topic: NewTopic) -> Place:
    return new_topic(), 0


def read(transactor: Transactor, confluent: Client, place: Place) -> list[bytes]:
    confluent.produce(place[0], [Record(END)])
    return read_to_the_end(transactor.reader([place], READ_COMMITTED), [place])[place]


def use(producer: TransactionalProducer, place: Place, value: bytes) -> None:
    producer.begin()
    producer.send(sent([place], value))
    producer.commit()


@every_transactor
def test_a_second_producer_fences_the_first_in_the_middle_of_its_transaction(
    transactor: Transactor, confluent: Client, place: Place, transactional_id: str
) -> None:
    first = transactor.producer(transactional_id)
    use(first, place, b"before")
    first.begin()
    first.send(sent([place], b"of the first"))
    second = transactor.producer(transactional_id)
    use(second, place, b"of the second")
    with pytest.raises(Fenced):
        first.send(sent([place], b"too late"))
        first.commit()
    first.close()
    use(second, place, b"after")
    second.close()
    assert read(transactor, confluent, place) == [b"before", b"of the second", b"after"]


@every_transactor
def test_a_commit_of_a_fenced_producer_is_refused(
    transactor: Transactor, confluent: Client, place: Place, transactional_id: str
) -> None:
    first = transactor.producer(transactional_id)
    first.begin()
    first.send(sent([place], b"of the first"))
    second = transactor.producer(transactional_id)
    with pytest.raises(Fenced):
        first.commit()
    first.close()
    use(second, place, b"of the second")
    second.close()
    assert read(transactor, confluent, place) == [b"of the second"]


@every_transactor
def test_a_producer_between_transactions_is_fenced_as_well(
    transactor: Transactor, confluent: Client, place: Place, transactional_id: str
) -> None:
    first = transactor.producer(transactional_id)
    use(first, place, b"before")
    second = transactor.producer(transactional_id)
    use(second, place, b"of the second")
    with pytest.raises(Fenced):
        use(first, place, b"too late")
    first.close()
    second.close()
    assert read(transactor, confluent, place) == [b"before", b"of the second"]


@every_transactor
def test_a_producer_that_left_in_the_middle_is_cleaned_up_after_by_its_successor(
    transactor: Transactor, confluent: Client, place: Place, transactional_id: str
) -> None:
    first = transactor.producer(transactional_id)
    first.begin()
    first.send(sent([place], b"left behind"))
    first.close()
    second = transactor.producer(transactional_id)
    waiting = transactor.reader([place], READ_COMMITTED)
    confluent.produce(place[0], [Record(b"stable")])
    assert [record.value for record in poll_until(waiting, 1)] == [b"stable"], "nothing is left open"
    waiting.close()
    use(second, place, b"of the second")
    second.close()
    assert read(transactor, confluent, place) == [b"stable", b"of the second"]


@every_transactor
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_learns_it(
    transactor: Transactor, confluent: Client, place: Place, transactional_id: str
) -> None:
    slow = transactor.producer(transactional_id, SHORT_TIMEOUT_MS)
    waiting = transactor.reader([place], READ_COMMITTED)
    started_s = time.monotonic()
    slow.begin()
    slow.send(sent([place], b"too slow"))
    confluent.produce(place[0], [Record(b"behind it")])
    assert [record.value for record in poll_until(waiting, 1)] == [b"behind it"]
    assert time.monotonic() - started_s > SHORT_TIMEOUT_MS / 1000, "it had all the time that it was promised"
    waiting.close()
    with pytest.raises((Fenced, Refused)):
        slow.send(sent([place], b"even later"))
        slow.commit()
    slow.close()
    next_one = transactor.producer(transactional_id)
    use(next_one, place, b"in time")
    next_one.close()
    assert read(transactor, confluent, place) == [b"behind it", b"in time"]
