"""The same Idempotency-Key again gives the same answer and writes nothing, whatever happened between."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.gateway.gateways import client_of, serving

from headwater.testing import Broker

Headers = dict[str, str]


@pytest.fixture
def key() -> Headers:
    return {"Idempotency-Key": uuid.uuid4().hex}


def count(http: httpx.Client, topic: str) -> int:
    return len(http.get(f"/v1/topics/{topic}/records", params={"limit": 1000}).json()["records"])


def test_the_second_time_is_answered_like_the_first(http: httpx.Client, topic: str, key: Headers) -> None:
    body = {"records": [{"value": n} for n in range(5)]}
    first = http.post(f"/v1/topics/{topic}/records", json=body, headers=key)
    second = http.post(f"/v1/topics/{topic}/records", json=body, headers=key)
    assert first.status_code == second.status_code == 200, first.text
    assert first.json() == second.json()
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert count(http, topic) == 5


def test_another_body_under_the_same_key_is_a_mistake(http: httpx.Client, topic: str, key: Headers) -> None:
    assert http.post(f"/v1/topics/{topic}/records", json={"value": 1}, headers=key).status_code == 200
    refused = http.post(f"/v1/topics/{topic}/records", json={"value": 2}, headers=key)
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert count(http, topic) == 1


def test_a_key_outlives_the_gateway(headwater_session: Broker, http: httpx.Client, topic: str, key: Headers) -> None:
    answers = []
    for _ in range(2):
        with serving(headwater_session.bootstrap) as gateway, client_of(gateway) as client:
            answers.append(client.post(f"/v1/topics/{topic}/records", json={"value": "once"}, headers=key))
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert count(http, topic) == 1


def test_two_gateways_with_the_same_request_write_it_once(
    headwater_session: Broker, http: httpx.Client, topic: str
) -> None:
    keys = [uuid.uuid4().hex for _ in range(12)]
    with (
        serving(headwater_session.bootstrap) as one,
        serving(headwater_session.bootstrap) as two,
        client_of(one) as first,
        client_of(two) as second,
        ThreadPoolExecutor(8) as pool,
    ):

        def ask(asked: tuple[httpx.Client, str]) -> httpx.Response:
            client, key = asked
            for _ in range(20):
                answer = client.post(
                    f"/v1/topics/{topic}/records", json={"value": key}, headers={"Idempotency-Key": key}
                )
                if answer.status_code != 503:
                    break
            return answer

        answers = list(pool.map(ask, [(client, key) for key in keys for client in (first, second)]))
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    for mine, theirs in zip(answers[::2], answers[1::2], strict=True):
        assert mine.json() == theirs.json()
    assert count(http, topic) == len(keys)


def test_what_was_refused_may_be_tried_again_under_its_key(http: httpx.Client, name: str, key: Headers) -> None:
    http.post("/v1/topics", json={"name": name, "config": {"max.message.bytes": 1000}})
    body = {"records": [{"value": "fits"}, {"value": "x" * 5000}]}
    refused = http.post(f"/v1/topics/{name}/records", json=body, headers=key)
    assert refused.status_code == 413, refused.text
    assert count(http, name) == 0, "all or nothing"
    http.patch(f"/v1/topics/{name}", json={"config": {"max.message.bytes": None}})
    again = http.post(f"/v1/topics/{name}/records", json=body, headers=key)
    assert again.status_code == 200, again.text
    assert count(http, name) == 2


def test_a_raw_body_has_a_key_as_well(http: httpx.Client, topic: str, key: Headers) -> None:
    headers = {**key, "content-type": "text/plain"}
    places = [http.post(f"/v1/topics/{topic}/records", content="x", headers=headers).json() for _ in range(2)]
    assert places[0] == places[1]
    assert http.post(f"/v1/topics/{topic}/records?key=a", content="x", headers=headers).status_code == 422
    assert count(http, topic) == 1


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_has_a_length(http: httpx.Client, topic: str, key: str) -> None:
    answer = http.post(f"/v1/topics/{topic}/records", json={"value": 1}, headers={"Idempotency-Key": key})
    assert answer.status_code == 400
