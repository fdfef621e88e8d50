"""Live traffic: what the shop's people do, sent to the broker as it happens."""

import time
from collections import Counter

from confluent_kafka import KafkaError, Message, Producer

from headwater.cli.brokers import Brokers
from headwater.cli.client import client_config
from headwater.demo.background import Background, IsStopping
from headwater.demo.shop import CLICKS, ORDERS, Shop

TICK_S = 0.1
FLUSH_TIMEOUT_S = 10.0


class ShopTraffic:
    """`sent` counts what the broker has acknowledged, by topic."""

    def __init__(self, bootstrap: str, seed: int, sessions_per_s: float) -> None:
        self.sent: Counter[str] = Counter({CLICKS: 0, ORDERS: 0})
        self._seed = seed
        self._sessions_per_s = sessions_per_s
        self._producer = Producer({**client_config(Brokers(bootstrap)), "linger.ms": 20, "enable.idempotence": True})
        self._failed: KafkaError | None = None
        self.background = Background("traffic", self._run)

    def _run(self, is_stopping: IsStopping) -> None:
        shop = Shop(self._seed, _now_ms(), self._sessions_per_s)
        while not is_stopping():
            for event in shop.until(_now_ms()):
                self._producer.produce(event.topic, event.value, event.key, on_delivery=self._delivered)
            self._producer.poll(TICK_S)
            if self._failed is not None:
                raise RuntimeError(f"The broker did not take a record: {self._failed}")
        self._producer.flush(FLUSH_TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.sent[message.topic() or ""] += 1
        else:
            self._failed = error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
