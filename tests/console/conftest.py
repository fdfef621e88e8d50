"""Chromium, the console in it, and its complaints: a page that logs an error or asks another host fails its test."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.console.fake_gateway import FakeGateway
from tests.console.serving import chromium, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

DESK: "ViewportSize" = {"width": 1280, "height": 800}


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """No longer than for a module: while it runs, this thread has an event loop, and other tests want their own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = chromium()
    if executable is None:
        pytest.skip("no chromium here: apt-get install chromium")
    playwright.expect.set_options(timeout=PATIENCE_MS)
    with playwright.sync_playwright() as driver:
        # Root may not use the sandbox, and containers have a small /dev/shm.
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=executable, args=options)
        yield browser
        browser.close()


PATIENCE_MS = 60_000
OpenPage = Callable[..., "Page"]


@pytest.fixture
def open_page(browser: "Browser") -> Iterator[OpenPage]:
    """Opens an address in a browser of its own. What it logs as an error, beside the statuses that a test expects, and
    what it asks of other hosts fails the test at its end."""
    complaints: list[str] = []
    contexts = []

    def open_page(
        address: str, *, expected: tuple[int, ...] = (), viewport: "ViewportSize | None" = None, **options: Any
    ) -> "Page":
        context = browser.new_context(viewport=viewport or DESK, locale="en-GB", timezone_id="UTC", **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        origin = "/".join(address.split("/")[:3])

        def logged(message: Any) -> None:
            # A test's gateway ends before its page does; whom the page asks is watched below.
            is_expected = "ERR_CONNECTION_REFUSED" in message.text
            is_expected |= any(f"status of {status}" in message.text for status in expected)
            if message.type in ("error", "warning") and not is_expected:
                complaints.append(f"{message.type}: {message.text}")

        page.on("console", logged)
        page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
        page.on(
            "request",
            lambda request: complaints.append(f"asked {request.url}") if not request.url.startswith(origin) else None,
        )
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def address(gateway: FakeGateway) -> Iterator[str]:
    with served(gateway.app()) as address:
        yield address
