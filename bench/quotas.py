"""`python -m bench.quotas`: what greedy clients get of a quota.

Several producers with one client id, and several consumers with another, take all that they are given. What they get
beyond the first ten seconds' worth, which may be used at once, should be the limit: at most a twentieth above it, and
at most a tenth below. This is a real broker in real time; the same at the level of meters, with a clock that a test
moves, is in tests/security/test_quota_meters.py. With `--cost`, what is in quota_cost.py."""

import argparse
import subprocess
import sys
import threading
import time
import uuid

from bench import quota_cost
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.testing import Broker

CLIENTS = 3
VALUE_BYTES = 10_000
ALLOWANCE_S = 10.0


class Meter:
    """Bytes that clients say they have sent or read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.size_bytes = 0
        self.throttled = 0

    def took(self, size_bytes: int) -> None:
        with self._lock:
            self.size_bytes += size_bytes

    def was_throttled(self, _: object) -> None:
        with self._lock:
            self.throttled += 1


def produce(bootstrap: str, topic: str, meter: Meter, until_s: float) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "greedy-producer",
            "throttle_cb": meter.was_throttled,
            "batch.size": 100_000,
            "linger.ms": 20,
            "queue.buffering.max.kbytes": 2_000,
        }
    )

    def delivered(error: object, message: object) -> None:
        if error is None:
            meter.took(VALUE_BYTES)

    while time.monotonic() < until_s:
        try:
            producer.produce(topic, bytes(VALUE_BYTES), on_delivery=delivered)
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)
    producer.purge()
    producer.flush()


def consume(bootstrap: str, topic: str, meter: Meter, until_s: float) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "greedy-consumer",
            "group.id": str(uuid.uuid4()),
            "enable.auto.commit": False,
            "throttle_cb": meter.was_throttled,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    while time.monotonic() < until_s:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            meter.took(len(message.value()))
    consumer.close()


def limit(bootstrap: str, *words: str) -> None:
    command = [sys.executable, "-m", "headwater.cli.main", "quota", "set", *words, "--bootstrap", bootstrap]
    subprocess.run(command, check=True)


def fill(bootstrap: str, topic: str, size_bytes: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 100_000, "linger.ms": 20})
    for _ in range(size_bytes // VALUE_BYTES):
        producer.produce(topic, bytes(VALUE_BYTES))
        producer.poll(0)
    producer.flush()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--limit", type=int, default=200_000, help="bytes per second")
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--cost", action="store_true", help="what quotas cost clients that are far below them")
    options.add_argument("--rounds", type=int, default=40, help="of --cost")
    chosen = options.parse_args()
    if chosen.cost:
        quota_cost.main(chosen.rounds)
        return
    with Broker(subprocess=True) as broker:
        fill(broker.bootstrap, "full", int(chosen.limit * (2 * ALLOWANCE_S + chosen.seconds)))
        limit(broker.bootstrap, "--client-id", "greedy-producer", "--produce", str(chosen.limit))
        limit(broker.bootstrap, "--client-id", "greedy-consumer", "--consume", str(chosen.limit))
        until_s = time.monotonic() + chosen.seconds
        meters = {"produced": Meter(), "consumed": Meter()}
        runs = [(produce, "empty", meters["produced"]), (consume, "full", meters["consumed"])]
        threads = [
            threading.Thread(target=run, args=(broker.bootstrap, topic, meter, until_s))
            for run, topic, meter in runs
            for _ in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name, meter in meters.items():
        share = (meter.size_bytes / chosen.limit - ALLOWANCE_S) / chosen.seconds
        print(f"{name}: {share:.3f} of the limit, {meter.throttled} reports of throttling, {CLIENTS} clients")


if __name__ == "__main__":
    main()
