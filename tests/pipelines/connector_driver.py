"""A driver with Spark's own Kafka connector in its class path, which copies a topic twice: as a batch, and as a stream.

`python connector_driver.py JARS BOOTSTRAP FROM TO_BY_BATCH TO_BY_STREAM SCRATCH`"""

import sys
from pathlib import Path

from headwater.pipelines.run.session import spark_session, spark_settings
from headwater.pipelines.spec.pipeline import Pipeline, Settings

ROWS_AT_ONCE = 60
WAIT_S = 200


def main(jars: str, bootstrap: str, from_: str, to_by_batch: str, to_by_stream: str, scratch: str) -> None:
    nobody = Pipeline("connector", Path(scratch) / "connector.toml", Settings(), (), (), ())
    extra = {"spark.jars": jars, "spark.sql.warehouse.dir": f"{scratch}/warehouse"}
    with spark_session(spark_settings(nobody, "local[2]", extra), Path(__file__).parents[2]) as (spark, _):
        broker = {"kafka.bootstrap.servers": bootstrap}
        read = {**broker, "subscribe": from_, "startingOffsets": "earliest", "includeHeaders": "true"}
        batch = spark.read.format("kafka").options(**read).load().select("key", "value", "headers")
        batch.write.format("kafka").options(**broker).option("topic", to_by_batch).save()
        stream = spark.readStream.format("kafka").options(**read).option("maxOffsetsPerTrigger", ROWS_AT_ONCE).load()
        writer = stream.select("key", "value", "headers").writeStream.format("kafka").options(**broker)
        writer = writer.option("topic", to_by_stream).option("checkpointLocation", f"{scratch}/checkpoint")
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S), "the query ends"
        print("batches with rows:", sum(progress.numInputRows > 0 for progress in query.recentProgress))


if __name__ == "__main__":
    main(*sys.argv[1:])
