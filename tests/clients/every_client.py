"""The clients that judge, and how a test asks for those that can do what it needs."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.with_aiokafka import AiokafkaClient
from tests.clients.with_confluent import ConfluentClient
from tests.clients.with_java import JavaClient
from tests.clients.with_kafka_python import KafkaPythonClient
from tests.clients.with_kcat import KcatClient

CLIENTS: dict[str, Any] = {
    each.name: each for each in (ConfluentClient, KafkaPythonClient, AiokafkaClient, KcatClient, JavaClient)
}


def every_client(*abilities: str) -> pytest.MarkDecorator:
    """Run the test once with each client that has all of these abilities."""
    return pytest.mark.parametrize("client", [name for name in CLIENTS if _knows(name, abilities)], indirect=True)


def every_client_and(argument: str, values: Callable[[Any], tuple[str, ...]], *abilities: str) -> pytest.MarkDecorator:
    """Run the test with each client, and with each value that `values` gives for it."""
    pairs = [(name, value) for name in CLIENTS if _knows(name, abilities) for value in values(CLIENTS[name])]
    return pytest.mark.parametrize(("client", argument), pairs, indirect=["client"])


def _knows(name: str, abilities: tuple[str, ...]) -> bool:
    known: frozenset[str] = CLIENTS[name].abilities
    return known.issuperset(abilities)
