"""A process with a Spark of its own, which does what it is told on standard input and answers with figures.

A line is `{"do": name, …}` with the arguments of the function of that name below; the answer is a line, too. It ends
with its input."""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import IO, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.pipelines.run.session import spark_session, spark_settings
from headwater.pipelines.spec.pipeline import Pipeline, Settings

QUERY_TIMEOUT_S = 300
MASTER = "local[*]"
WRITING_TASKS = 4
ARROW_BATCH_BYTES = 1 << 20
"""What Spark hands over to Python at once, where its own limit is 10,000 rows. With rows of 1 KiB those are 10 MB, and
take Spark twice the time. The JVM connector does not notice."""
SCANNED = "number of output rows"
FIRST_NUMBER = 10**9
"""Numbers of rows have ten digits."""

Figures = dict[str, float]
Options = dict[str, str]


class Driver:
    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self._spark = spark
        self._scratch = scratch
        self._copy: StreamingQuery | None = None

    def read_batch(self, format: str, options: Options) -> Figures:
        """A topic into nothing."""
        before = self._executions().size()
        started_s = time.monotonic()
        frame = self._spark.read.format(format).options(**options).load()
        frame.write.format("noop").mode("overwrite").save()
        seconds = time.monotonic() - started_s
        return {"seconds": seconds, "rows": self._scanned_rows(before)}

    def read_stream(self, format: str, options: Options) -> Figures:
        """The same as a stream that ends at what is there; planning and the checkpoint are part of it."""
        checkpoint = self._new_checkpoint()
        started_s = time.monotonic()
        stream = self._spark.readStream.format(format).options(**options, startingOffsets="earliest").load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(QUERY_TIMEOUT_S):
            query.stop()
            raise TimeoutError(f"{format}: a stream did not end within {QUERY_TIMEOUT_S} s")
        seconds = time.monotonic() - started_s
        return {"seconds": seconds, "rows": sum(progress.numInputRows for progress in query.recentProgress)}

    def write_batch(self, format: str, options: Options, rows: int, size_bytes: int) -> Figures:
        """Rows that Spark makes up, with a key, into a topic."""
        frame = _numbered(self._spark, rows, size_bytes)
        started_s = time.monotonic()
        frame.write.format(format).options(**options).mode("append").save()
        return {"seconds": time.monotonic() - started_s, "rows": rows}

    def start_copy(self, format: str, reading: Options, writing: Options) -> Figures:
        """A stream from one topic to another, with the trigger that Spark has by default, until it is stopped."""
        stream = self._spark.readStream.format(format).options(**reading, startingOffsets="earliest").load()
        writer = stream.select("key", "value").writeStream.format(format).options(**writing)
        self._copy = writer.option("checkpointLocation", self._new_checkpoint()).start()
        return {}

    def stop_copy(self) -> Figures:
        """How long a micro-batch took, of the last hundred."""
        assert self._copy is not None, "a copy that was started"
        copy, self._copy = self._copy, None
        failure = copy.exception()
        if failure is not None:
            raise failure
        batches = [progress for progress in copy.recentProgress if progress.numInputRows]
        copy.stop()
        return {"batch_ms": median([progress.durationMs["triggerExecution"] for progress in batches] or [0])}

    def _new_checkpoint(self) -> str:
        return tempfile.mkdtemp(prefix="checkpoint-", dir=self._scratch)

    def _scanned_rows(self, before: int) -> int:
        """What came out of the scan of the last query, as Spark counts it anyway, whoever reads. A connector may have
        some execution inside of another."""
        found = self._executions()
        rows = 0
        for at in range(before, found.size()):
            execution = found.apply(at)
            counters = {metric.accumulatorId() for metric in _each(execution.metrics()) if metric.name() == SCANNED}
            for pair in _each(self._store().executionMetrics(execution.executionId())):
                if pair._1() in counters:
                    rows = max(rows, int(pair._2().replace(",", "")))
        return rows

    def _executions(self) -> Any:
        self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        return self._store().executionsList()

    def _store(self) -> Any:
        return self._spark._jsparkSession.sharedState().statusStore()


def _each(of_scala: Any) -> Iterator[Any]:
    iterator = of_scala.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _numbered(spark: SparkSession, rows: int, size_bytes: int) -> DataFrame:
    """Made with little work, so that what is measured is the sink: `rpad` alone would take most of the time."""
    number = f"CAST(id + {FIRST_NUMBER} AS STRING)"
    value = f"CAST(concat({number}, '{'x' * (size_bytes - len(str(FIRST_NUMBER)))}') AS BINARY) AS value"
    return spark.range(0, rows, 1, WRITING_TASKS).selectExpr(f"CAST({number} AS BINARY) AS key", value)


def main(jars: str, answers: IO[str]) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="headwater-bench-spark-"))
    nobody = Pipeline("bench", scratch / "bench.toml", Settings(), (), (), ())
    # The settings of `headwater pipeline run`, for all contenders alike: two of them make micro-batches shorter.
    settings = {
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),
        **({"spark.jars": jars} if jars else {}),
    }
    try:
        with spark_session(spark_settings(nobody, MASTER, settings), scratch) as (spark, _):
            driver = Driver(spark, scratch)
            print("{}", file=answers, flush=True)
            for line in sys.stdin:
                order = json.loads(line)
                print(json.dumps(getattr(driver, order.pop("do"))(**order)), file=answers, flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    # Answers alone are on standard output, whatever Spark's processes print.
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        main(sys.argv[1] if len(sys.argv) > 1 else "", out)
