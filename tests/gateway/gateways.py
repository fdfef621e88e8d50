"""Gateways for tests, each on a free port, and clients of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from confluent_kafka import Consumer

from headwater.cli.runtime import new_event_loop
from headwater.gateway.config import GatewayConfig
from headwater.gateway.server import GatewayThread, listen
from headwater.testing import Broker


@contextmanager
def serving(bootstrap: str, **config: Any) -> Iterator[GatewayThread]:
    """A gateway on a free port, in a thread."""
    settings = GatewayConfig(bootstrap=bootstrap, port=0, **config)
    gateway = GatewayThread(settings, listen(settings), new_event_loop)
    gateway.start()
    try:
        gateway.wait_until_ready()
        yield gateway
    finally:
        gateway.stop()


def client_of(gateway: GatewayThread, **options: Any) -> httpx.Client:
    # Proxies that the environment names are not for a server on this machine.
    return httpx.Client(base_url=f"http://{gateway.host}:{gateway.port}", timeout=60, trust_env=False, **options)


@contextmanager
def reading(broker: Broker, topic: str, group: str) -> Iterator[Consumer]:
    """A member of a group that has committed what it read."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        consumer.commit(message, asynchronous=False)
        yield consumer
    finally:
        consumer.close()
