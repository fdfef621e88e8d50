"""The secret of a webhook: gateways that the brokers name are shown it and sign; others do not push without it."""

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.client.security_options import ClientSecurity
from headwater.client.settings import SaslLogin
from headwater.gateway.server import GatewayThread
from headwater.security.sasl_mechanisms import SaslMechanism
from tests.gateway.gateways import client_of, serving
from tests.gateway.push.receivers import receiving
from tests.support.eventually import eventually
from tests.support.guarded import PASSWORD, Guarded, guarded_broker

SECRET = "what signs"
NAMED, NOT_NAMED = "gateway-1", "gateway-2"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """Both gateways may do everything; one is a gateway by the word of the broker."""
    users = (NAMED, NOT_NAMED)
    config: dict[str, Any] = {"super_users": [f"User:{each}" for each in ("admin", *users)]}
    with guarded_broker(tmp_path, users=users, gateways=[f"User:{NAMED}"], **config) as guarded:
        yield guarded


@contextmanager
def gateway(guarded: Guarded, user: str) -> Iterator[GatewayThread]:
    login = SaslLogin(mechanism=SaslMechanism.SCRAM_SHA_256, user=user, password=PASSWORD)
    host, port = guarded.address
    with serving(f"{host}:{port}", security=ClientSecurity(None, login), private_webhooks=True) as running:
        yield running


def test_a_gateway_that_is_not_shown_the_secret_does_not_push_and_one_that_is_signs(
    guarded: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.create("orders")
    with receiving(tmp_path) as receiver:
        push = {"url": receiver.url("/ok"), "secret": SECRET}
        body = {"name": "packers", "topic": "orders", "kind": "queue", "from": "beginning", "push": push}
        with caplog.at_level("INFO"), gateway(guarded, NOT_NAMED) as running, client_of(running) as http:
            made = http.post("/v1/subscriptions", json=body)
            assert made.status_code == 201, made.text
            sent = http.post("/v1/topics/orders/records", json={"records": [{"value": "1"}]})
            assert sent.status_code == 200, sent.text
            eventually(lambda: "push_refused subscription=packers" in caplog.text, "the gateway says why it does not")
            shown = http.get("/v1/subscriptions/packers")
            assert shown.json()["push"]["is_signed"] is True
            assert SECRET not in shown.text and SECRET not in caplog.text
            assert receiver.got() == []
        with gateway(guarded, NAMED):
            eventually(receiver.taken, "a gateway that is named pushes")
        (request,) = receiver.got()
        at, _, signature = request["headers"]["Headwater-Signature"].removeprefix("t=").partition(",v1=")
        content = f"{request['headers']['Headwater-Id']}.{at}.".encode() + request["body"].encode()
        assert signature == hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()
