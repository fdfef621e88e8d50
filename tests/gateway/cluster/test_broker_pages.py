"""What a broker tells beside the Kafka protocol: a gateway in its process knows it without a metrics address, and one
beside it that has no address to ask says that it does not know."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from headwater.broker.metrics.group_health import health_page
from headwater.testing import Broker
from headwater.transport.ports import free_port
from tests.gateway.gateways import client_of, reading, serving
from tests.support.eventually import eventually

GROUP, TOPIC = "leavers", "orders"


@pytest.fixture(scope="module")
def http_address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def broker(http_address: str) -> Iterator[Broker]:
    """Without a metrics address. A member of a group has read a record, and left."""
    with Broker(subprocess=True, metrics="off", http=http_address) as broker:
        with serving(broker.bootstrap) as gateway, client_of(gateway) as http:
            http.post("/v1/topics", json={"name": TOPIC})
            http.post(f"/v1/topics/{TOPIC}/records", json={"value": 1})
            with reading(broker, TOPIC, GROUP):
                pass
            eventually(lambda: http.get(f"/v1/groups/{GROUP}").json()["state"] == "empty", "the member has left")
        yield broker


@pytest.fixture
def inside(broker: Broker, http_address: str) -> Iterator[httpx.Client]:
    """A client of the gateway in the broker's process."""
    with httpx.Client(base_url=f"http://{http_address}", timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def beside(broker: Broker) -> Iterator[httpx.Client]:
    with serving(broker.bootstrap) as gateway, client_of(gateway) as client:
        yield client


def test_a_gateway_in_the_broker_knows_without_a_metrics_address(inside: httpx.Client) -> None:
    (left,) = inside.get(f"/v1/groups/{GROUP}").json()["departures"]
    assert left["reason"].startswith("left")
    (segment,) = inside.get(f"/v1/topics/{TOPIC}/segments").json()["segments"]
    assert (segment["start_offset"], segment["end_offset"], segment["state"]) == (0, 1, "open")
    traffic = inside.get("/console/traffic").json()
    assert traffic["is_known"]
    (orders,) = [each for each in traffic["topics"] if each["name"] == TOPIC]
    assert orders["produced_records"] == 1 and orders["fetched_bytes"] > 0
    assert inside.get(f"/v1/topics/{TOPIC}-not/segments").status_code == 404


def test_a_gateway_that_can_ask_no_broker_says_that_it_does_not_know(beside: httpx.Client) -> None:
    assert beside.get(f"/v1/groups/{GROUP}").json()["departures"] is None
    refused = beside.get(f"/v1/topics/{TOPIC}/segments")
    assert refused.status_code == 404 and refused.json()["title"] == "Segments unknown"
    assert beside.get("/console/traffic").json()["is_known"] is False


def test_a_gateway_whose_broker_does_not_answer_says_that_it_does_not_know(broker: Broker) -> None:
    with serving(broker.bootstrap, broker_pages=f"127.0.0.1:{free_port()}") as gateway, client_of(gateway) as http:
        assert http.get(f"/v1/groups/{GROUP}").json()["departures"] is None
        assert http.get(f"/v1/topics/{TOPIC}/segments").status_code == 503
        assert http.get("/console/traffic").status_code == 503


def test_a_broker_that_does_not_coordinate_a_group_is_not_believed_that_nobody_left(broker: Broker) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(health_page([], GROUP, is_known=False))

        def log_message(self, *_: object) -> None:
            """Not to stderr."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        pages = f"127.0.0.1:{server.server_port}"
        with serving(broker.bootstrap, broker_pages=pages) as gateway, client_of(gateway) as http:
            assert http.get(f"/v1/groups/{GROUP}").json()["departures"] is None
