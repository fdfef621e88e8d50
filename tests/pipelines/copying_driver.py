"""A driver of its own that copies a topic, to be killed: `python copying_driver.py BOOTSTRAP FROM TO CHECKPOINT`."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.pipelines import register
from headwater.pipelines.run.session import spark_session, spark_settings
from headwater.pipelines.spec.pipeline import Pipeline, Settings
from tests.pipelines.starting import patiently

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_AT_ONCE = "50"


def copy(spark: "SparkSession", bootstrap: str, from_: str, to: str, checkpoint: str) -> "StreamingQuery":
    """All that is there now, in many small batches."""
    rows = spark.readStream.format("headwater").option("kafka.bootstrap.servers", bootstrap)
    rows = rows.option("subscribe", from_).option("startingOffsets", "earliest")
    frame = rows.option("maxOffsetsPerTrigger", ROWS_AT_ONCE).load().select("key", "value")
    writer = frame.writeStream.format("headwater").option("kafka.bootstrap.servers", bootstrap).option("topic", to)
    return patiently(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start)


def main(bootstrap: str, from_: str, to: str, checkpoint: str) -> None:
    scratch = Path(tempfile.mkdtemp())
    nobody = Pipeline("copy", scratch / "copy.toml", Settings(), (), (), ())
    settings = spark_settings(nobody, "local[2]", {"spark.sql.warehouse.dir": str(scratch / "warehouse")})
    with spark_session(settings, Path(__file__).parents[2]) as (spark, _):
        register(spark)
        copy(spark, bootstrap, from_, to, checkpoint).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
