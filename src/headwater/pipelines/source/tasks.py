"""What one task of Spark reads: a range of offsets, planned in the driver, read in a Python process of an executor."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headwater.pipelines.client.cluster import shared_cluster
from headwater.pipelines.client.offsets import OffsetRange
from headwater.pipelines.source.losses import Losses
from headwater.pipelines.source.options import SourceOptions
from headwater.pipelines.source.range_reader import RangeReader
from headwater.pipelines.source.shares import split


class RangePartition(InputPartition):
    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def range_partitions(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[InputPartition]:
    """The tasks that read these ranges, as many as the query asks for."""
    return [RangePartition(one) for one in split(ranges, options.min_partitions, options.max_records_per_partition)]


def read_partition(
    options: SourceOptions, schema: pa.Schema, partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    """The rows of one task. Where there are no tasks at all, Spark asks for the partition None."""
    if partition is None:
        return
    assert isinstance(partition, RangePartition), "Spark hands over what `partitions` gave it"
    cluster = shared_cluster(options.client)
    losses = Losses(options.fail_on_data_loss)
    yield from RangeReader(cluster, partition.wanted, schema, losses, options.poll_timeout_ms).rows()
