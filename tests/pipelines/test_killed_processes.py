"""Each record once, though processes are killed while a pipeline copies a topic: Spark's Python workers, the broker.

What the driver's death leaves behind is shown in test_sink_spark.py."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.testing import Broker
from tests.pipelines.python_workers import SINK, SOURCE, TASKS, kill_a_worker
from tests.pipelines.reading_back import values_in
from tests.pipelines.running import QUICK_JVM, WAIT_S, RunningPipeline
from tests.pipelines.topics import Topics, numbered
from tests.support.effort import amount, only_long
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]  # Spark on a busy machine takes its time

PIPELINE = """
trigger = "20ms"
[source.numbers]
kind = "topic"
topic = "{from_}"
from = "earliest"
max_records = 20
[step.slowly]
kind = "rate_limit"
input = "numbers"
rows_per_second = 80
[sink.copies]
kind = "topic"
input = "slowly"
topic = "{to}"
format = "raw"
"""
PARTITIONS = 2
ROWS_A_ROUND = 60
"""Three batches or more, each of which takes a while, so that a kill meets work."""
SEED = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(subprocess=True) as broker:
        yield broker


class Copying:
    """Topics from and to which a pipeline copies, and how much it should have copied by now."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._topics = Topics(broker.bootstrap)
        self._from, self._to = self._topics.create(PARTITIONS), self._topics.create(PARTITIONS)
        self.file = directory / "copy.toml"
        self.file.write_text(PIPELINE.format(from_=self._from, to=self._to))
        self._sent: list[bytes] = []

    def send(self) -> None:
        rows = numbered(ROWS_A_ROUND, first=len(self._sent))
        self._sent += rows
        for partition in range(PARTITIONS):
            self._topics.produce(self._from, rows[partition::PARTITIONS], partition=partition)

    def arrived(self) -> list[str]:
        return values_in(self._topics.bootstrap, self._to)

    def is_complete(self) -> bool:
        return len(self.arrived()) >= len(self._sent)

    def check(self) -> None:
        assert Counter(self.arrived()) == Counter(value.decode() for value in self._sent)


@only_long
def test_workers_that_are_killed_are_replaced_by_spark_and_each_record_arrives_once(
    broker: Broker, tmp_path: Path
) -> None:
    """With a master that tries tasks again, the query does not even stop."""
    copying, chance = Copying(broker, tmp_path), random.Random(SEED)
    command = [sys.executable, "-m", "headwater.cli.main", "pipeline", "run", str(copying.file), "--verbose"]
    command += ["--bootstrap", broker.bootstrap, "--master", "local[2,4]"]
    command += ["--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}"]
    environment = {**os.environ, "HEADWATER_CLASS_CACHE": "off", "HEADWATER_CACHE": str(tmp_path / "cache")}
    log = tmp_path / "log"
    with log.open("wb") as out:
        pipeline = subprocess.Popen(command, stdout=out, stderr=out, env=environment, process_group=0)

    def until_all_arrived() -> None:
        def look() -> bool:
            assert pipeline.poll() is None, log.read_text()[-3_000:]
            return copying.is_complete()

        eventually(look, lambda: log.read_text()[-3_000:], patience_s=WAIT_S)

    try:
        copying.send()
        until_all_arrived()
        kills = 0
        while log.read_text(errors="replace").count("Lost task") < 3:
            kills += 1
            assert kills <= 20, "kills meet tasks"
            copying.send()
            time.sleep(chance.random())
            kill_a_worker(TASKS, pipeline.pid, chance)
            until_all_arrived()
        pipeline.send_signal(signal.SIGINT)
        assert pipeline.wait(WAIT_S) == 0
    finally:
        if pipeline.poll() is None:
            os.killpg(pipeline.pid, signal.SIGKILL)
            pipeline.wait()
    copying.check()
    told = log.read_text(errors="replace")
    assert "terminated with error" not in told, "it was one run of the query from beginning to end"


def test_whichever_python_process_of_a_query_is_killed_the_pipeline_goes_on_and_each_record_arrives_once(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """With a master that does not try tasks again, the pipeline starts its query again."""
    copying, chance = Copying(broker, tmp_path), random.Random(SEED)
    with RunningPipeline(spark, copying.file, broker.bootstrap) as pipeline:
        copying.send()
        pipeline.until(copying.is_complete, "all is copied")
        for victim in (SOURCE, TASKS, SINK, TASKS)[: amount(4, 3)]:
            copying.send()
            time.sleep(chance.random())
            kill_a_worker(victim, os.getpid(), chance)
            pipeline.until(copying.is_complete, f"all is copied after {victim} was killed")
        assert pipeline.query("copies").restarts > 0
        other = [note for note in pipeline.interruptions if "has ended unexpectedly: it was killed" not in note]
        assert other == []
    copying.check()


def test_a_broker_that_is_killed_has_each_record_once(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    copying, chance = Copying(broker, tmp_path), random.Random(SEED)
    with RunningPipeline(spark, copying.file, broker.bootstrap) as pipeline:
        copying.send()
        pipeline.until(lambda: bool(copying.arrived()), "copying has begun")
        for _ in range(amount(4, 2)):
            copying.send()
            time.sleep(chance.random())
            broker.kill()
            time.sleep(chance.random())
            broker.start()
        pipeline.until(copying.is_complete, "all is copied")
    copying.check()
