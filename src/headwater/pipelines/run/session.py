"""A Spark session for a pipeline: a JVM on the Java that is there, with settings that suit streams.

What the file or the command line says of Spark wins over everything here.
"""

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.pipelines.jvm.cache import cache_directory
from headwater.pipelines.jvm.class_cache import archive_options
from headwater.pipelines.jvm.gateway import start_gateway
from headwater.pipelines.jvm.java import Java, find_java
from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.spec.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_SOCKET_DIRECTORY_CHARS = 60
"""A Unix socket's path has about 100 characters, and Spark adds some 40 to the directory."""
MAX_LOGS = 20
ERROR_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j.clientserver")
"""Through which PySpark logs, with all of the stack, what it raises as well."""

CHECKPOINT_PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing"
STATE_PACKAGE = "org.apache.spark.sql.execution.streaming.state"


def spark_settings(pipeline: Pipeline, master: str, given: Mapping[str, str]) -> dict[str, str]:
    """All settings of Spark: ours, those of the file, and those of the command line, the later over the earlier."""
    ours = {
        "spark.app.name": f"headwater {pipeline.name}",
        "spark.sql.session.timeZone": "UTC",  # the same rows on every machine
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.warehouse.dir": f"{pipeline.checkpoint}/warehouse",  # not where the command happens to run
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # State outside of the heap; stateful Python works with no other.
        "spark.sql.streaming.stateStore.providerClass": f"{STATE_PACKAGE}.RocksDBStateStoreProvider",
    }
    if len(tempfile.gettempdir()) <= MAX_SOCKET_DIRECTORY_CHARS:
        # A task's first bytes to Python wait 40 ms on a TCP socket.
        ours["spark.python.unix.domain.socket.enabled"] = "true"
    if is_local(master):
        ours |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # Small state is spread over no more tasks than can run at once. It stays so for the checkpoint's life.
            "spark.sql.shuffle.partitions": str(_cores(master)),
        }
        if is_local_path(pipeline.checkpoint):
            # The default forks a process for every file of the checkpoint, a tenth of a second for each batch. This
            # one needs a file system on which a rename replaces nothing, and a single driver: a local disk.
            ours["spark.sql.streaming.checkpointFileManagerClass"] = (
                f"{CHECKPOINT_PACKAGE}.FileSystemBasedCheckpointFileManager"
            )
    return {**ours, **pipeline.settings.spark, **given, "spark.master": master}


@contextmanager
def spark_session(
    settings: Mapping[str, str], modules: Path, *, is_verbose: bool = False
) -> "Iterator[tuple[SparkSession, Java]]":
    """A session whose Python processes on this machine find the modules in a directory. The JVM ends with it.

    Raises PipelineFailed without PySpark, and NoJava or JvmFailed."""
    java = find_java()
    log = None if is_verbose else _new_log()
    try:
        gateway = start_gateway(java, settings, options=archive_options(java), log=log, modules=modules)
    except ImportError as error:
        raise no_spark() from error
    try:
        from pyspark.sql import SparkSession

        if not is_verbose:
            for name in ERROR_LOGGERS:
                logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            spark = SparkSession.builder.getOrCreate()
        except Exception as error:
            where = f"; its log is {log}" if log is not None else ""
            raise PipelineFailed(f"Spark does not start with the master {settings['spark.master']}{where}.") from error
        try:
            spark.sparkContext.setLogLevel("WARN" if is_verbose else "ERROR")
            yield spark, java
        finally:
            spark.stop()
    finally:
        gateway.close()


def no_spark() -> PipelineFailed:
    return PipelineFailed("PySpark is not installed.", 'Install it with `pip install "headwater[spark]"`.')


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def is_local_path(path: str) -> bool:
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> Path:
    """Of a path or URL that `is_local_path`."""
    return Path(path.removeprefix("file://").removeprefix("file:"))


def _cores(master: str) -> int:
    number = master.removeprefix("local").strip("[]").partition(",")[0]
    return int(number) if number.isdigit() else len(os.sched_getaffinity(0)) if number == "*" else 1


def _new_log() -> Path:
    """What Spark says, for when it is needed."""
    directory = cache_directory() / "logs"
    directory.mkdir(parents=True, exist_ok=True)
    logs = sorted(directory.glob("spark-*.log"))
    for old in logs[: max(0, len(logs) - MAX_LOGS + 1)]:
        old.unlink(missing_ok=True)
    return directory / f"spark-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
