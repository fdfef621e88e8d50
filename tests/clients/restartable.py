"""A broker that a test may kill and start again on the same port and data.

With HEADWATER_TEST_RESTARTS=kafka it is an Apache Kafka, to check the tests themselves."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Restartable(Protocol):
    @property
    def bootstrap(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> object: ...


@contextmanager
def restartable(durability: str = "os") -> Iterator[Restartable]:
    if os.environ.get("HEADWATER_TEST_RESTARTS") == "kafka":
        from bench.kafka import KafkaServer

        with KafkaServer() as kafka:
            yield kafka
        return
    from headwater.testing import Broker

    with Broker(subprocess=True, durability=durability) as broker:
        yield broker
