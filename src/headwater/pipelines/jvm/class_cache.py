"""An archive of Spark's loaded classes, with which its JVM starts in half the time (AppCDS).

It is made on the user's machine, because it fits one Java and one list of jars only, and never while a user waits: when
a run has ended, a process of lowest priority starts Spark once, lets it do a little of everything, and keeps what was
loaded. The next start uses it. 170 MB, in the cache directory:

    classes/<key>/base.jsa     Java's own classes, if the Java brings no archive of them
    classes/<key>/spark.jsa    the rest; there only when it is complete

HEADWATER_CLASS_CACHE=off makes and uses none.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.pipelines.jvm.cache import cache_directory
from headwater.pipelines.jvm.gateway import class_path, spark_home, start_gateway
from headwater.pipelines.jvm.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "1"
"""Counts up when the command line of the JVM changes in a way that makes older archives useless."""
MAX_ARCHIVES = 3
NEEDED_BYTES = 1024**3
"""Of free disk."""
DUMP_TIMEOUT_S = 900.0
"""At the lowest priority, on a machine that has other things to do."""
LOWEST_PRIORITY = 19
FAILED = "failed"
"""There while an archive is made, and after that if it could not be."""
TRY_AGAIN_S = 86_400.0


def is_enabled() -> bool:
    return os.environ.get("HEADWATER_CLASS_CACHE", "on") != "off"


def archive_directory(java: Java) -> Path:
    """Where the archive for this Java and the installed Spark lies, or would."""
    jars = [(jar, Path(jar).stat().st_size) for jar in class_path(spark_home())]
    fingerprint = repr((FORMAT, str(java.home), java.release, jars))
    return cache_directory() / "classes" / hashlib.sha256(fingerprint.encode()).hexdigest()[:20]


def archive_options(java: Java) -> list[str]:
    """Options of the JVM that use the archive; none if there is none yet."""
    directory = archive_directory(java)
    if not is_enabled() or not (directory / "spark.jsa").is_file():
        return []
    with contextlib.suppress(OSError):
        os.utime(directory)
    return [_archives(directory, java), "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]


def build_in_background(java: Java) -> "subprocess.Popen[bytes] | None":
    """Make the archive, unless it is there or switched off. The caller need not wait: the process outlives it."""
    directory = archive_directory(java)
    if not is_enabled() or (directory / "spark.jsa").is_file() or _failed_lately(directory):
        return None
    return subprocess.Popen(
        [sys.executable, "-m", "headwater.pipelines.jvm.class_cache"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY_")},
    )


def build(java: Java) -> Path | None:
    """The archive, made now; None if another process makes it, or the disk is full."""
    directory = archive_directory(java)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return None
        archive = directory / "spark.jsa"
        if archive.is_file():
            return archive
        if shutil.disk_usage(directory).free < NEEDED_BYTES:
            return None
        _prune(directory)
        _dump_base(java, directory)
        unfinished = directory / "spark.unfinished"
        (directory / FAILED).touch()
        _train(java, directory, unfinished)
        unfinished.rename(archive)
        (directory / FAILED).unlink()
        return archive


def _failed_lately(directory: Path) -> bool:
    """What did not work is not tried again at every start."""
    try:
        return time.time() - (directory / FAILED).stat().st_mtime < TRY_AGAIN_S
    except OSError:
        return False


def _archives(directory: Path, java: Java) -> str:
    base = directory / "base.jsa"
    first = f"{base}{os.pathsep}" if not _has_own_base(java) else ""
    return f"-XX:SharedArchiveFile={first}{directory / 'spark.jsa'}"


def _has_own_base(java: Java) -> bool:
    return (java.home / "lib" / "server" / "classes.jsa").is_file()


def _dump_base(java: Java, directory: Path) -> None:
    if _has_own_base(java):
        return
    command = [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={directory / 'base.jsa'}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=DUMP_TIMEOUT_S)


def _train(java: Java, directory: Path, archive: Path) -> None:
    """Run what pipelines run, in a JVM that writes the archive when it ends."""
    options = [f"-XX:ArchiveClassesAtExit={archive}"]
    if not _has_own_base(java):
        options.append(f"-XX:SharedArchiveFile={directory / 'base.jsa'}")
    settings = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    log = directory / "training.log"
    gateway = start_gateway(java, settings, options=options, log=log)
    try:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.getOrCreate()
        with tempfile.TemporaryDirectory(prefix="headwater-training-") as scratch:
            _do_a_little_of_everything(spark, Path(scratch))
        spark.stop()
    finally:
        gateway.close(DUMP_TIMEOUT_S)


def _do_a_little_of_everything(spark: "SparkSession", scratch: Path) -> None:
    from pyspark.sql import functions as f

    rows = spark.range(100).select("id", f.current_timestamp().alias("at"), f.lit('{"n": 1}').alias("text"))
    rows.write.json(str(scratch / "in"))
    stream = spark.readStream.schema("id long, at timestamp, text string").json(str(scratch / "in"))
    parsed = stream.select("id", "at", f.from_json("text", "n int").alias("row"))
    counted = parsed.withWatermark("at", "1 minute").groupBy(f.window("at", "1 minute")).agg(f.sum("row.n").alias("n"))
    counted.createOrReplaceTempView("counted")
    writer = spark.sql("select * from counted").writeStream.outputMode("append").format("parquet")
    query = writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True)
    query.start(str(scratch / "out")).awaitTermination()
    rows.mapInArrow(lambda batches: batches, "id long, at timestamp, text string").collect()


def _prune(newest: Path) -> None:
    """Archives of Javas and Sparks that are no longer used are the oldest."""
    others = [each for each in newest.parent.iterdir() if each.is_dir() and each != newest]
    others.sort(key=lambda each: each.stat().st_mtime, reverse=True)
    for old in others[MAX_ARCHIVES - 1 :]:
        shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    os.nice(LOWEST_PRIORITY)
    build(find_java())
