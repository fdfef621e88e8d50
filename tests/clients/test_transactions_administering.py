"""What an administrator sees of transactions and can do about them, by Java's admin client."""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

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
from tests.clients.with_java import JavaClient
from tests.support.eventually import eventually

TRANSACTIONAL_ID_NOT_FOUND = 105
STATE_TIMEOUT_S = 60.0

OpenTransactor = Callable[[str, str], Transactor]


@pytest.fixture
def java(bootstrap: str, open_client: Callable[[str, str], Client]) -> JavaClient:
    client = open_client("java", bootstrap)
    assert isinstance(client, JavaClient)
    return client


@pytest.fixture
def transactional_id() -> str:
    return f"writer-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def place(new_topic: NewTopic) -> Place:
    return new_topic(), 0


@pytest.fixture(params=["confluent", "java"])
def transactor(request: pytest.FixtureRequest, bootstrap: str, open_transactor: OpenTransactor) -> Transactor:
    """One with the older protocol of transactions, one with the newer."""
    return open_transactor(request.param, bootstrap)


@pytest.fixture
def producer(transactor: Transactor, transactional_id: str) -> Iterator[TransactionalProducer]:
    producer = transactor.producer(transactional_id)
    yield producer
    producer.close()


def wait_for_state(java: JavaClient, transactional_id: str, state: str) -> dict[str, Any]:
    def described() -> dict[str, Any] | None:
        found: dict[str, Any] = java.ask("transaction", transactionalId=transactional_id)
        return found if found["state"] == state else None

    return eventually(described, f"{transactional_id} is {state}", patience_s=STATE_TIMEOUT_S)


def test_the_newer_protocol_of_transactions_is_offered(java: JavaClient) -> None:
    assert java.ask("transactionVersion") == 2


def test_a_transaction_is_described_from_its_beginning_to_its_end(
    java: JavaClient, producer: TransactionalProducer, transactional_id: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    before_ms = int(time.time() * 1000)
    empty = java.ask("transaction", transactionalId=transactional_id)
    assert (empty["state"], empty["places"], empty["timeoutMs"]) == ("Empty", [], 60_000)
    producer.begin()
    producer.send(sent([(topic, 0), (topic, 1)], b"x"))
    ongoing = java.ask("transaction", transactionalId=transactional_id)
    assert ongoing["state"] == "Ongoing"
    assert sorted(ongoing["places"]) == [[topic, 0], [topic, 1]]
    assert before_ms <= ongoing["startedMs"] <= int(time.time() * 1000)
    assert ongoing["producerId"] == empty["producerId"]
    producer.commit()
    assert wait_for_state(java, transactional_id, "CompleteCommit")["places"] == []
    producer.begin()
    producer.send(sent([(topic, 0)], b"y"))
    producer.abort()
    wait_for_state(java, transactional_id, "CompleteAbort")


@pytest.mark.parametrize(("name", "bumps"), [("confluent", 0), ("java", 1)])
def test_with_the_newer_protocol_each_transaction_has_an_epoch_of_its_own(
    java: JavaClient,
    bootstrap: str,
    open_transactor: OpenTransactor,
    transactional_id: str,
    place: Place,
    name: str,
    bumps: int,
) -> None:
    producer = open_transactor(name, bootstrap).producer(transactional_id)
    epochs = []
    for _ in range(3):
        producer.begin()
        producer.send(sent([place], b"x"))
        producer.commit()
        epochs.append(wait_for_state(java, transactional_id, "CompleteCommit")["epoch"])
    producer.close()
    assert epochs == [epochs[0], epochs[0] + bumps, epochs[0] + 2 * bumps]


def test_transactions_are_listed_by_state_producer_duration_and_name(
    java: JavaClient, producer: TransactionalProducer, transactional_id: str, place: Place
) -> None:
    producer.begin()
    producer.send(sent([place], b"x"))
    mine = {transactional_id: "Ongoing"}
    producer_id = java.ask("transaction", transactionalId=transactional_id)["producerId"]
    assert mine.items() <= java.ask("transactions").items()
    assert mine.items() <= java.ask("transactions", state="Ongoing").items()
    assert transactional_id not in java.ask("transactions", state="PrepareAbort")
    assert java.ask("transactions", producerId=producer_id) == mine
    assert java.ask("transactions", pattern=f"{transactional_id[:-2]}.*") == mine
    assert transactional_id not in java.ask("transactions", longerThanMs=3_600_000)
    eventually(lambda: mine.items() <= java.ask("transactions", longerThanMs=1).items(), "a moment later it is older")
    producer.abort()


def test_a_transactional_id_that_nobody_used_is_not_found(java: JavaClient, transactional_id: str) -> None:
    with pytest.raises(Refused) as refusal:
        java.ask("transaction", transactionalId=transactional_id)
    assert refusal.value.code == TRANSACTIONAL_ID_NOT_FOUND
    assert transactional_id not in java.ask("transactions")


def test_the_open_transactions_of_a_partition_are_told_with_where_they_start(
    java: JavaClient, producer: TransactionalProducer, transactional_id: str, place: Place, confluent: Client
) -> None:
    topic, partition = place
    confluent.produce(topic, [Record(b"before")] * 3)
    assert java.ask("openTransactions", topic=topic, partition=partition) == []
    producer.begin()
    producer.send(sent([place], b"x", b"y"))
    [[producer_id, epoch, _, first_offset]] = java.ask("openTransactions", topic=topic, partition=partition)
    described = java.ask("transaction", transactionalId=transactional_id)
    assert (producer_id, epoch) == (described["producerId"], described["epoch"])
    assert first_offset == 3
    producer.commit()
    wait_for_state(java, transactional_id, "CompleteCommit")
    assert java.ask("openTransactions", topic=topic, partition=partition) == []


def test_a_transaction_that_hangs_is_aborted_in_its_partition(
    java: JavaClient,
    transactor: Transactor,
    producer: TransactionalProducer,
    place: Place,
    confluent: Client,
) -> None:
    topic, partition = place
    producer.begin()
    producer.send(sent([place], b"hangs"))
    confluent.produce(topic, [Record(b"behind it")])
    waiting = transactor.reader([place], READ_COMMITTED)
    assert waiting.poll(0.3) == []
    [[producer_id, epoch, coordinator_epoch, _]] = java.ask("openTransactions", topic=topic, partition=partition)
    java.ask(
        "abortTransaction",
        topic=topic,
        partition=partition,
        producerId=producer_id,
        epoch=epoch,
        coordinatorEpoch=max(coordinator_epoch, 0),
    )
    assert [record.value for record in poll_until(waiting, 1)] == [b"behind it"]
    waiting.close()
    assert java.ask("openTransactions", topic=topic, partition=partition) == []
    producer.abort()
    confluent.produce(topic, [Record(END)])
    assert read_to_the_end(transactor.reader([place], READ_COMMITTED), [place]) == {place: [b"behind it"]}


@pytest.mark.parametrize("verb", ["fenceProducers", "terminateTransaction"])
def test_an_administrator_ends_the_transaction_of_a_producer_and_fences_it(
    java: JavaClient,
    transactor: Transactor,
    producer: TransactionalProducer,
    transactional_id: str,
    place: Place,
    confluent: Client,
    verb: str,
) -> None:
    producer.begin()
    producer.send(sent([place], b"never committed"))
    java.ask(verb, transactionalId=transactional_id)
    with pytest.raises(Fenced):
        producer.send(sent([place], b"too late"))
        producer.commit()
    confluent.produce(place[0], [Record(END)])
    assert read_to_the_end(transactor.reader([place], READ_COMMITTED), [place]) == {place: []}
