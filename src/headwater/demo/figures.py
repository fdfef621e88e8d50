"""How the demo is doing: everything that is shown and drawn, looked at together once a second."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.demo.analytics import Analytics, Results
from headwater.demo.packers import DEAD_LETTERS, QUEUE, Packed, Packers
from headwater.demo.shop import CLICKS, ORDERS
from headwater.demo.traffic import ShopTraffic
from headwater.pipelines.run.progress import QueryProgress

if TYPE_CHECKING:
    from headwater.cli.client import Clients

RATE_OVER = 5
"""Rates are over so many looks."""
READ_CLICKS = ("funnel", "clicks_dead_letters")
"""Queries of the pipeline; the others read orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    at_s: float
    """Since the start."""
    clicks: int
    orders: int
    packed: Packed
    queue_depth: int
    """Orders that no worker has packed yet."""
    dead_letters: int
    queries: tuple[QueryProgress, ...]
    """Empty until Spark has started."""
    results: Results

    @property
    def lag(self) -> int | None:
        """Records that the slowest query has not read; None until all have reported."""
        lags = [query.lag for query in self.queries]
        return max((lag for lag in lags if lag is not None), default=None) if None not in lags else None

    @property
    def is_worked_off(self) -> bool:
        """Whether everything that was sent has been counted, and packed or given up."""
        is_counted = (
            self.results.orders == self.orders and bool(self.queries) and all(map(self._has_read_all, self.queries))
        )
        return is_counted and self.queue_depth == 0 and self.packed.orders + self.dead_letters >= self.orders

    @property
    def progress(self) -> tuple[object, ...]:
        """Changes whenever something that was sent has been worked off a little further."""
        rows = tuple((query.query, query.batch, query.rows) for query in self.queries)
        return rows, self.results.orders, self.packed.orders, self.queue_depth, self.dead_letters

    @property
    def left_over(self) -> str:
        """What has not been worked off, in a sentence; empty if all has."""
        if self.is_worked_off:
            return ""
        waiting = []
        if not self.queries:
            waiting.append("Spark had not started")
        elif self.results.orders < self.orders or not all(map(self._has_read_all, self.queries)):
            waiting.append(f"Spark had counted {self.results.orders:,} of {self.orders:,} orders")
        if self.queue_depth or self.packed.orders + self.dead_letters < self.orders:
            waiting.append(
                f"{max(self.queue_depth, self.orders - self.packed.orders - self.dead_letters):,} orders "
                "were not packed"
            )
        return f"When it was stopped, {' and '.join(waiting)}."

    def _has_read_all(self, query: QueryProgress) -> bool:
        """By its rows: a lag of 0 may be reported for a batch that took long and has ended."""
        return query.rows >= (self.clicks if query.query in READ_CLICKS else self.orders)


def look(at_s: float, traffic: ShopTraffic, packers: Packers, analytics: Analytics, clients: "Clients") -> Figures:
    """The figures now, of traffic, packers and Spark; those of the queue and its dead letters come from the broker."""
    from confluent_kafka import TopicPartition

    from headwater.cli.position import offset_range
    from headwater.cli.subscription_status import subscription

    queue = subscription(clients, QUEUE)
    letters = offset_range(clients.admin, [TopicPartition(DEAD_LETTERS, 0)])
    return Figures(
        at_s=at_s,
        clicks=traffic.sent[CLICKS],
        orders=traffic.sent[ORDERS],
        packed=packers.packed,
        queue_depth=(queue.lag(ORDERS).records or 0) if queue is not None else 0,
        dead_letters=sum(end - first for first, end in letters.values()),
        queries=analytics.queries(),
        results=analytics.results(),
    )


def rates(history: Sequence[Figures]) -> tuple[float, float]:
    """Clicks and orders a second, lately."""
    if len(history) < 2:
        return 0.0, 0.0
    before, now = history[-min(len(history), RATE_OVER + 1)], history[-1]
    span_s = max(now.at_s - before.at_s, 0.001)
    return (now.clicks - before.clicks) / span_s, (now.orders - before.orders) / span_s
