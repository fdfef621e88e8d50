"""Which members left a group and why, read off the broker's metrics port: the Kafka protocol has no place for it."""

import json
from typing import Any

from headwater.cli.client import REQUEST_TIMEOUT_S
from headwater.cli.output import Problem

DEFAULT_METRICS = "127.0.0.1:9644"
MAX_PAGE_BYTES = 64 * 1024 * 1024


def departures(group: str, metrics: str) -> list[dict[str, Any]]:
    """The oldest first. Raises Problem."""
    import urllib.parse
    import urllib.request

    url = f"http://{metrics}/groups?group={urllib.parse.quote(group, safe='')}"
    # The broker's own port is no website: proxies that the environment names are not for it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=REQUEST_TIMEOUT_S) as answer:
            page = json.loads(answer.read(MAX_PAGE_BYTES))
        if not page.get("is_known", True):
            raise Problem(
                f"The broker at {metrics} does not coordinate {group}, and does not know who left it.",
                "Ask another node's metrics address with --metrics.",
            )
        return [departure for each in page["groups"] for departure in each["departures"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(
            f"No broker shows its metrics at {metrics}: {error}.",
            "`headwater serve --metrics HOST:PORT` says where; name it here with --metrics.",
        ) from error
