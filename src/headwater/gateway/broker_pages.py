"""What a broker tells beside the Kafka protocol, on its metrics address: why members left, where segments lie."""

import json
import urllib.parse
import urllib.request
from typing import Any

from headwater.gateway.context import Context

MAX_PAGE_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 10.0

# The broker's own port is no website: proxies that the environment names are not for it.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


async def broker_page(context: Context, page: str, **parameters: str) -> dict[str, Any] | None:
    """A page of JSON; None if there is no such page, or nobody to ask."""
    if context.config.broker_pages is None:
        return None
    url = f"http://{context.config.broker_pages}/{page}?{urllib.parse.urlencode(parameters)}"
    return await context.in_thread(_fetch, url)


def _fetch(url: str) -> dict[str, Any] | None:
    try:
        with _opener.open(url, timeout=TIMEOUT_S) as answer:
            found = json.loads(answer.read(MAX_PAGE_BYTES))
    except (OSError, ValueError):  # HTTPError is an OSError
        return None
    return found if isinstance(found, dict) else None
