"""What was written to and read from each topic since the broker started, and what queues have lent to their workers:
the figures on its metrics page, as JSON.

The figures are of the broker in this process, or of the broker whose metrics address the gateway was given; in a
cluster the others have their own.
"""

import asyncio
import time
from collections.abc import Iterable

from msgspec import Struct

from headwater.gateway.cluster.broker_pages import PageReader
from headwater.gateway.http.problems import unavailable
from headwater.gateway.kafka.call_threads import CallThreads

FIELDS = {
    "headwater_produced_records_total": "produced_records",
    "headwater_produced_bytes_total": "produced_bytes",
    "headwater_fetched_bytes_total": "fetched_bytes",
}
LEASES = "headwater_queue_leases"
FRESH_S = 1.0
"""A page is asked for once in this time, however many browsers look."""
MAX_TOPICS = 2_000
MAX_LEASES = 5_000


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
    """False if there is no broker that this gateway can ask."""


class Traffic:
    def __init__(self, pages: PageReader, threads: CallThreads) -> None:
        self._pages = pages
        self._threads = threads
        self._one_at_a_time = asyncio.Lock()
        self._page: TrafficPage | None = None
        self._asked_s = float("-inf")

    async def read(self) -> TrafficPage:
        """Raises Problem (503) if the broker does not answer."""
        async with self._one_at_a_time:
            if self._page is None or time.monotonic() - self._asked_s >= FRESH_S:
                text = await self._pages.text("metrics")
                self._page = (
                    TrafficPage([], [], is_known=False)
                    if text is None
                    else await self._threads.run(traffic_of, text.decode(errors="replace").splitlines())
                )
                self._asked_s = time.monotonic()
            return self._page


def traffic_of(lines: Iterable[str]) -> TrafficPage:
    """Of a page in Prometheus's text format. Raises Problem if it is none."""
    from prometheus_client.parser import text_string_to_metric_families

    page_lines = [line for line in lines if line.startswith((*FIELDS, LEASES))]
    topics: dict[str, TopicTraffic] = {}
    leases: list[Leases] = []
    left_out: set[str] = set()
    try:
        for family in text_string_to_metric_families("\n".join(page_lines) + "\n"):
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
