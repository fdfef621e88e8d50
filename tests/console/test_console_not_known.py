"""What the gateway cannot ask for is shown as not known: no claim that nothing happened."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from headwater.testing.broker import Broker
from tests.console.pages import expect
from tests.gateway.gateways import client_of, reading, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a gateway that has no broker's pages. A group's member has left."""
    with Broker() as broker, serving(broker.bootstrap) as gateway, client_of(gateway) as http:
        http.post("/v1/topics", json={"name": "orders"})
        http.post("/v1/topics/orders/records", json={"value": 1})
        with reading(broker, "orders", "billing"):
            pass
        yield f"http://{gateway.host}:{gateway.port}"


def test_who_left_is_not_known(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/groups/billing")
    expect(page.get_by_text("Not known")).to_be_visible()
    expect(page.get_by_text("Nobody left")).to_have_count(0)


def test_segments_are_not_known(open_page: OpenPage, address: str) -> None:
    page = open_page(f"{address}/#/topics/orders/segments", expected=(404,))
    expect(page.get_by_text("Not known")).to_be_visible()
    expect(page.locator(".notice")).to_have_count(0)
