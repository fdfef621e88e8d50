"""The clients whose transactions judge, and how a test asks for them."""

from typing import Any

import pytest

from tests.clients.transacting_with_aiokafka import AiokafkaTransactor
from tests.clients.transacting_with_confluent import ConfluentTransactor
from tests.clients.transacting_with_java import JavaTransactor
from tests.clients.transacting_with_kafka_python import KafkaPythonTransactor

TRANSACTORS: dict[str, Any] = {
    each.name: each for each in (ConfluentTransactor, KafkaPythonTransactor, AiokafkaTransactor, JavaTransactor)
}

every_transactor = pytest.mark.parametrize("transactor", list(TRANSACTORS), indirect=True)
"""Run the test once with each client."""

every_member_of_transactions = pytest.mark.parametrize(
    ("transactor", "protocol"),
    [(name, protocol) for name, each in TRANSACTORS.items() for protocol in each.protocols],
    indirect=["transactor"],
)
"""Run the test with each client, in each kind of group that it can be a member of."""

every_transactor_that_tells_membership = pytest.mark.parametrize(
    ("transactor", "protocol"),
    [(name, protocol) for name, each in TRANSACTORS.items() if each.tells_membership for protocol in each.protocols],
    indirect=["transactor"],
)
"""The same, with those that say who in the group sends the offsets."""
