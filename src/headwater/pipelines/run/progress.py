"""How a pipeline is doing: what Spark reports of each query, boiled down to what people ask, and its form as JSON."""

import enum
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from headwater.pipelines.client.offsets import Offsets, from_json

STALE_MS = 20_000
"""A run that has told nothing for so long is gone without having said so."""
MAX_STATUS_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueryProgress:
    query: str
    batch: int = -1
    """The last one that is complete; -1 before the first."""
    rows: int = 0
    """Read since the start of the run."""
    rows_per_s: float = 0.0
    """As they arrived for the last batch."""
    processed_per_s: float = 0.0
    """As fast as the last batch went."""
    batch_ms: int = 0
    lag: int | None = None
    """Records that are in the topics and were not read yet; None if the sources do not tell."""
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str | None = None
    restarts: int = 0


class State(enum.StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"
    """Never written: running, as far as it told, but it tells nothing any more."""


@dataclass(frozen=True, slots=True)
class Status:
    """One run of a pipeline, as it was told last."""

    pipeline: str
    run: str
    """An id of its own."""
    state: State
    host: str
    pid: int
    file: str
    started_ms: int
    updated_ms: int
    queries: tuple[QueryProgress, ...] = field(default=())
    error: str = ""

    def state_at(self, now_ms: int) -> State:
        is_stale = now_ms - self.updated_ms > STALE_MS
        return State.LOST if self.state is State.RUNNING and is_stale else self.state

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, content: bytes) -> "Status | None":
        """None if it is none: anybody may write to a topic. Keys of a later version are passed over."""
        if len(content) > MAX_STATUS_BYTES:
            return None
        try:
            values = _known(cls, json.loads(content))
            values["state"] = State(values["state"])
            values["queries"] = tuple(QueryProgress(**_known(QueryProgress, each)) for each in values["queries"])
            status = cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return status if _is_sound(status) and all(_is_sound(query) for query in status.queries) else None


def after_batch(before: QueryProgress, report: Mapping[str, Any]) -> QueryProgress:
    """`report` is the JSON of Spark's StreamingQueryProgress."""
    operators = report.get("stateOperators") or ()
    watermark = (report.get("eventTime") or {}).get("watermark")
    return replace(
        before,
        batch=int(report["batchId"]),
        rows=before.rows + int(report.get("numInputRows") or 0),
        rows_per_s=_rate(report.get("inputRowsPerSecond")),
        processed_per_s=_rate(report.get("processedRowsPerSecond")),
        batch_ms=int((report.get("durationMs") or {}).get("triggerExecution") or 0),
        lag=lag_of(report.get("sources") or ()),
        state_rows=sum(int(each.get("numRowsTotal") or 0) for each in operators),
        state_bytes=sum(int(each.get("memoryUsedBytes") or 0) for each in operators),
        watermark=None if watermark is None or watermark.startswith("1970-") else watermark,
    )


def lag_of(sources: Any) -> int | None:
    """Over sources whose offsets look like {"topic": {"0": 12}}: how far the end is from the latest."""
    total = None
    for source in sources:
        end, latest = topic_offsets(source.get("endOffset")), topic_offsets(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        total = (total or 0) + sum(max(0, offset - end.get(place, offset)) for place, offset in latest.items())
    return total


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


def _rate(value: object) -> float:
    """Spark writes NaN and Infinity for batches that took no time."""
    return round(float(value), 1) if isinstance(value, int | float) and 0 <= value < float("inf") else 0.0


def _is_sound(value: "Status | QueryProgress") -> bool:
    """Whether every field holds what it is declared to hold."""
    for each in fields(value):
        kind: Any = int | float if each.type is float else tuple if each.name == "queries" else each.type
        if not isinstance(getattr(value, each.name), kind):
            return False
    return True


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: values[each.name] for each in fields(kind) if each.name in values}
