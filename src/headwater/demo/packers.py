"""Workers that pack orders: a queue (share group) on the topic that the pipeline reads as a stream.

Each order goes to one worker. A worker that fails gives the order back, and another one tries; what fails five times is
moved to the dead letters by the broker.
"""

import json
import random
import threading
from dataclasses import dataclass

from confluent_kafka import AcknowledgeType, Message, ShareConsumer

from headwater.cli.brokers import Brokers
from headwater.cli.client import client_config
from headwater.demo.background import Background, IsStopping
from headwater.demo.shop import ORDERS

QUEUE = "packers"
DEAD_LETTERS = "shop.orders.dead"
POLL_S = 0.5
ORDERS_AT_ONCE = 20
COMMIT_TIMEOUT_S = 10.0
CLUMSY_SHARE = 0.03
"""Of attempts: the box falls down, and the next attempt succeeds."""


class CannotPack(Exception):
    """Why this order cannot be packed, now or ever."""


@dataclass(frozen=True, slots=True)
class Packed:
    orders: int = 0
    given_back: int = 0


class Packers:
    def __init__(self, bootstrap: str, count: int, seed: int) -> None:
        self._bootstrap = bootstrap
        self._seed = seed
        self._lock = threading.Lock()
        self._packed = Packed()
        self.backgrounds = [Background(f"packer-{number}", self._worker(number)) for number in range(count)]

    @property
    def packed(self) -> Packed:
        with self._lock:
            return self._packed

    def _worker(self, number: int) -> "_Work":
        return _Work(self, self._bootstrap, random.Random(self._seed + number))

    def add(self, orders: int, given_back: int) -> None:
        with self._lock:
            self._packed = Packed(self._packed.orders + orders, self._packed.given_back + given_back)


class _Work:
    """The loop of one worker."""

    def __init__(self, packers: Packers, bootstrap: str, chance: random.Random) -> None:
        self._packers = packers
        self._bootstrap = bootstrap
        self._chance = chance

    def __call__(self, is_stopping: IsStopping) -> None:
        config = {"group.id": QUEUE, "share.acknowledgement.mode": "explicit", "max.poll.records": ORDERS_AT_ONCE}
        with ShareConsumer({**client_config(Brokers(self._bootstrap)), **config}) as consumer:
            consumer.subscribe([ORDERS])
            while not is_stopping():
                lent = [message for message in consumer.poll(POLL_S) if message.error() is None]
                if not lent:
                    continue
                given_back = 0
                for message in lent:
                    try:
                        pack(message, self._chance)
                        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                    except CannotPack:
                        consumer.acknowledge(message, AcknowledgeType.RELEASE)
                        given_back += 1
                errors = [error for error in consumer.commit_sync(COMMIT_TIMEOUT_S).values() if error is not None]
                if errors:
                    raise errors[0]
                self._packers.add(len(lent) - given_back, given_back)


def pack(message: Message, chance: random.Random) -> None:
    """Raises CannotPack."""
    try:
        order = json.loads(message.value() or b"")
    except ValueError as error:
        raise CannotPack(f"it is no order: {error}") from error
    if not order.get("address"):
        raise CannotPack(f"order {order.get('id')} has no address")
    if chance.random() < CLUMSY_SHARE:
        raise CannotPack("the box fell down")
