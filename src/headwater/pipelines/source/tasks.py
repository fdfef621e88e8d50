"""What one task of Spark reads: a range of offsets, planned in the driver, read in a Python process of an executor."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headwater.pipelines.client.cluster_client import shared_cluster
from headwater.pipelines.client.offsets import OffsetRange
from headwater.pipelines.source.data_loss import Losses
from headwater.pipelines.source.options import SourceOptions
from headwater.pipelines.source.range_reader import RangeReader
from headwater.pipelines.source.task_ranges import split
from headwater.pipelines.worker import freeze_heap


def range_partitions(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[InputPartition]:
    """The tasks that read these ranges, as many as the query asks for."""
    return [InputPartition(one) for one in split(ranges, options.min_partitions, options.max_records_per_partition)]


def read_partition(options: SourceOptions, schema: pa.Schema, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task. Where there are none, Spark makes up a task without a range."""
    offset_range = partition.value
    if offset_range is None:
        return
    assert isinstance(offset_range, OffsetRange), "Spark hands over what `range_partitions` gave it"
    freeze_heap()
    cluster = shared_cluster(options.client)
    losses = Losses(options.fail_on_data_loss)
    yield from RangeReader(cluster, offset_range, schema, losses, options.poll_timeout_ms).rows()
