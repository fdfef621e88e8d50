"""Settings that are altered on a running broker: what clients notice of them at once, and after a restart."""

import logging
import socket

import pytest

from headwater.model.errors import ErrorCode
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing.broker import Broker
from tests.broker.settings.altered_settings import (
    CREATE,
    DESCRIBE,
    INIT_PRODUCER,
    LOGGER,
    METADATA,
    PRODUCE,
    alter,
    heartbeat_interval_ms,
)
from tests.support.messages import nested
from tests.support.wire import ask


def partitions_on_use(broker: Broker, topic: str) -> int:
    ask(broker, METADATA, 9, topics=[nested(name=topic)], allow_auto_topic_creation=True)
    (found,) = ask(broker, METADATA, 9, topics=[nested(name=topic)], allow_auto_topic_creation=False).topics
    return len(found.partitions)


def produce(broker: Broker, topic: str, size_bytes: int) -> int:
    batch = bytes(build_batch([Record(None, bytes(size_bytes))]))
    parts = [nested(index=0, records=batch)]
    answer = ask(broker, PRODUCE, 9, acks=-1, timeout_ms=9_000, topic_data=[nested(name=topic, partition_data=parts)])
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def longest_transaction(broker: Broker, timeout_ms: int) -> int:
    answer = ask(
        broker, INIT_PRODUCER, 4, transactional_id="t", transaction_timeout_ms=timeout_ms, producer_id=-1,
        producer_epoch=-1,
    )  # fmt: skip
    code: int = answer.error_code
    return code


def test_clients_notice_at_once_and_after_a_restart(headwater: Broker) -> None:
    assert partitions_on_use(headwater, "before") == 1
    assert produce(headwater, "before", 2_000) == ErrorCode.NONE
    assert longest_transaction(headwater, 60_000) == ErrorCode.NONE
    alter(headwater, "", num_partitions="3", message_max_bytes="1000", transaction_max_timeout_ms="5000")
    alter(headwater, "1", group_consumer_heartbeat_interval_ms="7000", num_partitions="4")
    for run in ("altered", "restarted"):
        assert partitions_on_use(headwater, run) == 4
        assert produce(headwater, "before", 2_000) == ErrorCode.MESSAGE_TOO_LARGE
        assert produce(headwater, "before", 500) == ErrorCode.NONE
        assert longest_transaction(headwater, 60_000) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert heartbeat_interval_ms(headwater, run) == 7_000
        headwater.restart()
    alter(headwater, "1", num_partitions=None, group_consumer_heartbeat_interval_ms=None)
    alter(headwater, "", message_max_bytes=None, transaction_max_timeout_ms=None)
    assert partitions_on_use(headwater, "after") == 3
    assert produce(headwater, "before", 2_000) == ErrorCode.NONE
    assert longest_transaction(headwater, 60_000) == ErrorCode.NONE
    assert heartbeat_interval_ms(headwater, "after") == 1_000


def test_a_topic_keeps_what_it_says_itself(headwater: Broker) -> None:
    own = [nested(name="min.compaction.lag.ms", value="5000"), nested(name="max.message.bytes", value="4000")]
    asked = [nested(name="own", num_partitions=1, replication_factor=1, assignments=[], configs=own)]
    assert ask(headwater, CREATE, 5, topics=asked, timeout_ms=9_000, validate_only=False).topics[0].error_code == 0
    alter(headwater, "1", message_max_bytes="1000", log_cleaner_max_compaction_lag_ms="1000")
    assert produce(headwater, "own", 2_000) == ErrorCode.NONE
    headwater.restart()
    assert produce(headwater, "own", 2_000) == ErrorCode.NONE


def test_limits_of_connections_hold_for_the_next_ones(headwater: Broker) -> None:
    alter(headwater, "1", max_connections_per_ip="1")
    with socket.create_connection((headwater.host, headwater.port)) as held:
        held.sendall(b"\0")
        with pytest.raises((AssertionError, OSError)):
            ask(headwater, METADATA, 9, topics=[], allow_auto_topic_creation=False)
    for _ in range(100):  # the broker hears of the end of the first one a moment later
        try:
            alter(headwater, "1", max_connections_per_ip=None)
            break
        except (AssertionError, OSError):
            continue
    with socket.create_connection((headwater.host, headwater.port)):
        ask(headwater, METADATA, 9, topics=[], allow_auto_topic_creation=False)


def test_a_logger_is_altered_and_goes_back(headwater: Broker) -> None:
    logger = logging.getLogger("headwater")
    before = logger.level
    try:
        alter(headwater, "1", LOGGER, headwater="ERROR")
        assert logger.level == logging.ERROR
        asked = [nested(resource_type=LOGGER, resource_name="1", configuration_keys=["headwater"])]
        (entry,) = ask(headwater, DESCRIBE, 4, resources=asked, include_synonyms=False).results[0].configs
        assert (entry.value, entry.read_only) == ("ERROR", False)
        alter(headwater, "1", LOGGER, headwater=None)
        assert logger.level == before
    finally:
        logger.setLevel(before)
