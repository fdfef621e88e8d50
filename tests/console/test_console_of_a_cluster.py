"""The console before the real gateway and a real broker: what it shows is what happened."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.testing.broker import Broker
from headwater.transport.ports import free_port
from tests.console.pages import expect, offsets
from tests.gateway.gateways import client_of, serving
from tests.support.eventually import eventually, gathered

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]
RECORDS = 120


class Shop(NamedTuple):
    address: str
    bootstrap: str
    http: Any


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """A broker with a topic, a group that read half of it, and the gateway beside it."""
    pages = f"127.0.0.1:{free_port()}"
    with Broker(metrics=pages) as broker, serving(broker.bootstrap, broker_pages=pages) as gateway:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            value = json.dumps({"id": number}).encode()
            producer.produce("orders", value, f"customer-{number % 7}".encode(), partition=number % 3)
        assert producer.flush(60) == 0
        _read_half(broker.bootstrap)
        with client_of(gateway) as http:
            yield Shop(f"http://{gateway.host}:{gateway.port}", broker.bootstrap, http)


def _read_half(bootstrap: str) -> None:
    """Of each partition, by a member that then leaves."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    eventually(lambda: consumer.poll(0.5) is not None or consumer.assignment(), "the member has partitions")
    half = [TopicPartition("orders", partition, RECORDS // 6) for partition in range(3)]
    consumer.commit(offsets=half, asynchronous=False)
    consumer.close()


def test_the_page_may_load_nothing_from_elsewhere_and_is_not_framed(shop: Shop) -> None:
    page = shop.http.get("/")
    assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';") and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    module = shop.http.get("/console/main.js")
    assert module.headers["content-type"].startswith("text/javascript")
    again = shop.http.get("/console/main.js", headers={"If-None-Match": module.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["nosuch.js", "../routes.py", "..%2froutes.py", "%2e%2e/routes.py", "views"])
def test_only_the_files_of_the_console_are_served(shop: Shop, path: str) -> None:
    assert shop.http.get(f"/console/{path}").status_code == 404


def test_with_a_token_the_page_is_open_and_what_it_shows_is_not(
    open_page: OpenPage, shop: Shop, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-some-length\n")
    with serving(shop.bootstrap, token_file=token) as gateway, client_of(gateway) as http:
        assert http.get("/").status_code == http.get("/console/views/topics.js").status_code == 200
        closed = ("/console/traffic", "/v1/pipelines", "/v1/topics")
        assert {http.get(path).status_code for path in closed} == {401}
        page = open_page(f"http://{gateway.host}:{gateway.port}/#/topics", expected=(401,))
        page.get_by_label("Token", exact=True).fill("a-token-of-some-length")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
        assert page.evaluate("document.cookie") == ""
        # This one was told of no broker's metrics: what is written is seen by how topics grow.
        page.goto(f"http://{gateway.host}:{gateway.port}/#/")
        expect(page.locator(".stat", has_text="Bytes out").locator(".figure")).to_have_text(re.compile("^\u2013"))


def test_traffic_is_what_the_broker_counted(shop: Shop) -> None:
    assert len(shop.http.get("/v1/topics/orders/records").json()["records"]) == 100

    def counts() -> dict[str, int] | None:
        page = shop.http.get("/console/traffic").json()
        (orders,) = [topic for topic in page["topics"] if topic["name"] == "orders"]
        return orders if orders["fetched_bytes"] else None

    counted = eventually(counts, "the fetch is counted")
    assert counted["produced_records"] == RECORDS and counted["fetched_bytes"] > 0


def test_the_overview_counts_what_is_written_meanwhile(open_page: OpenPage, shop: Shop) -> None:
    page = open_page(f"{shop.address}/")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="billing")).to_be_visible()
    producer = Producer({"bootstrap.servers": shop.bootstrap})
    rate = page.locator(".stat", has_text="Records in").locator(".figure")

    def is_counted() -> bool:
        producer.produce("warm", b"x" * 100)
        producer.flush(60)
        page.wait_for_timeout(200)
        return re.match(r"[1-9]", rate.text_content() or "") is not None

    eventually(is_counted, "records are counted")
    expect(rate).to_have_text(re.compile(r"^[\d.,]+K? /s"))


def test_messages_of_a_real_topic_are_paged_and_found_by_key(open_page: OpenPage, shop: Shop) -> None:
    page = open_page(f"{shop.address}/#/topics/orders")
    expect(page.get_by_text("50 shown")).to_be_visible()
    seen = [offsets(page)]
    for _ in range(2):
        page.get_by_role("button", name="Older").click()
        expect(page.get_by_label(f"Record {seen[-1][0][0]}/{seen[-1][0][1]}", exact=True)).to_have_count(0)
        seen.append(offsets(page))
    everything = sorted(place for shown in seen for place in shown)
    assert everything == [(partition, offset) for partition in range(3) for offset in range(RECORDS // 3)]
    page.get_by_label("Key").fill("customer-0")
    page.get_by_label("Start at").select_option("Oldest")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("18 shown")).to_be_visible()


def test_a_group_that_read_half_lags_by_the_other_half_and_its_member_left(open_page: OpenPage, shop: Shop) -> None:
    page = open_page(f"{shop.address}/#/groups/billing")
    expect(page.locator(".stat", has_text="Lag")).to_contain_text(str(RECORDS // 2))
    expect(page.get_by_text("Nobody reads now")).to_be_visible()
    expect(page.get_by_role("group", name="Members that left").locator("tbody .badge")).to_have_text("left")


def test_a_topic_lives_its_life_in_the_console(open_page: OpenPage, shop: Shop) -> None:
    page = open_page(f"{shop.address}/#/topics")
    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name").fill("invoices")
    page.get_by_label("Partitions").fill("2")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("No records")).to_be_visible()

    page.get_by_role("link", name="Produce").click()
    page.get_by_label("Key").fill("a")
    page.get_by_label("Value", exact=True).fill("<b>first</b>")
    page.get_by_label("Headers").fill("origin: console")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("link", name="Show it").click()
    page.locator(".messages .open").first.click()
    expect(page.locator("pre.body")).to_have_text("<b>first</b>")
    expect(page.locator(".detail .facts")).to_contain_text("console")

    page.get_by_role("link", name="Segments").click()
    expect(page.locator("main tbody tr")).to_have_count(2)
    page.get_by_role("link", name="Partitions").click()
    expect(page.locator(".stat", has_text="Records")).to_contain_text("1")

    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_label("Value").fill("3600000")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".stat", has_text="Kept for")).to_contain_text("1 h")
    page.get_by_role("button", name="Reset retention.ms").click()
    expect(page.locator(".stat", has_text="Kept for")).to_contain_text("7 d")

    page.get_by_role("button", name="Delete topic").click()
    page.get_by_label("Type invoices").fill("invoices")
    page.get_by_role("dialog").get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    assert shop.http.get("/v1/topics/invoices").status_code == 404


def test_new_records_appear_live(open_page: OpenPage, shop: Shop) -> None:
    assert shop.http.post("/v1/topics", json={"name": "tail", "partitions": 3}).status_code == 201
    page = open_page(f"{shop.address}/#/topics/tail")
    expect(page.get_by_text("No records")).to_be_visible()
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Live")).to_have_attribute("aria-pressed", "true")
    assert shop.http.post("/v1/topics/tail/records", json={"value": "just arrived"}).status_code == 200
    expect(page.get_by_text("just arrived")).to_be_visible()


def test_a_value_is_decoded_by_its_schema_and_versions_are_compared(open_page: OpenPage, shop: Shop) -> None:
    before = '{"type":"record","name":"City","fields":[{"name":"name","type":"string"}]}'
    after = before.replace("]}", ',{"name":"land","type":"string","default":"NO"}]}')
    ids = []
    for schema in (before, after):
        made = shop.http.post("/subjects/cities-value/versions", json={"schema": schema})
        assert made.status_code == 200, made.text
        ids.append(made.json()["id"])
    avro = bytes([8]) + b"Oslo"  # a string is its length, zigzag, and its bytes
    producer = Producer({"bootstrap.servers": shop.bootstrap})
    producer.produce("cities", b"\0" + ids[0].to_bytes(4, "big") + avro)
    assert producer.flush(60) == 0

    page = open_page(f"{shop.address}/#/topics/cities")
    page.locator(".messages .open").first.click()
    expect(page.locator("pre.body")).to_contain_text('"name": "Oslo"')
    expect(page.locator(".detail .badge")).to_contain_text("AVRO")
    page.goto(f"{shop.address}/#/schemas")
    page.get_by_role("link", name="cities-value").click()
    page.get_by_label("Compare with").select_option("Version 1")
    expect(page.locator(".diff .added").filter(has_text="land")).to_be_visible()


def test_a_record_that_a_queue_gave_up_on_is_shown_and_redriven(open_page: OpenPage, shop: Shop) -> None:
    assert shop.http.post("/v1/topics", json={"name": "parcels", "partitions": 1}).status_code == 201
    queue = {"name": "packing", "topic": "parcels", "kind": "queue", "from": "beginning"}
    made = shop.http.post("/v1/subscriptions", json={**queue, "dead_letter_topic": "parcels.dead"})
    assert made.status_code == 201, made.text
    assert shop.http.post("/v1/topics/parcels/records", json={"key": "p", "value": "broken"}).status_code == 200

    def pull() -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = shop.http.post("/v1/subscriptions/packing/pull", json={"wait_ms": 2000}).json()[
            "records"
        ]
        return records

    pulled = gathered(pull, 1)
    page = open_page(f"{shop.address}/#/groups/packing")
    expect(page.locator(".stat", has_text="In flight").locator(".figure")).to_have_text("1 records")
    rejected = shop.http.post("/v1/subscriptions/packing/ack", json={"reject": [pulled[0]["ack_id"]]})
    assert rejected.json()["results"][0]["status"] == "done", rejected.text

    letter = page.get_by_role("group", name="Dead letters").locator("tbody tr").first
    refresh = page.get_by_role("button", name="Refresh")

    def is_shown() -> bool:
        refresh.click()
        page.wait_for_timeout(300)
        return letter.count() > 0

    eventually(is_shown, "the dead letter is shown")
    expect(letter).to_contain_text("broken")
    expect(letter).to_contain_text("parcels/0/0")
    page.get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("1 record is on the way again")).to_be_visible(timeout=60_000)
    again = gathered(pull, 1)
    assert (again[0]["value"], again[0]["offset"]) == ("broken", 1)


def test_the_nodes_and_the_pipelines_of_a_cluster_are_shown(open_page: OpenPage, shop: Shop) -> None:
    page = open_page(f"{shop.address}/#/nodes")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    page.get_by_role("link", name="Pipelines").click()
    expect(page.get_by_text("No pipeline has run on this cluster")).to_be_visible()
    now_ms = int(time.time() * 1000)
    status = {"pipeline": "revenue", "run": "r", "state": "running", "host": "h", "pid": 1, "file": "revenue.yaml"}
    status |= {"started_ms": now_ms, "updated_ms": now_ms, "queries": [{"query": "totals", "rows": 77}], "error": ""}
    producer = Producer({"bootstrap.servers": shop.bootstrap})
    for key, value in (("revenue", json.dumps(status)), ("stop:revenue", "{}"), ("odd", "not a status")):
        producer.produce("headwater.pipelines", value.encode(), key.encode())
    assert producer.flush(60) == 0
    expect(page.get_by_role("heading", name="revenue")).to_be_visible()
    expect(page.get_by_role("cell", name="77", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="odd")).to_have_count(0)


def test_a_pipeline_that_tells_nothing_any_more_is_lost(shop: Shop) -> None:
    status = {"pipeline": "old", "run": "r", "state": "running", "host": "h", "pid": 1, "file": "f"}
    status |= {"started_ms": 1, "updated_ms": 1}
    producer = Producer({"bootstrap.servers": shop.bootstrap})
    producer.produce("headwater.pipelines", json.dumps(status).encode(), b"old")
    assert producer.flush(60) == 0

    def states() -> dict[str, str]:
        return {each["pipeline"]: each["state"] for each in shop.http.get("/v1/pipelines").json()["pipelines"]}

    eventually(lambda: "old" in states(), "it is shown")
    assert states()["old"] == "lost"
