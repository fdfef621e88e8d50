"""What a webhook is sent, and where webhooks may be."""

import asyncio
import hashlib
import hmac
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.gateway.push.machine import Answer
from headwater.gateway.push.message import push_request
from headwater.gateway.push.webhook import outcome_of
from headwater.gateway.subscriptions.members.deliveries import Delivery
from headwater.gateway.subscriptions.push_settings import PushSettings
from headwater.gateway.subscriptions.webhook_targets import PublicResolver, RefusedTarget, check_url

PLAIN = PushSettings("https://receiver.example/hook", secret="hush")
CONTENT_TYPE = (("content-type", b"application/json"),)


def delivery(**fields: object) -> Delivery:
    given = {"key": b"k", "value": b'{"n": 1}', "headers": (), "delivery_count": 1} | fields
    return Delivery("orders", 2, 41, 1_700_000_000_123, **given)  # type: ignore[arg-type]


def settings(**fields: Any) -> PushSettings:
    return replace(PLAIN, **fields)


def test_a_plain_request_has_the_value_as_it_is_and_the_rest_in_headers() -> None:
    request = push_request("billing", [delivery(headers=(("trace", b"abc"), *CONTENT_TYPE))], PLAIN, 1_800_000_000)
    assert request.body == b'{"n": 1}'
    told = {name: request.headers[name] for name in request.headers if name.startswith("Headwater-")}
    signature = told.pop("Headwater-Signature")
    assert told == {
        "Headwater-Subscription": "billing",
        "Headwater-Id": "orders/2/41",
        "Headwater-Attempt": "1",
        "Headwater-Topic": "orders",
        "Headwater-Partition": "2",
        "Headwater-Offset": "41",
        "Headwater-Timestamp": "1700000000123",
        "Headwater-Key": "k",
        "Headwater-Header-trace": "abc",
        "Headwater-Header-content-type": "application/json",
    }
    assert request.headers["Content-Type"] == "application/json"
    signed = hmac.new(b"hush", b"orders/2/41.1800000000." + request.body, hashlib.sha256).hexdigest()
    assert signature == f"t=1800000000,v1={signed}"


def test_without_a_secret_nothing_is_signed() -> None:
    request = push_request("s", [delivery()], PushSettings(PLAIN.url), 0)
    assert "Headwater-Signature" not in request.headers


def test_the_attempt_counts_failures_and_deliveries_before() -> None:
    assert push_request("s", [delivery(delivery_count=2, failures=3)], PLAIN, 0).headers["Headwater-Attempt"] == "5"


def test_a_tombstone_has_no_body() -> None:
    request = push_request("s", [delivery(value=None)], PLAIN, 0)
    assert request.body == b"" and request.headers["Headwater-Tombstone"] == "true"


@given(
    st.text(max_size=30),
    st.binary(max_size=30),
    st.lists(st.tuples(st.text(max_size=10), st.binary(max_size=30)), max_size=5),
    st.sampled_from(["plain", "cloudevents-binary", "cloudevents-structured"]),
)
def test_no_record_can_write_headers_of_its_own(
    name: str, key: bytes, headers: list[tuple[str, bytes]], form: str
) -> None:
    request = push_request(name, [delivery(key=key, headers=tuple(headers))], settings(format=form), 0)
    for header, value in request.headers.items():
        assert re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", header)
        assert re.fullmatch(r"[\x20-\x7e]*", value)


def test_several_records_are_one_array() -> None:
    request = push_request("s", [delivery(), delivery(value=b"\xff")], settings(batch_records=5), 0)
    first, second = json.loads(request.body)["records"]
    assert (first["value"], first["offset"], second["value_base64"]) == ('{"n": 1}', 41, "/w==")


def test_cloudevents_in_binary_mode_are_headers() -> None:
    request = push_request("s", [delivery(headers=CONTENT_TYPE)], settings(format="cloudevents-binary"), 0)
    events = {name: value for name, value in request.headers.items() if name.startswith("ce-")}
    assert events == {
        "ce-specversion": "1.0",
        "ce-id": "2/41",
        "ce-source": "/v1/topics/orders",
        "ce-type": "headwater.record",
        "ce-time": "2023-11-14T22:13:20.123Z",
        "ce-partitionkey": "k",
    }
    assert request.headers["Content-Type"] == "application/json" and request.body == b'{"n": 1}'


def test_cloudevents_in_structured_mode_have_json_as_json_and_bytes_in_base64() -> None:
    structured = settings(format="cloudevents-structured")
    event = json.loads(push_request("s", [delivery()], structured, 0).body)
    assert event["data"] == {"n": 1} and event["datacontenttype"] == "application/json" and event["id"] == "2/41"
    event = json.loads(push_request("s", [delivery(value=b"\xff\x00")], structured, 0).body)
    assert event["data_base64"] == "/wA=" and "data" not in event
    event = json.loads(push_request("s", [delivery(value=b"plain words")], structured, 0).body)
    assert event["data"] == "plain words"
    batch = push_request("s", [delivery(), delivery()], settings(format="cloudevents-structured", batch_records=2), 0)
    assert batch.headers["Content-Type"] == "application/cloudevents-batch+json" and len(json.loads(batch.body)) == 2


def test_a_record_that_is_a_cloudevent_already_stays_the_one_it_is() -> None:
    own = (("ce_specversion", b"1.0"), ("ce_id", b"abc"), ("ce_type", b"order.placed"), ("ce_source", b"/shop"))
    request = push_request("s", [delivery(headers=own)], settings(format="cloudevents-binary"), 0)
    assert (request.headers["ce-id"], request.headers["ce-type"]) == ("abc", "order.placed")


@pytest.mark.parametrize(
    ("status", "retry_after", "answer", "after_s"),
    [
        (200, None, Answer.TAKEN, None),
        (204, None, Answer.TAKEN, None),
        (302, None, Answer.FAILED, None),
        (404, None, Answer.FAILED, None),
        (410, None, Answer.GONE, None),
        (429, "7", Answer.FAILED, 7.0),
        (503, "Thu, 01 Jan 1970 00:02:00 GMT", Answer.FAILED, 20.0),
        (503, "soon", Answer.FAILED, None),
        (500, "7", Answer.FAILED, None),
    ],
)
def test_what_answers_mean(status: int, retry_after: str | None, answer: Answer, after_s: float | None) -> None:
    outcome = outcome_of(status, retry_after, now_s=100.0)
    assert (outcome.answer, outcome.retry_after_s) == (answer, after_s)


PRIVATE = [
    "127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
    "[::1]", "[fe80::1]", "[fc00::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::]",
]  # fmt: skip


@pytest.mark.parametrize("host", PRIVATE)
def test_private_addresses_are_no_targets_unless_they_are_allowed(host: str) -> None:
    with pytest.raises(RefusedTarget, match="not a public address"):
        check_url(f"http://{host}/hook", allows_private=False)
    assert check_url(f"http://{host}/hook", allows_private=True).path == "/hook"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "http:///x",
        "http://user:pw@example.com/",
        "http://example.com/#x",
        "nonsense",
        "http://[::1",
    ],
)
def test_what_is_no_receiver_is_refused(url: str) -> None:
    with pytest.raises(RefusedTarget):
        check_url(url, allows_private=True)


@pytest.mark.parametrize("name", ["localhost", "2130706433", "0x7f000001"])
def test_a_name_that_leads_to_a_private_address_is_not_connected_to(name: str) -> None:
    with pytest.raises(OSError, match=r"not a public address|not known|No address"):
        asyncio.run(PublicResolver(allows_private=False).resolve(name, 80))


def test_a_name_that_is_allowed_gives_the_addresses_that_were_checked() -> None:
    (found, *_) = asyncio.run(PublicResolver(allows_private=True).resolve("localhost", 80))
    assert found["host"] in ("127.0.0.1", "::1") and found["hostname"] == "localhost"
