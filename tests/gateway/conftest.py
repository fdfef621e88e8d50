"""A gateway beside a real broker, and a client of it."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from headwater.cli.runtime import new_event_loop
from headwater.gateway.config import GatewayConfig
from headwater.gateway.server import GatewayThread, listen
from headwater.testing import Broker

Serving = Callable[..., Any]


@contextmanager
def serving(bootstrap: str, **config: Any) -> Iterator[GatewayThread]:
    """A gateway on a free port, in a thread."""
    settings = GatewayConfig(bootstrap=bootstrap, port=0, **config)
    gateway = GatewayThread(settings, listen(settings), new_event_loop)
    gateway.start()
    try:
        gateway.wait_until_ready()
        yield gateway
    finally:
        gateway.stop()


def client_of(gateway: GatewayThread, **options: Any) -> httpx.Client:
    # Proxies that the environment names are not for a server on this machine.
    return httpx.Client(base_url=f"http://{gateway.host}:{gateway.port}", timeout=30, trust_env=False, **options)


@pytest.fixture(scope="session")
def gateway(headwater_session: Broker) -> Iterator[GatewayThread]:
    """One for the whole run, beside the broker of the whole run: tests name their topics apart."""
    with serving(headwater_session.bootstrap) as running:
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
