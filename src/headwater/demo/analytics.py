"""The ready pipeline `ecommerce` on a Spark of its own, and the tables that it fills."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from headwater.demo.background import Background, IsStopping
from headwater.pipelines.ready.catalog import ready_pipeline
from headwater.pipelines.run.progress import Status
from headwater.pipelines.run.runner import Runner, RunOptions
from headwater.pipelines.run.session import spark_session, spark_settings
from headwater.pipelines.spec.check import load

PIPELINE = "ecommerce"
DATABASE = "shop.db"
MASTER = "local[2]"
LOCK_TIMEOUT_S = 10.0
TOP = 5


@dataclass(frozen=True, slots=True)
class Minute:
    minute: str
    orders: int
    revenue: float


@dataclass(frozen=True, slots=True)
class Results:
    """What the tables hold now."""

    minutes: tuple[Minute, ...] = ()
    """The oldest first."""
    top_products: tuple[tuple[str, int, float], ...] = ()
    """Name, units and revenue of the whole run."""
    funnel: tuple[tuple[str, int], ...] = ()
    """Sessions that took each step."""
    flags: tuple[tuple[str, int, int, float, str], ...] = ()
    """Card, orders, countries, total and reasons."""

    @property
    def orders(self) -> int:
        return sum(minute.orders for minute in self.minutes)

    @property
    def revenue(self) -> float:
        return sum(minute.revenue for minute in self.minutes)


class Analytics:
    """Runs in `directory`. `status` is None until Spark has started."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._file, tables = ready_pipeline(PIPELINE).copy_to(directory)
        self._database = directory / DATABASE
        with closing(sqlite3.connect(self._database)) as connection:
            connection.execute("pragma journal_mode = wal")  # we read while Spark writes
            connection.executescript(tables.read_text())
        self.status: Status | None = None
        self.background = Background("analytics", self._run)

    def results(self) -> Results:
        with closing(sqlite3.connect(self._database, timeout=LOCK_TIMEOUT_S)) as connection:
            ask = connection.execute
            minutes = ask("select minute, orders, revenue from revenue_per_minute order by minute").fetchall()
            top = ask(
                "select product, sum(units), sum(revenue) from product_sales "
                "group by product order by 3 desc, 1 limit ?", (TOP,)
            ).fetchall()  # fmt: skip
            (steps,) = ask("select sum(viewed), sum(carted), sum(checked_out), sum(ordered) from funnel").fetchall()
            flags = ask(
                "select card, orders, countries, total, reasons from fraud_flags order by total desc limit ?", (TOP,)
            ).fetchall()
        names = ("looked", "put in cart", "went to checkout", "ordered")
        return Results(
            tuple(Minute(*row) for row in minutes),
            tuple(top),
            tuple((name, step or 0) for name, step in zip(names, steps, strict=True)),
            tuple(flags),
        )

    def _run(self, is_stopping: IsStopping) -> None:
        graph = load(self._file)
        settings = spark_settings(graph.pipeline, MASTER, {})
        with spark_session(settings, graph.pipeline.directory) as (spark, _):
            runner = Runner(graph, spark, RunOptions(self._bootstrap), None, lambda line: None)
            runner.run(is_stopping, self._tell)

    def _tell(self, status: Status) -> None:
        self.status = status
