"""What Spark reports of its queries, from its own threads, kept until the runner takes it."""

import json
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener

LAST_REPORT_TIMEOUT_S = 5.0
MAX_REPORTS = 10_000
"""Of Spark's that wait; when the runner is held up for so long, the oldest are forgotten."""


@dataclass(slots=True)
class Reports:
    """What Spark's threads left behind. They lag: a query may be over before its last report is here."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_REPORTS))
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_REPORTS))
    """Ids of runs of queries; nothing more comes from them."""

    def put(self, report: dict[str, Any]) -> None:
        with self.changed:
            self.waiting.append(report)

    def end(self, run_id: str) -> None:
        with self.changed:
            self.ended.append(run_id)
            self.changed.notify_all()

    def take(self) -> list[dict[str, Any]]:
        with self.changed:
            taken = list(self.waiting)
            self.waiting.clear()
        return taken

    def wait_for_end(self, run_id: str) -> None:
        with self.changed:
            self.changed.wait_for(lambda: run_id in self.ended, LAST_REPORT_TIMEOUT_S)


def report_listener(reports: Reports) -> "StreamingQueryListener":
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class _Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            reports.put(json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            reports.end(str(event.runId))

    return _Listener()
