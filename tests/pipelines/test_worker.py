"""What the Python processes of Spark are spared: a search for garbage after every task, and pandas."""

import subprocess
import sys

import pytest

SETTLING = """
import gc
from headwater.pipelines.worker import freeze_heap

class Node:
    pass

freeze_heap()
frozen = gc.get_freeze_count()
print(frozen > 1_000)
later = Node()
later.itself = later
freeze_heap()
print(gc.get_freeze_count() == frozen)
del later
print(gc.collect() > 0)
"""

DECODING = """
import sys
import pyspark.worker
from headwater.pipelines.data_source import HeadwaterDataSource
from headwater.pipelines.source.decoding.decoder import Decoder
from headwater.pipelines.source.decoding.selection import select_batches
from headwater.pipelines.source.columns import arrow_schema, whole_schema
from headwater.records.build import build_batch
from headwater.records.record import Record

fetched = bytes(build_batch([Record(b"k", b"v"), Record(None, None)], base_offset=5))
selected = select_batches(fetched, 0, 10).batches
decoder = Decoder("orders", 0, arrow_schema(whole_schema(False)))
print(sum(batch.num_rows for batch in decoder.decode(fetched, selected, 0, 10)), "pandas" in sys.modules)
"""


LIGHT = """
import sys
import headwater.pipelines.data_source
import headwater.pipelines.sink.task
import headwater.pipelines.source.tasks
heavy = ("confluent_kafka", "asyncio", "headwater.gateway", "headwater.broker", "headwater.cli")
print([name for name in heavy if name in sys.modules and name not in before])
"""


def test_modules_are_spared_and_what_tasks_leave_behind_is_collected() -> None:
    done = subprocess.run([sys.executable, "-c", SETTLING], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "True", "True"]


def test_planning_and_reading_do_not_load_pandas() -> None:
    pytest.importorskip("pyspark", reason="the extra headwater[spark] is not installed")
    done = subprocess.run([sys.executable, "-c", DECODING], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["2", "False"]


def test_a_task_loads_no_other_client_and_no_server() -> None:
    pytest.importorskip("pyspark", reason="the extra headwater[spark] is not installed")
    spark_alone = "import sys\nimport pyspark.worker\nbefore = set(sys.modules)\n"
    command = [sys.executable, "-c", spark_alone + LIGHT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
