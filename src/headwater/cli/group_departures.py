"""Which members left a group and why, from the broker's metrics port: the Kafka protocol has no request for it."""

import json
from typing import Any

from headwater.cli.brokers import REQUEST_TIMEOUT_S
from headwater.cli.output import CommandFailed

DEFAULT_METRICS = "127.0.0.1:9644"
MAX_PAGE_BYTES = 64 * 1024 * 1024


def read_departures(group: str, metrics: str, token: bytes | None = None) -> list[dict[str, Any]]:
    """The oldest departure first. Raises CommandFailed."""
    import urllib.parse
    import urllib.request

    url = f"http://{metrics}/groups?group={urllib.parse.quote(group, safe='')}"
    headers = {"Authorization": f"Bearer {token.decode()}"} if token is not None else {}
    # Proxies that the environment names are for websites, not for a broker's port.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=REQUEST_TIMEOUT_S) as answer:
            page = json.loads(answer.read(MAX_PAGE_BYTES))
        if not page.get("is_known", True):
            raise CommandFailed(
                f"The broker at {metrics} does not coordinate {group}, so it does not know which members left.",
                "Ask another node's metrics address with --metrics.",
            )
        return [departure for each in page["groups"] for departure in each["departures"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandFailed(
            f"The broker's metrics at {metrics} cannot be read: {error}.",
            "Give the address of `headwater serve --metrics HOST:PORT` with --metrics.",
        ) from error
