"""What clients of HTTP are answered when the cluster fails."""

from collections.abc import Iterator

import pytest

from headwater.client.errors import BrokerRefused, ConnectionLost
from headwater.gateway.http.kafka_problems import problem_of
from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka.errors import (
    ClientBusy,
    ClusterError,
    KafkaFailure,
    TopicExists,
    topic_not_found,
)
from headwater.model.errors import ErrorCode


def kinds(kind: type[KafkaFailure] = KafkaFailure) -> Iterator[type[KafkaFailure]]:
    for each in kind.__subclasses__():
        yield each
        yield from kinds(each)


@pytest.mark.parametrize("kind", list(kinds()))
def test_every_failure_has_a_status_and_keeps_its_words(kind: type[KafkaFailure]) -> None:
    problem = problem_of(kind("It did not work."))
    assert 400 <= problem.status < 600 and problem.title
    assert "It did not work." in problem.detail
    assert (problem.headers == {"Retry-After": "1"}) == (problem.status in (429, 503))


@pytest.mark.parametrize("code", [code for code in ErrorCode if code], ids=lambda code: code.name)
def test_every_code_of_a_broker_has_a_status(code: ErrorCode) -> None:
    problem = problem_of(BrokerRefused(code, None, "Group billing"))
    assert problem.status in (400, 404, 409, 503)
    assert problem.detail.startswith(f"Group billing: {code.name} ({code.name}).")


def test_the_answer_says_what_it_is_about_and_what_can_be_done() -> None:
    missing = problem_of(topic_not_found("orders"))
    assert (missing.status, missing.members) == (404, {"topic": "orders"})
    assert missing.detail == "There is no topic orders. POST /v1/topics makes one."
    assert problem_of(TopicExists("Topic orders exists already.")).detail.endswith("PATCH changes it.")
    assert problem_of(ConnectionLost("nothing is known")).detail == "The cluster does not answer: nothing is known."
    assert problem_of(ClusterError("The cluster answered: no.", code="X")).members == {"code": "X"}
    assert problem_of(ClientBusy("10 records wait for the cluster.")).status == 429


def test_a_problem_stays_as_it_is() -> None:
    problem = Problem(418, "Teapot", "Short and stout.")
    assert problem_of(problem) is problem
