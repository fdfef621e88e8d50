"""What a broker tells beside the Kafka protocol: its counters, why members left groups, where segments lie.

A gateway in a broker's process asks that broker itself; one beside a cluster asks the metrics address that it was
given, or nothing. What cannot be asked for is not known, and is told as such: never as none.
"""

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Protocol

from headwater.gateway.http.problems import unavailable

if TYPE_CHECKING:
    from headwater.gateway.context import Context

MAX_PAGE_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 10.0

# The broker's own port is no website: proxies that the environment names are not for it.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class BrokerPages(Protocol):
    async def get(self, page: str, **parameters: str) -> bytes | None:
        """The page `metrics`, `groups` or `segments`; None if the broker has no such page, or nothing to tell there.
        Raises OSError if it does not answer."""


class PagesOverHttp:
    """Those at a broker's metrics address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def get(self, page: str, **parameters: str) -> bytes | None:
        url = f"http://{self._address}/{page}?{urllib.parse.urlencode(parameters)}"
        return await asyncio.to_thread(_fetch, url)


async def broker_page(context: "Context", page: str, **parameters: str) -> dict[str, Any] | None:
    """A page of JSON; None if there is no such page, or no broker to ask. Raises Problem if it does not answer."""
    found = await page_text(context, page, **parameters)
    if found is None:
        return None
    try:
        told = json.loads(found)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


async def page_text(context: "Context", page: str, **parameters: str) -> bytes | None:
    """As `broker_page`, of any kind."""
    if context.pages is None:
        return None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await context.pages.get(page, **parameters)
    except OSError:  # a TimeoutError is one
        raise unavailable("The broker that this gateway asks for its pages does not answer.") from None


def _fetch(url: str) -> bytes | None:
    try:
        with _opener.open(url, timeout=TIMEOUT_S) as answer:
            found: bytes = answer.read(MAX_PAGE_BYTES)
            return found
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
