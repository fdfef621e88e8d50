"""What a broker tells beside the Kafka protocol: its counters, why members left groups, where segments lie.

A gateway in a broker's process asks that broker itself; a gateway beside a cluster asks the metrics address that it was
given, if any. What cannot be asked for is reported as unknown, never as none.
"""

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Protocol

from headwater.gateway.http.problems import unavailable

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

    def __init__(self, address: str, token: bytes | None = None) -> None:
        self._address = address
        self._headers = {"Authorization": f"Bearer {token.decode()}"} if token is not None else {}

    async def get(self, page: str, **parameters: str) -> bytes | None:
        url = f"http://{self._address}/{page}?{urllib.parse.urlencode(parameters)}"
        return await asyncio.to_thread(_fetch, urllib.request.Request(url, headers=self._headers))


class PageReader:
    def __init__(self, pages: BrokerPages | None) -> None:
        """Without pages, everything is unknown."""
        self._pages = pages

    async def json(self, page: str, **parameters: str) -> dict[str, Any] | None:
        """A page that is a JSON object; None if it is not known. Raises Problem if the broker does not answer."""
        content = await self.text(page, **parameters)
        if content is None:
            return None
        try:
            value = json.loads(content)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    async def text(self, page: str, **parameters: str) -> bytes | None:
        """The content of a page; None if it is not known. Raises Problem if the broker does not answer."""
        if self._pages is None:
            return None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._pages.get(page, **parameters)
        except OSError:  # a TimeoutError is one
            raise unavailable("The broker that this gateway asks for its pages does not answer.") from None


def _fetch(request: urllib.request.Request) -> bytes | None:
    try:
        with _opener.open(request, timeout=TIMEOUT_S) as answer:
            found: bytes = answer.read(MAX_PAGE_BYTES)
            return found
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
