"""Queues as their users meet them: share groups through librdkafka's ShareConsumer and Java's KafkaShareConsumer."""

import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ShareConsumer

from headwater.testing import Broker
from tests.clients.judged import Client, NewTopic, Record
from tests.clients.share_workers import ACCEPT, REJECT, RELEASE, ConfluentWorker, JavaWorker, Lent, Worker, configure
from tests.support.eventually import eventually, gathered

TIMEOUT_S = 60.0
HELD_BY_CHILD = """
import sys, time
from confluent_kafka import ShareConsumer
bootstrap, topic, group = sys.argv[1:]
consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
consumer.subscribe([topic])
while not (held := len(consumer.poll(1.0))):
    pass
print(held, flush=True)
time.sleep(60)
"""

beyond_kafka = pytest.mark.usefixtures("ours_only")
"""Dead letters, delays, order by key, leases of a second: Kafka has none of them."""
NewWorker = Callable[..., Worker]
OpenClient = Callable[[str, str], Client]


@pytest.fixture
def group() -> str:
    return f"workers-{uuid.uuid4().hex[:10]}"


@pytest.fixture(params=["confluent", "java"])
def new_worker(
    request: pytest.FixtureRequest, bootstrap: str, open_client: OpenClient, group: str
) -> Iterator[NewWorker]:
    """Makes workers of one kind, for one group that reads everything."""
    configure(bootstrap, group, share_auto_offset_reset="earliest")
    workers: list[Worker] = []

    def make(topic: str, max_records: int = 500) -> Worker:
        if request.param == "java":
            java = open_client("java", bootstrap)
            workers.append(JavaWorker(java, topic, group, max_records))  # type: ignore[arg-type]
        else:
            workers.append(ConfluentWorker(bootstrap, topic, group, max_records))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def produced(confluent: Client, topic: str, count: int, partitions: int = 1) -> None:
    for partition in range(partitions):
        numbers = range(partition, count, partitions)
        confluent.produce(topic, [Record(b"%d" % number, partition=partition) for number in numbers])


def drained(worker: Worker, count: int, timeout_s: float = TIMEOUT_S) -> list[Lent]:
    """Polls and accepts until that many records came."""
    found: list[Lent] = []
    deadline_s = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline_s, f"{len(found)} of {count} records came"
        records = worker.poll(0.5)
        worker.acknowledge(records, ACCEPT)
        if records:
            worker.commit()
        found += records
    return found


def test_eight_workers_on_two_partitions_all_work(
    new_worker: NewWorker, new_topic: NewTopic, confluent: Client
) -> None:
    topic = new_topic(2)
    workers = [new_worker(topic, 5) for _ in range(8)]
    handled: Counter[int] = Counter()
    seen: Counter[bytes] = Counter()
    count = 0
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(handled) < 8 or count > sum(seen.values()):
        assert time.monotonic() < deadline_s, f"only {sorted(handled)} have worked"
        if len(handled) < 8:
            numbers = range(count, count + 16)
            batch = [Record(b"%d" % number, partition=number % 2) for number in numbers]
            for record in batch:  # one batch each, so that no worker gets more than its five
                confluent.produce(topic, [record])
            count += 16
        for number, worker in enumerate(workers):
            records = worker.poll(0.05)
            worker.acknowledge(records, ACCEPT)
            if records:
                worker.commit()
                handled[number] += len(records)
                seen.update(record.value for record in records)
    assert set(seen) == {b"%d" % number for number in range(count)}
    assert set(seen.values()) == {1}, "each record was handled once"


@beyond_kafka
def test_a_burst_goes_to_all_workers_that_wait(
    bootstrap: str, new_topic: NewTopic, confluent: Client, group: str
) -> None:
    """Apache Kafka lends all of it to one."""
    topic, count = new_topic(), 3_000
    configure(bootstrap, group, share_auto_offset_reset="earliest")
    handled: Counter[int] = Counter()
    is_over = threading.Event()

    def work(number: int) -> None:
        consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        consumer.subscribe([topic])
        while not is_over.is_set():
            for _ in consumer.poll(0.2):
                time.sleep(0.002)
                handled[number] += 1
        consumer.close()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    try:

        def have_all_worked() -> bool:
            produced(confluent, topic, 12)
            return len(handled) == len(workers)

        eventually(have_all_worked, lambda: f"only {sorted(handled)} have worked", patience_s=TIMEOUT_S)
        before = handled.copy()
        produced(confluent, topic, count)
        eventually(lambda: handled.total() >= before.total() + count, lambda: handled, patience_s=TIMEOUT_S)
    finally:
        is_over.set()
        for worker in workers:
            worker.join()
    of_burst = handled - before
    assert of_burst.total() >= count
    assert max(of_burst.values()) <= 2 * of_burst.total() / len(workers), of_burst


@beyond_kafka
def test_accept_release_and_reject_do_what_they_say(
    new_worker: NewWorker, new_topic: NewTopic, confluent: Client, group: str
) -> None:
    topic = new_topic()
    produced(confluent, topic, 9)
    worker = new_worker(topic)
    records = gathered(lambda: worker.poll(1.0), 1)
    assert [record.offset for record in records] == list(range(9))
    worker.acknowledge(records[0::3], ACCEPT)
    worker.acknowledge(records[1::3], RELEASE)
    worker.acknowledge(records[2::3], REJECT)
    worker.commit()
    assert {record.offset for record in drained(worker, 3)} == {1, 4, 7}
    assert worker.poll(0.3) == []
    letters = confluent.read(f"dlq.{group}", 0, 0, 3)
    assert [letter.value for letter in letters] == [b"2", b"5", b"8"]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_few_records_of_a_large_batch_come_again_as_they_are(
    new_worker: NewWorker, new_topic: NewTopic, confluent: Client, codec: str
) -> None:
    topic, count = new_topic(), 1_500
    values = [random.Random(number).randbytes(40) for number in range(count)]
    confluent.produce(topic, [Record(value) for value in values], codec=codec)
    worker = new_worker(topic, 2_000)
    seen: dict[int, bytes] = {}
    again: list[Lent] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(seen) < count or len(again) < 3:
        assert time.monotonic() < deadline_s, f"{len(seen)} records came, {len(again)} again"
        records = worker.poll(0.5)
        failing = [record for record in records if record.offset in (7, 700, 1_499) and record.offset not in seen]
        again += [record for record in records if record.offset in seen]
        worker.acknowledge(failing, RELEASE)
        worker.acknowledge([record for record in records if record not in failing], ACCEPT)
        seen |= {record.offset: record.value for record in records}
        if records:
            worker.commit()
    assert [seen[offset] for offset in range(count)] == values
    assert {record.offset: record.value for record in again} == {each: values[each] for each in (7, 700, 1_499)}


@beyond_kafka
def test_a_poison_record_lands_in_the_dead_letters_after_the_limit_once(
    new_worker: NewWorker, new_topic: NewTopic, confluent: Client, bootstrap: str, group: str
) -> None:
    configure(bootstrap, group, share_delivery_count_limit="3")
    topic = new_topic()
    confluent.produce(topic, [Record(b"good"), Record(b"poison", key=b"k", headers=(("h", b"v"),)), Record(b"fine")])
    worker = new_worker(topic)
    deliveries = 0
    accepted: list[bytes] = []
    quiet_s = 0.0
    while deliveries < 3 or quiet_s < 0.5:
        records = worker.poll(0.25)
        quiet_s = 0.0 if records else quiet_s + 0.25
        poison = [record for record in records if record.value == b"poison"]
        deliveries += len(poison)
        worker.acknowledge(poison, RELEASE)
        rest = [record for record in records if record.value != b"poison"]
        accepted += [record.value for record in rest]
        worker.acknowledge(rest, ACCEPT)
        if records:
            worker.commit()
        assert deliveries <= 3 and quiet_s < TIMEOUT_S
    assert accepted == [b"good", b"fine"]
    letters = f"dlq.{group}"
    assert confluent.ends(letters, 0) == (0, 1)
    (letter,) = confluent.read(letters, 0, 0, 1)
    headers = dict(letter.headers)
    assert (letter.key, letter.value, headers["h"]) == (b"k", b"poison", b"v")
    assert headers["headwater.dlq.topic"] == topic.encode()
    assert headers["headwater.dlq.offset"] == b"1"
    assert headers["headwater.dlq.reason"] == b"delivery-limit"
    assert headers["headwater.dlq.delivery-count"] == b"3"


@beyond_kafka
def test_the_records_of_a_hanging_worker_reach_another_after_the_lock_time(
    new_worker: NewWorker, new_topic: NewTopic, confluent: Client, bootstrap: str, group: str
) -> None:
    configure(bootstrap, group, share_record_lock_duration_ms="1000")
    topic = new_topic()
    produced(confluent, topic, 10)
    hanging, working = new_worker(topic), new_worker(topic)
    held = gathered(lambda: hanging.poll(1.0), 1)
    found = drained(working, 10)
    assert {record.offset for record in found} == set(range(10))
    hanging.acknowledge(held, ACCEPT)
    with pytest.raises(Exception, match=r"(?i)record.?state"):
        hanging.commit()


@beyond_kafka
def test_the_records_of_a_killed_worker_reach_another_within_the_lock_time(
    new_topic: NewTopic, confluent: Client, bootstrap: str, group: str
) -> None:
    configure(
        bootstrap,
        group,
        share_auto_offset_reset="earliest",
        share_record_lock_duration_ms="60000",
        share_session_timeout_ms="60000",
        share_heartbeat_interval_ms="1000",
    )
    topic = new_topic(2)
    produced(confluent, topic, 100, partitions=2)
    command = [sys.executable, "-c", HELD_BY_CHILD, bootstrap, topic, group]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert int(child.stdout.readline()) > 0
        worker = ConfluentWorker(bootstrap, topic, group)
        try:
            child.send_signal(signal.SIGKILL)
            found = drained(worker, 100, timeout_s=45)  # before its leases and its session would have ended
            assert {record.value for record in found} == {b"%d" % number for number in range(100)}
        finally:
            worker.close()
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


@beyond_kafka
def test_order_per_key_holds_under_chaos(new_topic: NewTopic, confluent: Client, bootstrap: str, group: str) -> None:
    """Workers accept, give back and vanish at random: of each key, records are accepted in order, one at a time."""
    configure(
        bootstrap,
        group,
        share_auto_offset_reset="earliest",
        headwater_share_order="key",
        share_delivery_count_limit="100",
        share_record_lock_duration_ms="2000",
    )
    topic, keys, per_key = new_topic(2), 20, 15
    numbered = [
        Record(b"%d/%d" % (key, number), key=b"%d" % key, partition=key % 2)
        for number in range(per_key)
        for key in range(keys)
    ]
    confluent.produce(topic, numbered)
    accepted: dict[int, list[int]] = defaultdict(list)
    in_flight: set[int] = set()
    violations: list[str] = []
    lock = threading.Lock()
    done = threading.Event()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        while not done.is_set():
            worker = ConfluentWorker(bootstrap, topic, group, max_records=7)
            try:
                for _ in range(chance.randint(3, 12)):
                    handle(worker, chance)
            finally:
                worker.close()

    def handle(worker: Worker, chance: random.Random) -> None:
        records = worker.poll(0.2)
        by_key: dict[int, list[Lent]] = defaultdict(list)
        for record in records:
            by_key[int(record.value.partition(b"/")[0])].append(record)
        with lock:
            violations.extend(f"key {key} is held twice" for key in by_key if key in in_flight)
            in_flight.update(by_key)
        time.sleep(chance.random() / 200)
        kept: dict[int, list[int]] = {}
        for key, mine in by_key.items():
            count = chance.randint(0, len(mine)) if chance.random() < 0.3 else len(mine)
            worker.acknowledge(mine[:count], ACCEPT)
            worker.acknowledge(mine[count:], RELEASE)
            kept[key] = [int(record.value.partition(b"/")[2]) for record in mine[:count]]
        with lock:
            for key, numbers in kept.items():
                accepted[key] += numbers
            in_flight.difference_update(by_key)
            if sum(map(len, accepted.values())) >= keys * per_key:
                done.set()
        if records:
            worker.commit()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    finished = done.wait(60)
    done.set()
    for thread in threads:
        thread.join()
    assert violations == []
    assert finished, {key: len(numbers) for key, numbers in accepted.items()}
    assert accepted == {key: list(range(per_key)) for key in range(keys)}


@beyond_kafka
def test_delays_are_kept_at_10000_pending_records(
    new_topic: NewTopic, confluent: Client, bootstrap: str, group: str
) -> None:
    configure(bootstrap, group, share_auto_offset_reset="earliest")
    topic, count, spread_ms = new_topic(2), 10_000, 4_000
    first_ms = int(time.time() * 1000) + 3_000
    due = [first_ms + number * spread_ms // count for number in range(count)]
    random.Random(7).shuffle(due)
    confluent.produce(
        topic,
        [
            Record(b"%d" % at_ms, headers=(("headwater.deliver-at", b"%d" % at_ms),), partition=number % 2)
            for number, at_ms in enumerate(due)
        ],
    )
    worker = ConfluentWorker(bootstrap, topic, group)
    arrived: list[tuple[int, float]] = []
    try:
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(arrived) < count:
            assert time.monotonic() < deadline_s, f"{len(arrived)} of {count} came"
            records = worker.poll(0.5)
            now_ms = time.time() * 1000
            arrived += [(int(record.value), now_ms) for record in records]
            worker.acknowledge(records, ACCEPT)
    finally:
        worker.close()
    assert all(at_ms <= now_ms for at_ms, now_ms in arrived), "nothing comes early"
    assert sorted(at_ms for at_ms, _ in arrived) == sorted(due)


@pytest.mark.usefixtures("ours_only")
def test_a_kill_in_the_middle_loses_and_doubles_nothing_that_was_accepted(tmp_path: Path, group: str) -> None:
    total = 600
    with Broker(subprocess=True, data_dir=tmp_path / "data") as broker:
        from tests.clients.with_confluent import ConfluentClient

        client = ConfluentClient(broker.bootstrap)
        client.create_topic("jobs", 2)
        configure(broker.bootstrap, group, share_auto_offset_reset="earliest", share_record_lock_duration_ms="2000")
        produced(client, "jobs", total, partitions=2)
        accepted: Counter[bytes] = Counter()
        worker = ConfluentWorker(broker.bootstrap, "jobs", group, max_records=20)
        killed = 0
        deadline_s = time.monotonic() + 60
        try:
            while sum(accepted.values()) < total:
                assert time.monotonic() < deadline_s, f"{sum(accepted.values())} of {total} came"
                records = worker.poll(0.5)
                worker.acknowledge(records, ACCEPT)
                if records:
                    try:
                        worker.commit()
                    except Exception:
                        continue  # whether it was taken is open: it may come again, or not
                    accepted.update(record.value for record in records)
                if killed < 2 and sum(accepted.values()) >= (killed + 1) * total // 3:
                    killed += 1
                    broker.kill()
                    broker.start()
        finally:
            worker.close()
            client.close()
    assert killed == 2
    assert set(accepted) == {b"%d" % number for number in range(total)}
    assert set(accepted.values()) == {1}
