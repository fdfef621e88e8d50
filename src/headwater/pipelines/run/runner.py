"""Runs a pipeline: starts its queries, watches them, starts again what failed for a passing reason, stops them.

One thread does all of it. Spark reports progress from its own threads, which only leave their reports behind.
"""

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwater.pipelines.client.offsets import Offsets
from headwater.pipelines.run.frames import build_frames
from headwater.pipelines.run.lags import Lags, read_to
from headwater.pipelines.run.output_topics import create_missing_topics
from headwater.pipelines.run.problems import PipelineFailed, explain
from headwater.pipelines.run.progress import QueryProgress, RunStatus, State, after_batch, rows_by_source
from headwater.pipelines.run.queries import PlannedQuery, plan_queries
from headwater.pipelines.run.reports import Reports, report_listener
from headwater.pipelines.run.row_rate import RowRate
from headwater.pipelines.run.sources import ReadOptions
from headwater.pipelines.run.status_topic import StatusTopic
from headwater.pipelines.spec.graph import Graph
from headwater.pipelines.spec.starts import Start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.2
PUBLISH_EVERY_S = 2.0
LOOK_FOR_STOP_EVERY_S = 1.0
MEASURE_LAG_EVERY_S = 2.0
MAX_RESTARTS = 5
"""In a row, without a complete batch in between."""
MAX_CROWDED_RESTARTS = 20
"""The same, for a machine on which processes do not start in Spark's time."""
START_TIMEOUT_S = 60.0
"""After which the next query is started though the one before it has not begun."""
INITIALIZING = "Initializing"
"""How Spark's status begins while a query gets its sources ready."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    bootstrap: str
    is_once: bool = False
    """Process what is there, and end."""
    start: Start | None = None
    """Where topics begin, in place of what the file says. Only for a pipeline that has no checkpoint yet."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """TLS and the login at the cluster, as librdkafka takes them."""

    def reading(self, now_ms: int) -> ReadOptions:
        return ReadOptions(self.bootstrap, now_ms, self.start, self.security)


@dataclass(slots=True)
class _Running:
    query: PlannedQuery
    progress: QueryProgress
    handle: "StreamingQuery | None" = None
    restarts_in_a_row: int = 0
    restart_at_s: float = 0.0
    started_s: float = 0.0
    is_starting: bool = False
    read_to: Offsets | None = None
    """How far the last batch went in topics."""
    row_rates: dict[str, RowRate] = field(default_factory=dict)
    """Of its sources."""
    is_done: bool = False


class Runner:
    """A run of a pipeline in a Spark session. `topic` is where it reports its status; None: nowhere. `emit` is given
    the rows of console sinks, `note` what people might want to know."""

    def __init__(
        self,
        graph: Graph,
        spark: "SparkSession",
        options: RunOptions,
        topic: StatusTopic | None,
        emit: Callable[[str], None],
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._graph = graph
        self._spark = spark.newSession()  # its views and its queries are its own
        self._options = options
        self._topic = topic
        self._emit = emit
        self._note = note
        self._reports = Reports()
        self._running: dict[str, _Running] = {}
        self._lags = Lags(graph.pipeline, replace(options, start=None).reading(0))
        self._published_s = self._looked_s = self._measured_s = float("-inf")
        now_ms = _now_ms()
        self.status = RunStatus(
            pipeline=graph.pipeline.name,
            run=uuid.uuid4().hex,
            state=State.RUNNING,
            host=socket.gethostname(),
            pid=os.getpid(),
            file=str(graph.pipeline.file.resolve()),
            started_ms=now_ms,
            updated_ms=now_ms,
        )

    def plan(self) -> list[PlannedQuery]:
        """Everything that Spark can say without starting a query. Raises BadPipeline."""
        reading = self._options.reading(_now_ms())
        frames = build_frames(self._graph, self._spark, reading)
        return plan_queries(self._graph, frames, self._spark, reading, self._emit)

    def run(self, is_stopping: Callable[[], bool], on_status: Callable[[RunStatus], None]) -> RunStatus:
        """Until it is asked to stop, or has nothing left to do. Raises PipelineFailed or BadPipeline."""
        try:
            _activate(self._spark)
            queries = self.plan()
            self._refuse_second_start(queries)
            for created in create_missing_topics(self._graph.pipeline, self._options.bootstrap, self._options.security):
                self._note(f"Created topic {created}.")
            listener = report_listener(self._reports)
            self._spark.streams.addListener(listener)
            try:
                self._running = {query.name: _Running(query, QueryProgress(query.name)) for query in queries}
                state = self._watch(is_stopping, on_status)
            finally:
                self._stop_queries()
                self._spark.streams.removeListener(listener)
            self._tell(on_status, state)
        except Exception as error:
            self._tell(on_status, State.FAILED, str(error))
            raise
        return self.status

    def _watch(self, is_stopping: Callable[[], bool], on_status: Callable[[RunStatus], None]) -> State:
        while True:
            for running in self._running.values():
                self._attend(running)
            self._take_reports()
            if all(running.is_done for running in self._running.values()):
                return State.FINISHED
            if is_stopping() or self._is_asked_to_stop():
                return State.STOPPED
            self._measure_lag()
            self._tell(on_status, State.RUNNING)
            time.sleep(POLL_S)

    def _attend(self, running: _Running) -> None:
        """Start what is not running, and see what became of what was. Raises PipelineFailed."""
        if running.is_done:
            return
        if running.handle is None:
            if time.monotonic() >= running.restart_at_s and not self._is_any_starting():
                self._start(running)
        elif not running.handle.isActive:
            failure = running.handle.exception()
            if failure is None:
                running.is_done = True
            else:
                self._failed(running, failure)

    def _start(self, running: _Running) -> None:
        try:
            running.handle = running.query.start(is_once=self._options.is_once)
        except Exception as error:
            raise _explained(error, running.query) from error
        running.is_starting, running.started_s = True, time.monotonic()

    def _is_any_starting(self) -> bool:
        """Queries start one after another: Spark gives the process of each source 10 s to start, which many at once
        would miss."""
        for running in self._running.values():
            if running.is_starting and running.handle is not None:
                is_over = time.monotonic() - running.started_s > START_TIMEOUT_S or not running.handle.isActive
                running.is_starting = not is_over and running.handle.status["message"].startswith(INITIALIZING)
        return any(running.is_starting for running in self._running.values())

    def _failed(self, running: _Running, error: Exception) -> None:
        failure = _explained(error, running.query)
        running.restarts_in_a_row += 1
        allowed = MAX_CROWDED_RESTARTS if failure.is_crowded else MAX_RESTARTS
        if not failure.is_passing or running.restarts_in_a_row > allowed:
            raise failure from error
        pause_s = min(FIRST_PAUSE_S * 2 ** (running.restarts_in_a_row - 1), LONGEST_PAUSE_S)
        self._note(f"{failure} It is started again in {pause_s:g} s.")
        running.handle, running.is_starting = None, False
        running.restart_at_s = time.monotonic() + pause_s
        running.progress = replace(running.progress, restarts=running.progress.restarts + 1)

    def _take_reports(self) -> None:
        for report in self._reports.take():
            running = self._running.get(report.get("name") or "")
            if running is not None:
                running.read_to = read_to(report.get("sources") or ())
                first = self._lags.first_offsets(running.read_to or ()) if running.progress.batch is None else {}
                running.progress = after_batch(running.progress, report, first)
                running.restarts_in_a_row = 0
                now_s = time.monotonic()
                for name, rows in rows_by_source(report, first).items():
                    took_s = (running.progress.batch_ms or 0) / 1_000
                    running.row_rates.setdefault(name, RowRate()).add(rows, now_s, took_s)
                running.progress = _with_rates(running.progress, running.row_rates, now_s)

    def _refuse_second_start(self, queries: list[PlannedQuery]) -> None:
        if self._options.start is None:
            return
        for query in queries:
            if query.has_started_before(self._spark):
                checkpoint = self._graph.pipeline.checkpoint
                raise PipelineFailed(
                    f"The pipeline goes on from its checkpoint {checkpoint}, so --from has no meaning.",
                    "To begin anew, name another checkpoint or remove this one.",
                )

    def _is_asked_to_stop(self) -> bool:
        if self._topic is None or time.monotonic() - self._looked_s < LOOK_FOR_STOP_EVERY_S:
            return False
        self._looked_s = time.monotonic()
        return self._topic.is_asked_to_stop(self.status.pipeline, self.status.run)

    def _stop_queries(self) -> None:
        for running in self._running.values():
            if running.handle is not None:
                running.handle.stop()
        for running in self._running.values():
            if running.handle is not None:
                self._reports.wait_for_end(str(running.handle.runId))
        self._take_reports()

    def _measure_lag(self) -> None:
        """As it is now: a batch that takes long, or a trigger that comes seldom, would tell an old one."""
        if time.monotonic() - self._measured_s < MEASURE_LAG_EVERY_S:
            return
        self._measured_s = time.monotonic()
        for running in self._running.values():
            if running.read_to is not None and not running.is_done:
                running.progress = _with_lags(running.progress, self._lags.lags(running.read_to))

    def _tell(self, on_status: Callable[[RunStatus], None], state: State, error: str = "") -> None:
        for running in self._running.values():
            if not running.is_done:
                running.progress = _with_rates(running.progress, running.row_rates, time.monotonic())
        queries = tuple(running.progress for running in self._running.values())
        is_news = state is not State.RUNNING
        self.status = replace(self.status, state=state, updated_ms=_now_ms(), queries=queries, error=error)
        on_status(self.status)
        if self._topic is not None and (is_news or time.monotonic() - self._published_s >= PUBLISH_EVERY_S):
            self._topic.publish(self.status)
            self._published_s = time.monotonic()


def _with_rates(progress: QueryProgress, row_rates: Mapping[str, RowRate], now_s: float) -> QueryProgress:
    rates = {name: row_rate.per_s(now_s) for name, row_rate in row_rates.items()}
    known = [rate for rate in rates.values() if rate is not None]
    sources = tuple(replace(source, rows_per_s=rates.get(source.source)) for source in progress.sources)
    return replace(progress, rows_per_s=round(sum(known), 1) if known else None, sources=sources)


def _with_lags(progress: QueryProgress, lags: Mapping[str, int] | None) -> QueryProgress:
    sources = tuple(replace(source, lag=(lags or {}).get(source.source)) for source in progress.sources)
    return replace(progress, lag=None if lags is None else sum(lags.values()), sources=sources)


def _explained(error: Exception, query: PlannedQuery) -> PipelineFailed:
    return explain(error, f"sink {query.name}", query.checkpoint)


def _activate(spark: "SparkSession") -> None:
    """Make it the session of this thread: in a thread that has none, Spark does not find sinks that are written in
    Python."""
    jvm: Any = spark._jvm
    jvm.SparkSession.setActiveSession(spark._jsparkSession)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
