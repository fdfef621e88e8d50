"""Failures of the cluster as problems of HTTP: the one place where they are translated."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headwater.client.errors import ClientError
from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka.client_errors import failure_of_client
from headwater.gateway.kafka.errors import (
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

FAILURES: Final = (Problem, KafkaFailure, ClientError)
"""What `problem_of` translates: everything that a client of HTTP is answered with a reason for."""

_UNAVAILABLE: Final = (503, "Cluster unavailable")
_ANSWERS: Final[dict[type[KafkaFailure], tuple[int, str]]] = {
    ClusterNotReady: _UNAVAILABLE,
    ClusterUnavailable: _UNAVAILABLE,
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
_RETRIED: Final = (429, 503)


def problem_of(failure: Problem | KafkaFailure | ClientError) -> Problem:
    if isinstance(failure, Problem):
        return failure
    if isinstance(failure, ClientError):
        failure = failure_of_client(failure)
    status, title = _ANSWERS[type(failure)]
    headers = {"Retry-After": "1"} if status in _RETRIED else None
    return Problem(status, title, _detail(failure), headers=headers, **failure.about)


async def answer_kafka_failure(_: Request, error: Exception) -> Response:
    """Starlette's handler of the exception."""
    assert isinstance(error, KafkaFailure | ClientError), "registered for these alone"
    return problem_of(error).response()


def _detail(failure: KafkaFailure) -> str:
    """The message, and what a client of HTTP can do about it."""
    match failure:
        case TopicNotFound():
            return f"{failure} POST /v1/topics makes one."
        case TopicExists():
            return f"{failure} PATCH changes it."
    return str(failure)
