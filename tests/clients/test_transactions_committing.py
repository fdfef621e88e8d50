"""What a transaction wrote is read as a whole when it is committed, and by nobody when it is aborted."""

import json
import random
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.clients.every_transactor import TRANSACTORS, every_transactor
from tests.clients.judged import Client, NewTopic, Record
from tests.clients.transacting import (
    END,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Place,
    TransactionalProducer,
    Transactor,
    poll_until,
    read_to_the_end,
    sent,
)

LONG_WAIT_MS = 25_000
"""Longer than any test waits: a reader that sees something before was woken, and did not just look again."""
KCAT_TIMEOUT_S = 60.0

OpenTransactor = Callable[[str, str], Transactor]


@pytest.fixture
def transactional_id() -> str:
    return f"writer-{uuid.uuid4().hex[:10]}"


def finished(confluent: Client, places: list[Place]) -> None:
    for topic, partition in places:
        confluent.produce(topic, [Record(END, partition=partition)])


def read(transactor: Transactor, places: list[Place], isolation: str = READ_COMMITTED) -> dict[Place, list[bytes]]:
    return read_to_the_end(transactor.reader(places, isolation), places)


class WrittenByEveryClient:
    """Two topics, three partitions, and in each the transactions of all clients: some committed, some not."""

    def __init__(self, places: list[Place]) -> None:
        self.places = places
        self.written: list[bytes] = []
        self.committed: list[bytes] = []

    def add(self, producer: TransactionalProducer, name: str) -> None:
        for number, is_committed in enumerate([True, False, False, True, False]):
            values = [f"{name} {number} {letter}".encode() for letter in "abc"]
            producer.begin()
            producer.send(sent(self.places, *values))
            self.written += values
            if is_committed:
                producer.commit()
                self.committed += values
            else:
                producer.abort()


@pytest.fixture(scope="module")
def written(bootstrap: str, confluent: Client, open_transactor: OpenTransactor) -> Iterator[WrittenByEveryClient]:
    topics = [f"judged-{uuid.uuid4().hex[:12]}" for _ in range(2)]
    confluent.create_topic(topics[0], 2)
    confluent.create_topic(topics[1], 1)
    log = WrittenByEveryClient([(topics[0], 0), (topics[0], 1), (topics[1], 0)])
    for name in TRANSACTORS:
        producer = open_transactor(name, bootstrap).producer(f"{topics[0]}-{name}")
        log.add(producer, name)
        producer.close()
    finished(confluent, log.places)
    yield log


@every_transactor
def test_a_read_committed_reader_sees_what_every_client_committed_and_nothing_that_one_aborted(
    transactor: Transactor, written: WrittenByEveryClient
) -> None:
    assert read(transactor, written.places) == dict.fromkeys(written.places, written.committed)


@every_transactor
def test_a_read_uncommitted_reader_sees_everything(transactor: Transactor, written: WrittenByEveryClient) -> None:
    assert read(transactor, written.places, READ_UNCOMMITTED) == dict.fromkeys(written.places, written.written)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt-get install kcat)")
@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
def test_kcat_reads_by_its_isolation_level(bootstrap: str, written: WrittenByEveryClient, isolation: str) -> None:
    topic, partition = written.places[1]
    command = ["kcat", "-b", bootstrap, "-C", "-J", "-e", "-q", "-t", topic, "-p", str(partition), "-o", "beginning"]
    command += ["-X", f"isolation.level={isolation}", "-X", "fetch.wait.max.ms=100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=KCAT_TIMEOUT_S, check=True)
    values = [json.loads(line)["payload"].encode() for line in done.stdout.splitlines()]
    assert values == [*(written.committed if isolation == READ_COMMITTED else written.written), END]


@every_transactor
def test_an_open_transaction_is_not_read_until_it_is_committed_and_then_at_once(
    transactor: Transactor, new_topic: NewTopic, transactional_id: str
) -> None:
    topic = new_topic(2)
    places = [(topic, 0), (topic, 1)]
    producer = transactor.producer(transactional_id)
    waiting = transactor.reader(places, READ_COMMITTED, wait_ms=LONG_WAIT_MS)
    try:
        producer.begin()
        producer.send(sent(places, b"one"))
        impatient = transactor.reader(places, READ_UNCOMMITTED)
        assert {record.value for record in poll_until(impatient, 2)} == {b"one"}
        impatient.close()
        assert waiting.poll(0.3) == []
        producer.send(sent(places, b"two"))
        assert waiting.poll(0.3) == []
        producer.commit()
        found = poll_until(waiting, 4)
        assert [record.value for record in found if record.partition == 0] == [b"one", b"two"]
        assert [record.value for record in found if record.partition == 1] == [b"one", b"two"]
    finally:
        producer.close()
        waiting.close()


@every_transactor
def test_an_abort_lets_readers_go_on_to_what_is_behind_it(
    transactor: Transactor, new_topic: NewTopic, transactional_id: str, confluent: Client
) -> None:
    place = new_topic(), 0
    producer = transactor.producer(transactional_id)
    waiting = transactor.reader([place], READ_COMMITTED, wait_ms=LONG_WAIT_MS)
    try:
        producer.begin()
        producer.send(sent([place], b"given up"))
        confluent.produce(place[0], [Record(b"of somebody else")])
        assert waiting.poll(0.3) == [], "nothing behind an open transaction is stable"
        producer.abort()
        assert [record.value for record in poll_until(waiting, 1)] == [b"of somebody else"]
    finally:
        producer.close()
        waiting.close()


@every_transactor
def test_a_transaction_without_records_is_committed_and_aborted(
    transactor: Transactor, new_topic: NewTopic, transactional_id: str, confluent: Client
) -> None:
    place = new_topic(), 0
    producer = transactor.producer(transactional_id)
    for number in range(3):
        producer.begin()
        producer.commit()
        producer.begin()
        producer.abort()
        producer.begin()
        producer.send(sent([place], b"%d" % number))
        producer.commit()
    producer.close()
    finished(confluent, [place])
    assert read(transactor, [place]) == {place: [b"0", b"1", b"2"]}


@every_transactor
def test_ten_thousand_records_over_four_partitions_are_one_transaction(
    transactor: Transactor, new_topic: NewTopic, transactional_id: str, confluent: Client
) -> None:
    topic = new_topic(4)
    places = [(topic, partition) for partition in range(4)]
    kept, given_up = ([b"%s %d" % (word, number) for number in range(2_500)] for word in (b"kept", b"given up"))
    producer = transactor.producer(transactional_id)
    producer.begin()
    producer.send(sent(places, *given_up[:250]))
    producer.abort()
    producer.begin()
    producer.send(sent(places, *kept))
    producer.commit()
    producer.close()
    finished(confluent, places)
    assert read(transactor, places) == dict.fromkeys(places, kept)


@every_transactor
def test_two_hundred_small_transactions_follow_one_another(
    transactor: Transactor, new_topic: NewTopic, transactional_id: str, confluent: Client
) -> None:
    topic = new_topic(2)
    places = [(topic, 0), (topic, 1)]
    producer = transactor.producer(transactional_id)
    committed = []
    for number in range(200):
        producer.begin()
        producer.send(sent(places, b"%d" % number))
        if number % 5 == 3:
            producer.abort()
        else:
            producer.commit()
            committed.append(b"%d" % number)
    producer.close()
    finished(confluent, places)
    assert read(transactor, places) == dict.fromkeys(places, committed)


@every_transactor
def test_transactions_of_eight_producers_interleave_in_one_partition(
    transactor: Transactor, new_topic: NewTopic, transactional_id: str, confluent: Client
) -> None:
    place, dice = (new_topic(), 0), random.Random(8)
    producers = [transactor.producer(f"{transactional_id}-{number}") for number in range(8)]
    steps = [number for number in range(8) for _ in range(10)]
    dice.shuffle(steps)
    open_values: list[list[bytes]] = [[] for _ in producers]
    written: list[bytes] = []
    committed: set[bytes] = set()
    for value, number in enumerate(steps):
        producer, mine = producers[number], open_values[number]
        if not mine:
            producer.begin()
        if len(mine) < 3:
            mine.append(b"%d of %d" % (value, number))
            producer.send(sent([place], mine[-1]))
            written.append(mine[-1])
            continue
        if dice.random() < 0.6:
            producer.commit()
            committed.update(mine)
        else:
            producer.abort()
        mine.clear()
    for producer, mine in zip(producers, open_values, strict=True):
        if mine:
            producer.abort()
        producer.close()
    finished(confluent, [place])
    assert committed, "some of them were committed"
    assert read(transactor, [place]) == {place: [value for value in written if value in committed]}
    assert read(transactor, [place], READ_UNCOMMITTED) == {place: written}


def test_however_often_a_reader_looks_it_sees_nothing_before_its_commit(
    bootstrap: str, new_topic: NewTopic, transactional_id: str, open_transactor: OpenTransactor
) -> None:
    transactor, place = open_transactor("confluent", bootstrap), (new_topic(), 0)
    producer = transactor.producer(transactional_id)
    reader = transactor.reader([place], READ_COMMITTED)
    values = [[b"%d %d" % (number, each) for each in range(5)] for number in range(20)]
    seen: list[bytes] = []
    try:
        for number, mine in enumerate(values):
            producer.begin()
            producer.send(sent([place], *mine))
            seen += [record.value for record in reader.poll(0)]
            assert len(seen) <= 5 * number, "all that was seen was committed before"
            producer.commit()
        seen += [record.value for record in poll_until(reader, 100 - len(seen))]
    finally:
        producer.close()
        reader.close()
    assert seen == [value for mine in values for value in mine]
