"""How a pipeline is doing: what Spark reports of each query, boiled down to what people ask, and its form as JSON."""

import enum
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.offsets import Offsets, from_json

Number = TypeVar("Number", int, float)

STALE_MS = 20_000
"""A run that has not reported for so long has died."""
MAX_STATUS_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """What was read of a topic, or of what else rows come from."""

    source: str
    """The topic's name, or what Spark calls the source."""
    rows: int = 0
    """Since the start of the run."""
    rows_per_s: float | None = None
    lag: int | None = None
    """Records that are in the topic and were not read yet; None if that is not known."""


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """What is not known is None."""

    query: str
    batch: int | None = None
    """The last one that is complete."""
    rows: int = 0
    """Read since the start of the run, each once: also by a query that reads a source in two places."""
    rows_per_s: float | None = None
    """Over the last minute, or since the first batch."""
    processed_per_s: float | None = None
    """As fast as the last batch with rows went."""
    batch_ms: int | None = None
    lag: int | None = None
    """Over all sources that tell."""
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str | None = None
    restarts: int = 0
    sources: tuple[SourceProgress, ...] = ()


class State(enum.StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"
    """Never written: its last report says running, but it reports no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run of a pipeline, as it was last reported."""

    pipeline: str
    run: str
    """Its id, unique to the run."""
    state: State
    host: str
    pid: int
    file: str
    started_ms: int
    updated_ms: int
    queries: tuple[QueryProgress, ...] = field(default=())
    error: str = ""

    @property
    def read(self) -> tuple[SourceProgress, ...]:
        """By the pipeline as a whole: every query reads its sources itself, so that the rows of a step and of its dead
        letters are the same rows. Of a source that counts which is the furthest, and the lag of the last."""
        found: dict[str, SourceProgress] = {}
        for source in (source for query in self.queries for source in query.sources):
            other = found.get(source.source, source)
            found[source.source] = SourceProgress(
                source.source,
                max(source.rows, other.rows),
                _largest(source.rows_per_s, other.rows_per_s),
                _largest(source.lag, other.lag),
            )
        return tuple(found.values())

    def state_at(self, now_ms: int) -> State:
        is_stale = now_ms - self.updated_ms > STALE_MS
        return State.LOST if self.state is State.RUNNING and is_stale else self.state

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, content: bytes) -> "RunStatus | None":
        """None if it is none: anybody may write to a topic. Keys of a later version are passed over."""
        if len(content) > MAX_STATUS_BYTES:
            return None
        try:
            values = _known(cls, json.loads(content))
            values["state"] = State(values["state"])
            values["queries"] = tuple(map(_query, values["queries"]))
            status = cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        is_sound = _is_sound(status) and all(map(_is_sound, status.queries))
        return (
            status if is_sound and all(_is_sound(each) for query in status.queries for each in query.sources) else None
        )


def after_batch(before: QueryProgress, report: Mapping[str, Any], first: Mapping[TopicPartition, int]) -> QueryProgress:
    """`report` is the JSON of Spark's StreamingQueryProgress. `first` are the first offsets of topics: Spark does not
    tell where the first batch of all began."""
    operators = report.get("stateOperators") or ()
    watermark = (report.get("eventTime") or {}).get("watermark")
    batch_ms = (report.get("durationMs") or {}).get("triggerExecution")
    batch, lags = rows_by_source(report, first), lags_of(report.get("sources") or ())
    known = {source.source: source for source in before.sources}
    sources = tuple(
        replace(source, rows=source.rows + batch.get(name, 0), lag=lags.get(name))
        for name, source in ({name: SourceProgress(name) for name in batch} | known).items()
    )
    return replace(
        before,
        batch=int(report["batchId"]),
        rows=sum(source.rows for source in sources),
        processed_per_s=_rate(sum(batch.values()), batch_ms) or before.processed_per_s,
        batch_ms=None if batch_ms is None else int(batch_ms),
        lag=sum(lags.values()) if lags else None,
        sources=sources,
        state_rows=sum(int(each.get("numRowsTotal") or 0) for each in operators),
        state_bytes=sum(int(each.get("memoryUsedBytes") or 0) for each in operators),
        watermark=None if watermark is None or watermark.startswith("1970-") else watermark,
    )


def rows_by_source(report: Mapping[str, Any], first: Mapping[TopicPartition, int]) -> dict[str, int]:
    """The rows of a batch. Spark counts a row as often as a plan reads it: twice where a query has a source in two
    places, again where a sink goes over the batch again. Of a topic there are no more than the batch has offsets."""
    found: dict[str, int] = {}
    for source in report.get("sources") or ():
        rows = int(source.get("numInputRows") or 0)
        end, begin = topic_offsets(source.get("endOffset")), topic_offsets(source.get("startOffset"))
        if end is not None:
            rows = min(
                rows, sum(max(0, offset - (begin or first).get(partition, 0)) for partition, offset in end.items())
            )
        name = source_name(source)
        found[name] = max(rows, found.get(name, 0))
    return found


def lags_of(sources: Any) -> dict[str, int]:
    """Of sources whose offsets look like {"topic": {"0": 12}}: how far the end is from the latest."""
    found: dict[str, int] = {}
    for source in sources:
        end, latest = topic_offsets(source.get("endOffset")), topic_offsets(source.get("latestOffset"))
        if end is not None and latest is not None:
            lag = sum(max(0, offset - end.get(partition, offset)) for partition, offset in latest.items())
            found[source_name(source)] = max(lag, found.get(source_name(source), 0))
    return found


def source_name(source: Mapping[str, Any]) -> str:
    offsets = topic_offsets(source.get("endOffset"))
    return (
        ", ".join(sorted({partition.topic for partition in offsets}))
        if offsets
        else str(source.get("description") or "")
    )


def topic_offsets(value: Any) -> Offsets | None:
    """Of what Spark reports of a source; None if it does not look like offsets of topics."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        return None
    try:
        found = from_json(value)
    except ValueError:
        return None
    return found if all(isinstance(offset, int) for offset in found.values()) else None


def _rate(rows: int, took_ms: object) -> float | None:
    return round(1_000 * rows / took_ms, 1) if isinstance(took_ms, int) and took_ms > 0 and rows else None


def _largest(one: Number | None, other: Number | None) -> Number | None:
    return one if other is None else other if one is None else max(one, other)


def _query(values: Mapping[str, Any]) -> QueryProgress:
    known = _known(QueryProgress, values)
    known["sources"] = tuple(SourceProgress(**_known(SourceProgress, each)) for each in known.get("sources", ()))
    if known.get("batch") == -1:
        known["batch"] = None  # as it was written before there was None
    return QueryProgress(**known)


def _is_sound(value: "RunStatus | QueryProgress | SourceProgress") -> bool:
    """Whether every field holds what it is declared to hold."""
    for each in fields(value):
        kind: Any = tuple if each.name in ("queries", "sources") else each.type
        if kind == float | None:
            kind = int | float | None
        if not isinstance(getattr(value, each.name), kind):
            return False
    return True


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: values[each.name] for each in fields(kind) if each.name in values}
