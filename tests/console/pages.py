"""What tests look for on a page."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page


def expect(thing: Any) -> Any:
    from playwright.sync_api import expect

    return expect(thing)


def offsets(page: "Page") -> list[tuple[int, int]]:
    """Partition and offset of each message that is shown, from the top."""
    page.locator(".messages tbody tr").first.wait_for()
    labels = page.locator(".messages .open").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    return [(int(place), int(offset)) for place, offset in (label.split()[1].split("/") for label in labels)]
