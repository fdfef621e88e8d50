"""Rows as JSON arrays, posted to an address by the executors.

At least once: a batch that Spark repeats is posted again, with the same Idempotency-Key as far as its rows come in the
same order. A request that fails is tried again with growing pauses; a request that the server refuses (4xx, except 408,
425 and 429) is not.
"""

import itertools
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.run.sinks.json_rows import json_row
from headwater.pipelines.spec.sinks import WebhookSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
WORTH_ANOTHER_TRY = frozenset({408, 425, 429})
MAX_REQUEST_BYTES = 8 * 1024 * 1024
SHOWN_ANSWER_BYTES = 200


def to_webhook(sink: WebhookSink, subject: str) -> "Callable[[DataFrame, int], None]":
    def write(batch: "DataFrame", batch_id: int) -> None:
        rows = batch.select(json_row(batch).alias("row"))
        rows.foreachPartition(Post(sink, f"{subject}-{batch_id}"))

    return write


@dataclass(frozen=True, slots=True)
class Post:
    """Posts the rows of one partition; shipped to the executors."""

    sink: WebhookSink
    batch: str

    def __call__(self, rows: Iterable[Any]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        for number, body in enumerate(bodies((row[0] for row in rows), self.sink.rows_per_request)):
            post(self.sink, body, f"{self.batch}-{partition}-{number}")


def bodies(rows: Iterator[str], rows_per_request: int) -> Iterator[bytes]:
    """JSON arrays of so many rows, fewer if they are large."""
    while portion := list(itertools.islice(rows, rows_per_request)):
        while portion:
            taken, size_bytes = 0, 0
            for row in portion:
                size_bytes += len(row)
                if taken and size_bytes > MAX_REQUEST_BYTES:
                    break
                taken += 1
            yield ("[" + ",".join(portion[:taken]) + "]").encode()
            portion = portion[taken:]


def post(sink: WebhookSink, body: bytes, key: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Raises PipelineFailed when there is no hope, or none left."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": key, **sink.headers}
    pause_s = FIRST_PAUSE_S
    for attempt in range(1, sink.max_attempts + 1):
        try:
            request = urllib.request.Request(sink.url, body, headers, method="POST")
            with urllib.request.urlopen(request, timeout=sink.timeout_ms / 1000):
                return
        except urllib.error.HTTPError as error:
            answer = error.read(SHOWN_ANSWER_BYTES).decode(errors="replace")
            problem = f"answered {error.code} {error.reason}: {' '.join(answer.split())}".rstrip(": ")
            if error.code < 500 and error.code not in WORTH_ANOTHER_TRY:
                raise PipelineFailed(f"The webhook {shown_url(sink.url)} {problem}.") from None
        except (OSError, ValueError) as error:
            problem = f"does not answer: {getattr(error, 'reason', error)}"
        if attempt < sink.max_attempts:
            sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    raise PipelineFailed(f"The webhook {shown_url(sink.url)} {problem}, after {sink.max_attempts} attempts.")


def shown_url(url: str) -> str:
    """Without what may be secret: user, password, and the query."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
