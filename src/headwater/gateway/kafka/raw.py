"""Requests that librdkafka has no call for, sent to a broker on a connection of their own."""

import asyncio
from typing import Any

from confluent_kafka import KafkaError

from headwater.gateway.kafka.brokers import FIND_COORDINATOR, GROUP_KEY, Address
from headwater.gateway.kafka.connection import KafkaConnection
from headwater.gateway.kafka.errors import (
    BrokerGone,
    ClusterError,
    ClusterNotReady,
    ClusterUnavailable,
    GroupInUse,
    GroupNotFound,
)
from headwater.gateway.kafka.librdkafka_errors import PASSING, UNREACHABLE
from headwater.wire.message import Message

TIMEOUT_S = 10.0


async def ask(broker: Address, api_key: int, version: int, **fields: Any) -> Message:
    """Send one request to one broker. Raises ClusterNotReady if it is gone, ClusterUnavailable if it is silent."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            connection = await KafkaConnection.open(*broker)
            try:
                return await connection.ask(api_key, version, **fields)
            finally:
                connection.close()
    except TimeoutError as error:
        raise ClusterUnavailable(_unanswered(broker, api_key, f"not within {TIMEOUT_S:.0f} s")) from error
    except BrokerGone as error:
        raise ClusterNotReady(_unanswered(broker, api_key, str(error))) from error


async def coordinator(broker: Address, name: str) -> Address:
    """The broker that coordinates a group, as any broker knows it."""
    answer = await ask(broker, FIND_COORDINATOR, 4, key_type=GROUP_KEY, coordinator_keys=[name])
    found = answer.coordinators[0]
    if found.error_code:
        raise ClusterNotReady(f"The coordinator of {name} is not known now (error {found.error_code}).")
    return found.host, found.port


def check(code: int, reason: str | None, subject: str) -> None:
    """Raises the failure that an error code in a response means."""

    if code == KafkaError.GROUP_ID_NOT_FOUND:
        raise GroupNotFound(f"{subject} does not exist.")
    if code == KafkaError.NON_EMPTY_GROUP:
        raise GroupInUse(f"{subject} has members that are running. Stop them first.")
    if code:
        error = KafkaError(code)
        message = f"{subject}: {(reason or error.str()).rstrip('.')} ({error.name()})."
        if code in PASSING:
            raise ClusterNotReady(message)
        raise ClusterUnavailable(message) if code in UNREACHABLE else ClusterError(message)


def _unanswered(broker: Address, api_key: int, reason: str) -> str:
    host, port = broker
    return f"The broker at {host}:{port} does not answer request {api_key}: {reason}."
