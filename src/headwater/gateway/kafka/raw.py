"""Requests that librdkafka has no call for, sent to a broker on a connection of their own."""

import asyncio
from typing import Any

from headwater.gateway.http.problems import NotNow, Problem, unavailable
from headwater.gateway.kafka.brokers import FIND_COORDINATOR, GROUP_KEY, Address
from headwater.gateway.kafka.connection import BrokerGone, Connection
from headwater.wire.codec import Message

TIMEOUT_S = 10.0


async def ask(broker: Address, api_key: int, version: int, **fields: Any) -> Message:
    """Ask one broker for one thing. Raises Problem (503); NotNow if the broker is gone, or is about to be."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            connection = await Connection.open(*broker)
            try:
                return await connection.ask(api_key, version, **fields)
            finally:
                connection.close()
    except TimeoutError as error:
        raise unavailable(_unanswered(broker, api_key, f"not within {TIMEOUT_S:.0f} s")) from error
    except BrokerGone as error:
        raise NotNow(_unanswered(broker, api_key, str(error))) from error


async def coordinator(broker: Address, name: str) -> Address:
    """The broker to ask about a group; any broker knows."""
    answer = await ask(broker, FIND_COORDINATOR, 4, key_type=GROUP_KEY, coordinator_keys=[name])
    found = answer.coordinators[0]
    if found.error_code:
        raise NotNow(f"The coordinator of {name} is not known now (error {found.error_code}).")
    return found.host, found.port


def check(code: int, reason: str | None, subject: str) -> None:
    """Raise a Problem for an error in an answer."""
    from confluent_kafka import KafkaError

    from headwater.gateway.kafka.errors import PASSING, UNREACHABLE

    if code == KafkaError.GROUP_ID_NOT_FOUND:
        raise Problem(404, "Unknown group", f"{subject} does not exist.")
    if code == KafkaError.NON_EMPTY_GROUP:
        raise Problem(409, "Group in use", f"{subject} has members that are running. Stop them first.")
    if code:
        error = KafkaError(code)
        told = f"{subject}: {(reason or error.str()).rstrip('.')} ({error.name()})."
        if code in PASSING:
            raise NotNow(told)
        raise unavailable(told) if code in UNREACHABLE else Problem(502, "Cluster error", told)


def _unanswered(broker: Address, api_key: int, reason: str) -> str:
    host, port = broker
    return f"The broker at {host}:{port} does not answer request {api_key}: {reason}."
