"""Spark's own Kafka connector, from Maven Central, reads and writes a Headwater broker."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from bench import maven

from headwater.testing import Broker
from tests.pipelines.reading_back import read_back
from tests.pipelines.topics import Topics, numbered
from tests.support.effort import only_long

WAIT_S = 280


@pytest.mark.clients
@only_long
@pytest.mark.timeout(WAIT_S + 20)
def test_the_jvm_connector_reads_and_writes_batches_and_streams(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra headwater[spark] is not installed")
    try:
        folder = Path(maven.class_path("spark-kafka", maven.SPARK_CONNECTOR)).parent
    except maven.JarsUnavailable as reason:
        pytest.skip(f"Spark's Kafka connector is not judged: {reason}")
    jars = ",".join(sorted(map(str, folder.glob("*.jar"))))
    with Broker(subprocess=True) as broker:
        topics = Topics(broker.bootstrap)
        from_, to_by_batch, to_by_stream = topics.create(2), topics.create(3), topics.create(3)
        topics.produce(from_, numbered(100), key=b"k", headers=[("trace", b"1")], codec="zstd")
        topics.produce(from_, numbered(100, first=100), partition=1, key=b"k", headers=[("trace", b"1")])
        arguments = (jars, broker.bootstrap, from_, to_by_batch, to_by_stream, str(tmp_path))
        command = [sys.executable, "-m", "tests.pipelines.connector_driver", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr[-3_000:]
        assert "batches with rows: 4" in done.stdout
        for topic in (to_by_batch, to_by_stream):
            messages = read_back(broker.bootstrap, topic)
            assert Counter(message.value() for message in messages) == Counter(numbered(200))
            assert {message.key() for message in messages} == {b"k"}
            assert len({message.partition() for message in messages}) == 1, "one key, one partition"
            assert all(message.headers() == [("trace", b"1")] for message in messages)
