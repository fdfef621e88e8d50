"""Failures of the cluster as problems of HTTP: the one place where they are translated."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka.errors import (
    BrokerGone,
    BrokerRefused,
    ClientBusy,
    ClusterError,
    ClusterNotReady,
    ClusterUnavailable,
    GroupInUse,
    GroupNotFound,
    InvalidRequest,
    KafkaFailure,
    NotAuthorized,
    RecordOverLimit,
    TopicExists,
    TopicNotFound,
)
from headwater.model.errors import ErrorCode

FAILURES: Final = (Problem, KafkaFailure)
"""What `problem_of` translates: everything that a client of HTTP is answered with a reason for."""

_UNAVAILABLE: Final = (503, "Cluster unavailable")
_ANSWERS: Final[dict[type[KafkaFailure], tuple[int, str]]] = {
    ClusterNotReady: _UNAVAILABLE,
    ClusterUnavailable: _UNAVAILABLE,
    BrokerGone: _UNAVAILABLE,
    ClientBusy: (429, "Too many requests"),
    InvalidRequest: (400, "Bad request"),
    TopicNotFound: (404, "Unknown topic"),
    TopicExists: (409, "Topic exists"),
    GroupNotFound: (404, "Unknown group"),
    GroupInUse: (409, "Group in use"),
    RecordOverLimit: (413, "Content too large"),
    NotAuthorized: (403, "Forbidden"),
    ClusterError: (502, "Cluster error"),
}
_ANSWERS_BY_CODE: Final[dict[int, tuple[int, str]]] = {
    ErrorCode.INVALID_CONFIG: (400, "Bad request"),
    ErrorCode.INVALID_REQUEST: (400, "Bad request"),
    ErrorCode.INVALID_GROUP_ID: (400, "Bad request"),
    ErrorCode.POLICY_VIOLATION: (400, "Bad request"),
    ErrorCode.NON_EMPTY_GROUP: (409, "Group in use"),
    ErrorCode.GROUP_ID_NOT_FOUND: (404, "Unknown subscription"),
}
_RETRIED: Final = (429, 503)


def problem_of(failure: Problem | KafkaFailure) -> Problem:
    if isinstance(failure, Problem):
        return failure
    if isinstance(failure, BrokerRefused):
        status, title = _ANSWERS_BY_CODE.get(failure.code, _UNAVAILABLE)
    else:
        status, title = _ANSWERS[type(failure)]
    headers = {"Retry-After": "1"} if status in _RETRIED else None
    return Problem(status, title, _detail(failure), headers=headers, **failure.about)


async def answer_kafka_failure(_: Request, error: Exception) -> Response:
    """Starlette's handler of the exception."""
    assert isinstance(error, KafkaFailure), "registered for these alone"
    return problem_of(error).response()


def _detail(failure: KafkaFailure) -> str:
    """The message, and what a client of HTTP can do about it."""
    match failure:
        case TopicNotFound():
            return f"{failure} POST /v1/topics makes one."
        case TopicExists():
            return f"{failure} PATCH changes it."
        case BrokerGone():
            return f"The cluster does not answer: {failure}."
        case BrokerRefused(code=ErrorCode.NON_EMPTY_GROUP):
            return f"{failure}. Stop its members first, or wait until they have left."
        case BrokerRefused():
            return f"{failure}."
    return str(failure)
