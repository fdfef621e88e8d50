"""The same Idempotency-Key again gives the same answer and writes nothing, whatever happened between."""

import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import httpx
import pytest

from headwater.gateway.records.idempotency_slot import SLOTS
from headwater.testing import Broker
from tests.gateway.gateways import client_of, serving

Headers = dict[str, str]


@pytest.fixture
def key() -> Headers:
    return {"Idempotency-Key": uuid.uuid4().hex}


def count(http: httpx.Client, topic: str) -> int:
    total = 0
    for partition in range(len(http.get(f"/v1/topics/{topic}").json()["partitions"])):
        offset = 0
        while True:
            where = {"partition": partition, "offset": offset, "limit": 1000, "wait_ms": 0}
            read = http.get(f"/v1/topics/{topic}/records", params=where).json()
            total += len(read["records"])
            if not read["records"]:
                break
            offset = read["next"][str(partition)]
    return total


def keys_of_one_slot(number: int) -> list[str]:
    """Fresh keys that all have the same owner."""
    keys = (uuid.uuid4().hex for _ in range(10_000))
    return list(islice((key for key in keys if zlib.crc32(key.encode()) % SLOTS == 0), number))


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


def test_gateways_that_take_a_slot_from_each_other_write_every_key_once(
    headwater_session: Broker, http: httpx.Client, topic: str
) -> None:
    """Each is fenced again and again while its records are on their way, and answers nothing but 200 and 503."""
    keys = keys_of_one_slot(6)
    body = {"records": [{"value": n} for n in range(200)]}
    with (
        serving(headwater_session.bootstrap) as one,
        serving(headwater_session.bootstrap) as two,
        client_of(one) as first,
        client_of(two) as second,
        ThreadPoolExecutor(8) as pool,
    ):

        def ask(client: httpx.Client, key: str) -> list[httpx.Response]:
            answers: list[httpx.Response] = []
            while len(answers) < 40 and (not answers or answers[-1].status_code == 503):
                headers = {"Idempotency-Key": key}
                answers.append(client.post(f"/v1/topics/{topic}/records", json=body, headers=headers))
            return answers

        asked = [(client, key) for key in keys for client in (first, second) * 2]
        answers = list(pool.map(lambda each: ask(*each), asked))
    assert {answer.status_code for tries in answers for answer in tries} <= {200, 503}, answers
    for (_, key), tries in zip(asked, answers, strict=True):
        assert tries[-1].status_code == 200, tries[-1].text
        assert tries[-1].json() == answers[4 * keys.index(key)][-1].json()
    places = {(each["partition"], each["offset"]) for tries in answers for each in tries[-1].json()["records"]}
    assert len(places) == len(keys) * len(body["records"])
    assert count(http, topic) == len(places)


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
