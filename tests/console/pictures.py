"""`make console-pictures`: the console's main views as pictures for docs/, of the gateway that answers from memory."""

import sys
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.console.fake_gateway import FakeGateway
from tests.console.serving import chromium, served

DIRECTORY = Path(__file__).parents[2] / "docs" / "pictures"
MAX_BYTES = 150 * 1024
DESK = {"width": 1200, "height": 760}
PHONE = {"width": 360, "height": 740}
FILLS_S = 95.0
"""How long the lines of the overview grow before they are looked at."""


def main() -> int:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with served(FakeGateway().app()) as address, sync_playwright() as driver:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=chromium(), args=options)

        def opened(scheme: str, viewport: dict[str, int]) -> Page:
            context = browser.new_context(viewport=viewport, color_scheme=scheme, locale="en-GB", timezone_id="UTC")  # type: ignore[arg-type]
            return context.new_page()

        light, dark = opened("light", DESK), opened("dark", DESK)
        phone = opened("light", PHONE)
        for page in (light, dark, phone):
            page.goto(f"{address}/")
        time.sleep(FILLS_S)
        _take(light, "console-overview")
        _take(dark, "console-overview-dark")
        _take(phone, "console-phone")
        for name, view in (
            ("console-topics", "#/topics"),
            ("console-messages", "#/topics/orders"),
            ("console-segments", "#/topics/orders/segments"),
            ("console-settings", "#/topics/orders/settings"),
            ("console-produce", "#/topics/orders/produce"),
            ("console-group", "#/groups/billing"),
            ("console-queue", "#/groups/shipping"),
            ("console-nodes", "#/nodes"),
            ("console-pipelines", "#/pipelines"),
            ("console-schemas", "#/schemas/orders-value"),
        ):
            light.goto(f"{address}/{view}")
            light.locator("main .panel").first.wait_for()
            light.wait_for_timeout(1500)
            if name == "console-messages":
                light.locator(".messages .open").nth(1).click()
            if name == "console-schemas":
                light.get_by_label("Compare with").select_option("Version 1")
                light.locator(".diff").wait_for()
            _take(light, name)
        dark.goto(f"{address}/#/topics/orders")
        dark.locator(".messages .open").nth(1).click()
        _take(dark, "console-messages-dark")
        phone.goto(f"{address}/#/topics/orders")
        phone.locator(".messages .open").first.wait_for()
        _take(phone, "console-phone-messages")
        browser.close()
    large = [path.name for path in DIRECTORY.glob("console-*.png") if path.stat().st_size > MAX_BYTES]
    for name in large:
        print(f"{name} is larger than {MAX_BYTES} bytes", file=sys.stderr)
    return 1 if large else 0


def _take(page: Page, name: str) -> None:
    page.mouse.move(0, 0)
    page.screenshot(path=DIRECTORY / f"{name}.png", full_page=name == "console-queue")


if __name__ == "__main__":
    sys.exit(main())
