"""The way of records through a pipeline that copies a topic: sent at a steady rate, each with the time at which it was
sent, and awaited at the other end."""

import struct
import time
from dataclasses import dataclass
from statistics import quantiles
from threading import Thread

from bench.drain import WrongCount
from confluent_kafka import Consumer, Producer, TopicPartition

RECORD_BYTES = 100
TICK_S = 0.01
ARRIVAL_TIMEOUT_S = 60.0
FIRST_ARRIVAL_TIMEOUT_S = 180.0
"""Of the first record, with which the pipeline's processes start."""
FIRST = -1
STAMP = struct.Struct(">qq")
"""Number, and time of sending in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Pace:
    records_per_s: int
    warm_up_s: float
    """what is sent so early does not count"""
    measured_s: float

    @property
    def records(self) -> int:
        return int(self.records_per_s * (self.warm_up_s + self.measured_s))

    @property
    def uncounted(self) -> int:
        return int(self.records_per_s * self.warm_up_s)


@dataclass(frozen=True, slots=True)
class Latency:
    p50_ms: float
    p99_ms: float


def latency(bootstrap: str, from_: str, to: str, partitions: int, pace: Pace) -> Latency:
    """Raises WrongCount if a record does not arrive. One that arrives twice counts once."""
    options = {"bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed", "log_level": 0}
    consumer = Consumer({**options, "enable.auto.commit": False, "fetch.wait.max.ms": 100})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})
    try:
        consumer.assign([TopicPartition(to, partition, 0) for partition in range(partitions)])
        _send_one(producer, from_, FIRST)
        _receive(consumer, range(FIRST, FIRST + 1), FIRST_ARRIVAL_TIMEOUT_S)
        sender = Thread(target=_send, args=(producer, from_, pace))
        sender.start()
        try:
            taken_ns = _receive(consumer, range(pace.records), pace.warm_up_s + pace.measured_s + ARRIVAL_TIMEOUT_S)
        finally:
            sender.join()
    finally:
        consumer.close()
    counted = [taken_ns[number] / 1e6 for number in range(pace.uncounted, pace.records)]
    cuts = quantiles(counted, n=100, method="inclusive")
    return Latency(cuts[49], cuts[98])


def _send(producer: Producer, topic: str, pace: Pace) -> None:
    begun_s, sent = time.monotonic(), 0
    while sent < pace.records:
        due = min(pace.records, int((time.monotonic() - begun_s) * pace.records_per_s) + 1)
        for number in range(sent, due):
            _send_one(producer, topic, number)
        sent = due
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush(ARRIVAL_TIMEOUT_S)


def _send_one(producer: Producer, topic: str, number: int) -> None:
    stamped = STAMP.pack(number, time.monotonic_ns()).ljust(RECORD_BYTES, b"\0")
    producer.produce(topic, stamped, key=str(number))


def _receive(consumer: Consumer, numbers: range, timeout_s: float) -> dict[int, int]:
    """By the number of each record, how long it was on its way."""
    taken_ns: dict[int, int] = {}
    deadline_s = time.monotonic() + timeout_s
    while len(taken_ns) < len(numbers):
        message = consumer.poll(1.0)
        now_ns = time.monotonic_ns()
        if message is not None and message.error() is None:
            number, sent_ns = STAMP.unpack_from(message.value() or b"")
            if number in numbers:
                taken_ns.setdefault(number, now_ns - sent_ns)
        elif time.monotonic() > deadline_s:
            raise WrongCount(f"of {len(numbers)} records {len(taken_ns)} came through within {timeout_s:.0f} s")
    return taken_ns
