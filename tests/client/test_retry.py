"""When a request is tried again, and after how long."""

import inspect
from typing import Any

import aiokafka.errors
import kafka.errors
import pytest

from headwater.client.errors import BrokerRefused, ConnectionLost, NotServed
from headwater.client.retry import Backoff, passes
from headwater.model.errors import ErrorCode


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    backoff = Backoff(100.0, 60.0, first_pause_s=0.5, longest_pause_s=2.0)
    assert [backoff.next_pause_s(100.0) for _ in range(5)] == [0.5, 1.0, 2.0, 2.0, 2.0]


def test_no_pause_ends_after_the_deadline() -> None:
    backoff = Backoff(100.0, 10.0, first_pause_s=1.0, longest_pause_s=1.0)
    assert backoff.next_pause_s(109.0) == 1.0
    assert backoff.next_pause_s(109.1) is None
    assert backoff.next_pause_s(108.0) == 1.0, "it depends on the time alone"


def test_without_patience_there_is_one_try() -> None:
    assert Backoff(100.0, 0.0).next_pause_s(100.0) is None


def test_lost_connections_and_what_time_cures_pass() -> None:
    assert passes(ConnectionLost("gone"))
    assert passes(BrokerRefused(ErrorCode.NOT_COORDINATOR, None, "Group g"))
    assert not passes(BrokerRefused(ErrorCode.INVALID_CONFIG, None, "Group g"))
    assert not passes(BrokerRefused(30_000, None, "Group g")), "a code that is not known here"
    assert not passes(NotServed("it is old"))


def test_a_caller_knows_further_codes_that_pass_and_codes_that_are_final_for_it() -> None:
    refused = BrokerRefused(ErrorCode.NON_EMPTY_GROUP, None, "Group g")
    assert not passes(refused) and passes(refused, also={ErrorCode.NON_EMPTY_GROUP})
    absent = BrokerRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, "Topic t")
    assert passes(absent) and not passes(absent, final={ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


KAFKA_PYTHON_DIFFERS = {
    # Kafka's own class (CorruptRecordException) is retriable: the bytes on the wire may have been damaged.
    ErrorCode.CORRUPT_MESSAGE,
    # Kafka's class inherits it from a parent. The leader is the preferred one already: trying again changes nothing.
    ErrorCode.ELECTION_NOT_NEEDED,
}
AIOKAFKA_DIFFERS = {
    ErrorCode.CORRUPT_MESSAGE,
    # Older than Kafka's classes for these, all of which are retriable, or left to its own loops.
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.LISTENER_NOT_FOUND,
}


@pytest.mark.parametrize(
    ("library", "differs"), [(kafka.errors, KAFKA_PYTHON_DIFFERS), (aiokafka.errors, AIOKAFKA_DIFFERS)]
)
def test_a_code_is_retriable_if_the_clients_of_kafka_say_so(library: object, differs: set[ErrorCode]) -> None:
    classes: list[Any] = [each for _, each in inspect.getmembers(library, inspect.isclass)]
    judged = {each.errno: each.retriable for each in classes if isinstance(getattr(each, "errno", None), int)}
    ours = {code: code.is_retriable for code in ErrorCode if code in judged}
    assert len(ours) > 60
    assert {code for code, is_retriable in ours.items() if is_retriable != judged[code]} == differs
