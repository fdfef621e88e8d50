"""A batch query over topics: from where to where is decided once, when Spark plans it."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from headwater.client.offsets import LATEST
from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.cluster_client import ClusterClient, shared_cluster
from headwater.pipelines.client.offsets import OffsetRange, Offsets
from headwater.pipelines.errors import InvalidOption
from headwater.pipelines.source.columns import arrow_schema
from headwater.pipelines.source.data_loss import Losses
from headwater.pipelines.source.filters import Bounds, bounds
from headwater.pipelines.source.options import SourceOptions
from headwater.pipelines.source.positions import AtOffsets, resolve
from headwater.pipelines.source.tasks import range_partitions, read_partition


class BatchReader(DataSourceReader):
    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = arrow_schema(schema)
        self._options = options
        self._losses = Losses(options.fail_on_data_loss)
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = shared_cluster(options.client)
        cluster.reach()
        ends = self._ends(cluster, options.subscription.find(cluster))
        starts = self._starts(cluster, ends)
        ranges = [
            OffsetRange(*partition, starts[partition], ends[partition], cluster.topic_id(partition.topic))
            for partition in sorted(ends)
        ]
        narrowed = self._bounds.narrow(cluster, ranges)
        return range_partitions(narrowed, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)

    def _ends(self, cluster: ClusterClient, partitions: set[TopicPartition]) -> Offsets:
        """Where to stop. Nothing is read beyond the end of a log, though the query may have named a later offset."""
        ends = resolve(cluster, partitions, self._options.ending, no_match_is_latest=True)
        if isinstance(self._options.ending, AtOffsets):
            latest = cluster.list_offsets(dict.fromkeys(ends, LATEST))
            for partition in sorted(ends):
                if ends[partition] > latest[partition]:
                    reason = f"the log ends at {latest[partition]}"
                    self._losses.report(partition, latest[partition], ends[partition], reason)
            ends = {partition: min(end, latest[partition]) for partition, end in ends.items()}
        return ends

    def _starts(self, cluster: ClusterClient, ends: Offsets) -> Offsets:
        starts = resolve(cluster, ends.keys(), self._options.starting, self._options.no_match_is_latest)
        if isinstance(self._options.starting, AtOffsets):
            for partition in sorted(starts):
                if starts[partition] > ends[partition]:
                    raise InvalidOption(
                        f"Option startingOffsets has {starts[partition]} for {partition}, which is after the end, "
                        f"{ends[partition]}."
                    )
        return starts


class FilteringBatchReader(BatchReader):
    """Fetches only what the filters of the query let through. For a query that asks for it (`pushFilters`), where Spark
    lets sources have filters (spark.sql.python.filterPushdown.enabled).

    Both are off by default, because Spark 4.3 keeps what was planned with filters for the whole DataFrame: another
    query on the same DataFrame that has no filter gets too few rows. With these settings, load a DataFrame for each
    query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds, left = bounds(filters)
        return left
