"""What errors of librdkafka and of our own client mean to the gateway."""

import pytest
from confluent_kafka import KafkaError

from headwater.client.errors import BrokerRefused, ConnectionLost
from headwater.gateway.kafka.client_errors import MISSING_TOPIC, failure_of_client
from headwater.gateway.kafka.errors import (
    ClusterNotReady,
    ClusterUnavailable,
    GroupInUse,
    GroupNotFound,
    InvalidRequest,
    TopicNotFound,
)
from headwater.gateway.kafka.librdkafka_errors import PASSING, UNREACHABLE, failure_of
from headwater.model.errors import ErrorCode


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.is_retriable], ids=lambda code: code.name)
def test_what_passes_may_be_tried_again_unless_the_topic_is_missing_or_the_record_damaged(code: ErrorCode) -> None:
    of_librdkafka = failure_of(KafkaError(code), topic="orders")
    of_client = failure_of_client(BrokerRefused(code, None, "Group billing"))
    if code in MISSING_TOPIC:
        assert isinstance(of_librdkafka, TopicNotFound) and isinstance(of_client, ClusterUnavailable)
    elif code == ErrorCode.CORRUPT_MESSAGE:
        assert isinstance(of_librdkafka, InvalidRequest)
    else:
        assert isinstance(of_librdkafka, ClusterNotReady | ClusterUnavailable)
        assert isinstance(of_client, ClusterNotReady)


def test_librdkafka_has_waited_itself_for_all_but_leaders_and_coordinators() -> None:
    known = [code for code in PASSING if code in ErrorCode._value2member_map_]
    assert all(ErrorCode.is_retriable_number(code) for code in known) and UNREACHABLE.issuperset(known)


def test_refusals_become_failures_that_callers_tell_apart() -> None:
    kinds = {
        ErrorCode.GROUP_ID_NOT_FOUND: GroupNotFound,
        ErrorCode.NON_EMPTY_GROUP: GroupInUse,
        ErrorCode.INVALID_CONFIG: InvalidRequest,
        ErrorCode.UNKNOWN_SERVER_ERROR: ClusterUnavailable,
    }
    for code, kind in kinds.items():
        assert type(failure_of_client(BrokerRefused(code, "why", "Group billing"))) is kind
    assert isinstance(failure_of_client(ConnectionLost("gone")), ClusterNotReady)
