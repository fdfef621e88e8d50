"""Spark looks for a `DefaultSource` in every module named `pyspark_…`: with this one installed, `format("headwater")`
needs no registration."""

from headwater.pipelines.data_source import HeadwaterDataSource


class DefaultSource(HeadwaterDataSource):
    """The source under the name by which Spark looks for it."""
