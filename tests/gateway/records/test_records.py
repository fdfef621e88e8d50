"""Writing and reading records over HTTP, in every form."""

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from headwater.testing import Broker
from tests.gateway.gateways import client_of, serving
from tests.support.eventually import eventually

RAW = {"content-type": "application/octet-stream"}


def written(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = answer.json()["records"]
    return records


def read(http: httpx.Client, topic: str, **query: Any) -> dict[str, Any]:
    answer = http.get(f"/v1/topics/{topic}/records", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def is_problem(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    return str(problem["detail"])


def test_a_record_is_where_the_answer_says(http: httpx.Client, topic: str) -> None:
    (place,) = written(http.post(f"/v1/topics/{topic}/records", json={"key": "k", "value": "hello"}))
    found = read(http, topic, partition=place["partition"], offset=place["offset"])
    (record,) = found["records"]
    assert (record["key"], record["value"], record["timestamp"]) == ("k", "hello", place["timestamp"])
    assert record["size"] == len("khello")
    assert found["next"] == found["ends"] == {str(place["partition"]): place["offset"] + 1}


def test_many_records_are_answered_in_their_order(http: httpx.Client, topic: str) -> None:
    records = [{"key": str(n), "value": n, "partition": n % 3} for n in range(300)]
    places = written(http.post(f"/v1/topics/{topic}/records", json={"records": records}))
    assert [place["partition"] for place in places] == [n % 3 for n in range(300)]
    assert [place["offset"] for place in places] == [n // 3 for n in range(300)]
    assert len(read(http, topic, limit=1000)["records"]) == 300


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('"text \\u00e4"', "text ä"),
        ("null", None),
        ('{"a": 1.000000000000000000001, "b": [1, 2]}', '{"a":1.000000000000000000001,"b":[1,2]}'),
        ("12345678901234567890123", "12345678901234567890123"),
        ("true", "true"),
        ('""', ""),
    ],
)
def test_a_value_is_text_null_or_compact_json(http: httpx.Client, topic: str, value: str, text: str | None) -> None:
    body = f'{{"value": {value}, "partition": 0}}'
    written(http.post(f"/v1/topics/{topic}/records", content=body, headers={"content-type": "application/json"}))
    (record,) = read(http, topic)["records"]
    assert record["value"] == text


def test_bytes_travel_in_base64_both_ways(http: httpx.Client, topic: str) -> None:
    key, value, header = b"\x00\xff", bytes(range(256)), b"\xfe"
    body = {
        "key_base64": base64.b64encode(key).decode(),
        "value_base64": base64.b64encode(value).decode(),
        "headers": [{"name": "h", "value_base64": base64.b64encode(header).decode()}, {"name": "t", "value": "x"}],
    }
    written(http.post(f"/v1/topics/{topic}/records", json=body))
    (record,) = read(http, topic)["records"]
    assert "key" not in record and "value" not in record
    assert base64.b64decode(record["key_base64"]) == key
    assert base64.b64decode(record["value_base64"]) == value
    assert record["headers"] == [{"name": "h", "value_base64": "/g=="}, {"name": "t", "value": "x"}]


def test_a_raw_body_is_one_value(http: httpx.Client, topic: str) -> None:
    answer = http.post(
        f"/v1/topics/{topic}/records",
        content=b"\x00raw",
        params={"key": "k", "partition": 2, "timestamp": 1_700_000_000_000},
        headers={**RAW, "Headwater-Header-Source": "probe"},
    )
    (place,) = written(answer)
    assert place == {"partition": 2, "offset": 0, "timestamp": 1_700_000_000_000}
    (record,) = read(http, topic)["records"]
    assert record["value"] == "\x00raw"
    assert record["headers"] == [{"name": "source", "value": "probe"}]


def test_lines_are_records(http: httpx.Client, topic: str) -> None:
    lines = "\n".join(json.dumps({"value": n, "partition": 1}) for n in range(5)) + "\n\n"
    headers = {"content-type": "application/x-ndjson"}
    places = written(http.post(f"/v1/topics/{topic}/records", content=lines, headers=headers))
    assert [place["offset"] for place in places] == [0, 1, 2, 3, 4]
    broken = http.post(f"/v1/topics/{topic}/records", content='{"value":1}\n{"value":', headers=headers)
    assert "Record 1" in is_problem(broken, 400)


def test_a_kafka_client_reads_what_http_wrote(http: httpx.Client, headwater_session: Broker, topic: str) -> None:
    body = {"key": "k", "value": {"n": 1}, "headers": {"h": "x"}, "partition": 0}
    written(http.post(f"/v1/topics/{topic}/records", json=body))
    settings = {"bootstrap.servers": headwater_session.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        assert (message.key(), message.value(), message.headers()) == (b"k", b'{"n":1}', [("h", b"x")])
    finally:
        consumer.close()


def test_keys_go_where_other_clients_put_them(http: httpx.Client, headwater_session: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": headwater_session.bootstrap, "partitioner": "murmur2_random"})
    theirs: dict[str, int] = {}
    for n in range(20):
        producer.produce(
            topic, b"x", f"key-{n}", on_delivery=lambda _, m: theirs.update({m.key().decode(): m.partition()})
        )
    assert producer.flush(60) == 0
    records = [{"key": f"key-{n}", "value": "y"} for n in range(20)]
    ours = written(http.post(f"/v1/topics/{topic}/records", json={"records": records}))
    assert [place["partition"] for place in ours] == [theirs[f"key-{n}"] for n in range(20)]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"value": ', "truncated"),
        ("[1, 2]", "Expected `object`"),
        ('{"valu": 1}', "unknown field `valu`"),
        ('{"value": 1, "value_base64": "AA=="}', "not both"),
        ('{"value_base64": "?"}', "not base64"),
        ('{"partition": -1}', "$.partition"),
        ('{"partition": 7, "value": 1}', "has no partition 7"),
        ('{"records": []}', "$.records"),
        ('{"records": [{"value": 1}, {"key_base64": "?"}]}', "Record 1"),
        ('{"records": [{"value": 1}], "value": 2}', "one or the other"),
        ('{"headers": [{"name": "h"}]}', "needs value"),
        ('{"headers": {"a\\u0000": "x"}}', "zero byte"),
        ('{"value": ' + "[" * 50_000 + "]" * 50_000 + "}", "nested too deeply"),
        ('{"value": "\udcff"}', "utf-8"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_with_the_reason(
    http: httpx.Client, topic: str, body: str, words: str
) -> None:
    content = body.encode(errors="surrogateescape")
    answer = http.post(f"/v1/topics/{topic}/records", content=content, headers={"content-type": "application/json"})
    assert words in is_problem(answer, 400)
    assert read(http, topic)["records"] == []


def test_a_record_that_is_too_large_is_refused_before_anything_is_written(http: httpx.Client, topic: str) -> None:
    large = "x" * (1024 * 1024 + 1)
    assert "1048576" in is_problem(http.post(f"/v1/topics/{topic}/records", content=large, headers=RAW), 413)
    many = {"records": [{"value": "small"}, {"value": large}]}
    assert "Record 1" in is_problem(http.post(f"/v1/topics/{topic}/records", json=many), 413)
    body = b"x" * (16 * 1024 * 1024 + 1)
    headers = {"content-type": "application/json"}
    is_problem(http.post(f"/v1/topics/{topic}/records", content=body, headers=headers), 413)
    assert read(http, topic)["records"] == []


def test_a_body_without_a_length_is_read_no_further_than_its_limit(http: httpx.Client, topic: str) -> None:
    def endless() -> Any:
        for _ in range(64):
            yield b"x" * 65536

    try:
        answer = http.post(f"/v1/topics/{topic}/records", content=endless(), headers=RAW)
        is_problem(answer, 413)
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        pass  # the gateway did not wait for the rest
    assert read(http, topic)["records"] == []


def test_what_the_topic_finds_too_large_is_413_too(http: httpx.Client, name: str) -> None:
    http.post("/v1/topics", json={"name": name, "config": {"max.message.bytes": 1000}})
    is_problem(http.post(f"/v1/topics/{name}/records", json={"value": "x" * 2000}), 413)
    half = http.post(f"/v1/topics/{name}/records", json={"value": "fits"})
    assert half.status_code == 200


def test_nobody_writes_to_a_topic_that_is_not_there(http: httpx.Client, name: str) -> None:
    assert name in is_problem(http.post(f"/v1/topics/{name}/records", json={"value": 1}), 404)
    is_problem(http.get(f"/v1/topics/{name}/records"), 404)
    assert http.get(f"/v1/topics/{name}").status_code == 404, "asking did not make it"


def test_internal_topics_are_not_written_to(http: httpx.Client) -> None:
    is_problem(http.post("/v1/topics/__consumer_offsets/records", json={"value": 1}), 403)


def test_a_form_is_not_taken_for_a_value(http: httpx.Client, topic: str) -> None:
    is_problem(http.post(f"/v1/topics/{topic}/records", data={"value": "1"}), 415)


def test_reading_goes_on_where_it_stopped(http: httpx.Client, topic: str) -> None:
    records = [{"value": n, "partition": n % 3, "timestamp": 1_700_000_000_000 + n} for n in range(50)]
    written(http.post(f"/v1/topics/{topic}/records", json={"records": records}))
    first = read(http, topic, limit=20)
    assert [record["value"] for record in first["records"]] == [str(n) for n in range(20)], "merged by time"
    seen = [int(record["value"]) for record in first["records"]]
    for partition, offset in first["next"].items():
        rest = read(http, topic, partition=partition, offset=offset)
        seen += [int(record["value"]) for record in rest["records"]]
    assert sorted(seen) == list(range(50))


def test_positions_are_words_counts_ages_and_times(http: httpx.Client, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    records = [{"value": n, "partition": n % 3, "timestamp": now_ms - 3_600_000 + n * 60_000} for n in range(30)]
    written(http.post(f"/v1/topics/{topic}/records", json={"records": records}))

    def values(**query: Any) -> list[int]:
        return [int(record["value"]) for record in read(http, topic, **query)["records"]]

    assert values() == list(range(30))
    assert values(**{"from": "end"}) == []
    assert values(**{"from": "-5"}) == [25, 26, 27, 28, 29]
    assert values(**{"from": "-2", "partition": 0}) == [24, 27]
    assert values(**{"from": "7", "partition": 0}) == [21, 24, 27]
    assert values(**{"from": "40m"})[:1] in ([20], [21])
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((now_ms - 3_600_000 + 15 * 60_000) / 1000 - 1))
    assert values(**{"from": at})[:1] in ([14], [15])
    detail = is_problem(http.get(f"/v1/topics/{topic}/records", params={"from": "yesterday"}), 400)
    assert "yesterday" in detail


def test_a_reader_may_wait_for_the_next_record(http: httpx.Client, topic: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read, http, topic, **{"from": "end", "wait_ms": 20_000})
        late: list[str] = []

        def is_answered() -> bool:
            late.append(f"late {len(late)}")  # the first of them may be there before the reader is
            written(http.post(f"/v1/topics/{topic}/records", json={"value": late[-1], "partition": 0}))
            return waiting.done()

        eventually(is_answered, "the reader is given a record")
        found = [record["value"] for record in waiting.result()["records"]]
    first = late.index(found[0])
    assert found == late[first : first + len(found)]
    assert read(http, topic, **{"from": "end", "wait_ms": 200})["records"] == []


def test_only_records_with_a_key(http: httpx.Client, topic: str) -> None:
    records = [{"key": f"k{n % 5}", "value": n} for n in range(100)]
    written(http.post(f"/v1/topics/{topic}/records", json={"records": records}))
    found = read(http, topic, key="k3")
    assert sorted(int(record["value"]) for record in found["records"]) == list(range(3, 100, 5))
    assert found["next"] == found["ends"]


def test_an_answer_is_no_larger_than_was_asked_for(http: httpx.Client, topic: str) -> None:
    records = [{"value": "x" * 1000, "partition": 0} for _ in range(100)]
    written(http.post(f"/v1/topics/{topic}/records", json={"records": records}))
    assert len(read(http, topic, max_bytes=5000)["records"]) in range(1, 7)
    assert len(read(http, topic, max_bytes=1)["records"]) == 1


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": "x"}, {"partition": 99}, {"offset": 3}, {"wait_ms": 10**9}, {"from": "x" * 100}]
)
def test_a_query_that_cannot_be_read_is_refused(http: httpx.Client, topic: str, query: dict[str, Any]) -> None:
    is_problem(http.get(f"/v1/topics/{topic}/records", params=query), 400)


def test_more_than_may_be_in_flight_is_refused_for_a_while(headwater_subprocess: Broker, name: str) -> None:
    config = {"max_in_flight": 10, "request_timeout_ms": 3000}
    with serving(headwater_subprocess.bootstrap, **config) as gateway, client_of(gateway) as http:
        assert http.post("/v1/topics", json={"name": name}).status_code == 201
        written(http.post(f"/v1/topics/{name}/records", json={"value": "warm"}))
        headwater_subprocess.kill()
        with ThreadPoolExecutor(12) as pool:
            bodies = [{"records": [{"value": n}] * 5} for n in range(12)]
            answers = list(pool.map(lambda body: http.post(f"/v1/topics/{name}/records", json=body), bodies))
    statuses = {answer.status_code for answer in answers}
    assert statuses == {429, 503}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["retry-after"] == "1"


def test_more_readers_than_are_allowed_are_refused(headwater_session: Broker, http: httpx.Client, topic: str) -> None:
    with serving(headwater_session.bootstrap, readers=2) as gateway, client_of(gateway) as other:
        path = f"/v1/topics/{topic}/records"
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: other.get(path, params={"from": "end", "wait_ms": 2000}), range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429]
