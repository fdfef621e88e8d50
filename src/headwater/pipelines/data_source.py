"""`format("headwater")`: topics as tables and streams of Spark.

    spark.readStream.format("headwater").option("kafka.bootstrap.servers", "…").option("subscribe", "orders").load()

Parameters have the names that Spark calls them by.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headwater.pipelines.sink.options import sink_options
from headwater.pipelines.sink.writers import BatchWriter, StreamWriter, refuse_overwriting
from headwater.pipelines.source.batch_reader import BatchReader, FilteringBatchReader
from headwater.pipelines.source.columns import whole_schema
from headwater.pipelines.source.options import includes_headers, source_options
from headwater.pipelines.source.stream_reader import StreamReader
from headwater.pipelines.worker import freeze_heap

NAME = "headwater"
_PLANS_WITH_FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"


class HeadwaterDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return whole_schema(includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options, is_streaming=False)
        takes_filters = options.push_filters and _plans_with_filters()
        return FilteringBatchReader(schema, options) if takes_filters else BatchReader(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(schema, source_options(self.options, is_streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        refuse_overwriting(overwrite)
        return BatchWriter(schema, sink_options(self.options, is_streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        freeze_heap()  # Spark makes one in the driver's processes twice for each micro-batch
        return StreamWriter(schema, sink_options(self.options, is_streaming=True))


def register(spark: SparkSession) -> None:
    """Make the format known to a session. Not needed where Spark finds it by itself (`pyspark_headwater`)."""
    spark.dataSource.register(HeadwaterDataSource)


def _plans_with_filters() -> bool:
    """Whether this process is Spark's planner that pushes filters down. Spark starts it only where the setting allows
    that, and everywhere else it refuses a reader that takes filters."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PLANS_WITH_FILTERS in sys.modules or (main is not None and main.name == _PLANS_WITH_FILTERS)
