"""A streaming query over topics. Spark keeps the offsets; here it is decided how far each micro-batch goes.

Three things are not obvious:

- *The start must be the same after a restart.* Spark asks for it again when batch 0 was planned but not finished. The
  end of a log is another one by then, and what lay between would be lost. So a query that starts at an end that moves
  reads nothing in batch 0: with that batch, its start is in the checkpoint.
- *Offsets are equal when their JSON is.* When there is nothing new, Spark is given back what it gave.
- *An idle query waits here*, until a broker says that there are records, instead of asking again at once.

Partitions that appear later are read from their beginning.
"""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.pipelines.client.cluster_client import ClusterClient, shared_cluster
from headwater.pipelines.client.offsets import OffsetRange, Offsets, from_json, to_json
from headwater.pipelines.source.columns import arrow_schema
from headwater.pipelines.source.data_loss import Losses
from headwater.pipelines.source.log_ends import LogEnds
from headwater.pipelines.source.options import SourceOptions
from headwater.pipelines.source.positions import AtTime, AtTimes, names_latest, resolve
from headwater.pipelines.source.task_ranges import limit_rows
from headwater.pipelines.source.tasks import range_partitions, read_partition


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One in the driver, for as long as the query runs; copies of it, just made, in the executors, where only `read` is
    called."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = arrow_schema(schema)
        self._options = options
        self._log_ends: LogEnds | None = None
        self._initial: Offsets | None = None
        self._is_start_recorded = False
        self._latest: Offsets = {}
        self._is_available_now = False
        self._target: Offsets | None = None
        """Where a query ends that reads what is available now."""
        self._last_batch_s: float | None = None

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            cluster = self._cluster
            cluster.reach()
            partitions = self._options.subscription.find(cluster)
            self._initial = resolve(cluster, partitions, self._options.starting, self._options.no_match_is_latest)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = from_json(start)
        self._latest = self._find_ends(begun)
        if self._must_record_start(begun):
            return start
        end = self._limited(begun, self._latest, limit)
        return start if end == begun else to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far a query could be, beside how far it is: its lag."""
        return to_json(self._latest) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The same for the same arguments, whenever Spark asks: it replays a batch with them. An end before its start
        is nothing to read; that it was a loss, or the start of a query, was clear when the end was decided."""
        begun, ended = from_json(start), from_json(end)
        begun |= self._ends.beginnings(ended.keys() - begun.keys())
        grown = [partition for partition in sorted(ended) if ended[partition] > begun[partition]]
        if not grown:
            return []
        topics = self._cluster.topics({partition.topic for partition in grown})
        ids = {name: topic.topic_id for name, topic in topics.items()}
        ranges = [OffsetRange(*one, begun[one], ended[one], ids.get(one.topic)) for one in grown]
        return range_partitions(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the offsets are in Spark's checkpoint."""

    def stop(self) -> None:
        if self._log_ends is not None:
            self._log_ends.close()

    @property
    def _cluster(self) -> ClusterClient:
        return shared_cluster(self._options.client)

    @property
    def _ends(self) -> LogEnds:
        if self._log_ends is None:
            losses = Losses(self._options.fail_on_data_loss)
            self._log_ends = LogEnds(self._cluster, self._options.subscription, losses)
        return self._log_ends

    def _find_ends(self, begun: Offsets) -> Offsets:
        """As of now, or of the first time for a query that reads what is available then. Waits a while if there is
        nothing new."""
        if self._is_available_now:
            if self._target is None:
                self._target = self._ends.now(begun)
            return self._target
        ends = self._ends.now(begun)
        if ends == begun and self._options.poll_wait_ms:
            self._ends.wait_for_news(ends, self._options.poll_wait_ms)
            ends = self._ends.now(begun)
        return ends

    def _must_record_start(self, begun: Offsets) -> bool:
        """Whether this is the first batch of a query that would start elsewhere if it were asked again."""
        if self._is_start_recorded or begun != self._initial:
            return False
        self._is_start_recorded = True
        starting = self._options.starting
        is_by_time = isinstance(starting, AtTime | AtTimes)
        return names_latest(starting) or (is_by_time and self._options.no_match_is_latest)

    def _limited(self, begun: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            return ends
        starts = begun | self._ends.beginnings(ends.keys() - begun.keys())
        if self._must_wait_for_more(sum(max(end - starts[partition], 0) for partition, end in ends.items())):
            return begun
        self._last_batch_s = time.monotonic()
        return limit_rows(starts, ends, limit.max_rows) if isinstance(limit, ReadMaxRows) else ends

    def _must_wait_for_more(self, rows: int) -> bool:
        """Too few rows for a batch, and not so long ago that any number will do."""
        least = self._options.min_offsets_per_trigger
        if least is None or rows >= least or self._is_available_now or self._last_batch_s is None:
            return False
        return time.monotonic() - self._last_batch_s < self._options.max_trigger_delay_ms / 1000
