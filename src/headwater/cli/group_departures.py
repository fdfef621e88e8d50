"""Which members left a group and why, from the broker's metrics address: the Kafka protocol has no request for it."""

from typing import Any

from headwater.cli.metrics_address import read_page
from headwater.cli.output import CommandFailed


def read_departures(group: str, metrics: str, token: bytes | None = None) -> list[dict[str, Any]]:
    """The oldest departure first. Raises CommandFailed."""
    import urllib.parse

    def departures(page: Any) -> list[dict[str, Any]]:
        if not page.get("is_known", True):
            raise CommandFailed(
                f"The broker at {metrics} does not coordinate {group}, so it does not know which members left.",
                "Ask another node's metrics address with --metrics.",
            )
        return [departure for each in page["groups"] for departure in each["departures"]]

    return read_page(metrics, f"/groups?group={urllib.parse.quote(group, safe='')}", departures, token)
