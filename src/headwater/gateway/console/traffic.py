"""What was written to and read from each topic since the broker started, and what queues have lent to their workers:
the figures on its metrics page, as JSON.

They are those of the one broker that the gateway is told of; in a cluster the others have their own.
"""

import asyncio
import time
import urllib.request
from collections.abc import Iterable

from msgspec import Struct

from headwater.gateway.context import Context
from headwater.gateway.problems import unavailable

FIELDS = {
    "headwater_produced_records_total": "produced_records",
    "headwater_produced_bytes_total": "produced_bytes",
    "headwater_fetched_bytes_total": "fetched_bytes",
}
LEASES = "headwater_queue_leases"
FRESH_S = 1.0
"""A page is asked for once in this time, however many browsers look."""
TIMEOUT_S = 5.0
MAX_PAGE_BYTES = 16 * 1024 * 1024
MAX_TOPICS = 2_000
MAX_LEASES = 5_000

# The broker's own port is no website: proxies that the environment names are not for it.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class TopicTraffic(Struct):
    name: str
    produced_records: int = 0
    produced_bytes: int = 0
    fetched_bytes: int = 0


class Leases(Struct):
    """Of one queue in one partition that this broker leads."""

    group: str
    topic: str
    partition: int
    records: int


class TrafficPage(Struct):
    topics: list[TopicTraffic]
    leases: list[Leases]
    left_out: int = 0
    """Topics and leases for which there was no room."""
    is_known: bool = True
    """False if this gateway was told of no broker's metrics address."""


class Traffic:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._one_at_a_time = asyncio.Lock()
        self._page: TrafficPage | None = None
        self._asked_s = float("-inf")

    async def read(self) -> TrafficPage:
        """Raises Problem (503) if the broker does not answer."""
        address = self._context.config.broker_pages
        if address is None:
            return TrafficPage([], [], is_known=False)
        async with self._one_at_a_time:
            if self._page is None or time.monotonic() - self._asked_s >= FRESH_S:
                self._page = await self._context.in_thread(_fetch, f"http://{address}/metrics")
                self._asked_s = time.monotonic()
            return self._page


def _fetch(url: str) -> TrafficPage:
    try:
        with _opener.open(url, timeout=TIMEOUT_S) as found:
            text = found.read(MAX_PAGE_BYTES).decode(errors="replace")
    except OSError:
        raise unavailable("The broker's metrics page does not answer.") from None
    return traffic_of(text.splitlines())


def traffic_of(lines: Iterable[str]) -> TrafficPage:
    """Of a page in Prometheus's text format. Raises Problem if it is none."""
    from prometheus_client.parser import text_string_to_metric_families

    wanted = [line for line in lines if line.startswith((*FIELDS, LEASES))]
    topics: dict[str, TopicTraffic] = {}
    leases: list[Leases] = []
    left_out: set[str] = set()
    try:
        for family in text_string_to_metric_families("\n".join(wanted) + "\n"):
            for sample in family.samples:
                name, field = sample.labels.get("topic"), FIELDS.get(sample.name)
                if name is None:
                    continue
                if sample.name == LEASES:
                    leases.append(
                        Leases(sample.labels["group"], name, int(sample.labels["partition"]), int(sample.value))
                    )
                    continue
                if field is None:
                    continue
                if name not in topics and len(topics) >= MAX_TOPICS:
                    left_out.add(name)
                    continue
                setattr(topics.setdefault(name, TopicTraffic(name)), field, int(sample.value))
    except (ValueError, KeyError, OverflowError):
        raise unavailable("The broker's metrics page cannot be read.") from None
    too_many = max(len(leases) - MAX_LEASES, 0)
    return TrafficPage(list(topics.values()), leases[:MAX_LEASES], len(left_out) + too_many)
