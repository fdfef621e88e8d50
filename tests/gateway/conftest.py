"""A gateway beside a real broker, and a client of it."""

import uuid
from collections.abc import Iterator

import httpx
import pytest

from headwater.gateway.server import GatewayThread
from headwater.testing import Broker
from tests.gateway.gateways import client_of, serving


@pytest.fixture(scope="session")
def gateway(headwater_session: Broker) -> Iterator[GatewayThread]:
    """One for the whole run, beside the broker of the whole run: tests name their topics apart."""
    with serving(headwater_session.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def pushing_gateway(headwater_session: Broker) -> Iterator[GatewayThread]:
    """One that may push to receivers on this machine."""
    with serving(headwater_session.bootstrap, private_webhooks=True) as running:
        yield running


@pytest.fixture
def http(gateway: GatewayThread) -> Iterator[httpx.Client]:
    with client_of(gateway) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(http: httpx.Client, name: str) -> str:
    """With three partitions."""
    made = http.post("/v1/topics", json={"name": name, "partitions": 3})
    assert made.status_code == 201, made.text
    return name
