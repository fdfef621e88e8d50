"""The ready pipeline `ecommerce`, run by `headwater pipeline run`, and the tables that it fills."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from headwater.pipelines.jvm.class_cache import archive_options
from headwater.pipelines.jvm.java import find_java
from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.run.progress import QueryProgress
from headwater.pipelines.run.status_topic import StatusTopic
from headwater.pipelines.templates.catalog import pipeline_template

PIPELINE = "ecommerce"
DATABASE = "shop.db"
MASTER = "local[2]"
QUICK_START = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"
"""A JVM that lives for a minute does not get back what its second compiler costs."""
LOG = "pipeline.log"
SAID_LINES = 5
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
    """Runs the pipeline in `directory`, as `headwater pipeline run` would."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._file, tables = pipeline_template(PIPELINE).copy_to(directory)
        self._log = directory / LOG
        self._database = directory / DATABASE
        with closing(sqlite3.connect(self._database)) as connection:
            connection.execute("pragma journal_mode = wal")  # we read while Spark writes
            connection.executescript(tables.read_text())
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "headwater.cli.main", "pipeline", "run", str(self._file)]
        command += ["--client", "", "--bootstrap", self._bootstrap, "--master", MASTER, "--conf", QUICK_START]
        environment = dict(os.environ)
        if not archive_options(find_java()):
            environment["HEADWATER_CLASS_CACHE"] = "off"  # making one would outlive us
        with self._log.open("wb") as log:
            # In its own process group: Ctrl-C is for the demo, which stops it in order.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, process_group=0
            )

    def stop(self, timeout_s: float) -> None:
        """As Ctrl-C does, also while Spark starts. Its JVM ends with it, even when it has to be killed."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def raise_failure(self) -> None:
        """Raises PipelineFailed with what it said last, if it ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            said = self._log.read_text(errors="replace").strip().splitlines()[-SAID_LINES:]
            raise PipelineFailed("\n".join(["The pipeline has ended.", *said]))

    def queries(self) -> tuple[QueryProgress, ...]:
        """As the run tells in the topic of all pipelines; empty until Spark has started."""
        with StatusTopic(self._bootstrap) as topic:
            status = topic.statuses().get(PIPELINE)
        return status.queries if status is not None else ()

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
