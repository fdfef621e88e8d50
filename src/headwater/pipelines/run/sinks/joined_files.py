"""Small Parquet files joined into larger ones, so that a crash at any moment neither loses nor doubles rows for good.

A join is written aside; then a note of what it replaces; then it takes its place; then the replaced files go; then the
note. A start that finds a note finishes the join from there.
"""

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from headwater.pipelines.run.sinks.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_FILES = 2
MAX_FILES = 1_000
"""In one join."""
NOTES = "joins"

_log = logging.getLogger(__name__)


def join_small_files(
    spark: "SparkSession",
    files: HadoopFiles,
    own: str,
    query: str,
    may_join: Callable[[str], bool],
    below_bytes: int,
    to_bytes: int,
) -> int:
    """Join files below a size, directory by directory. Returns how many files are gone.

    Files that do not go together are left as they are: a pipeline does not stop for them."""
    small = [(path, size) for path, size in files.walk() if size < below_bytes and may_join(path)]
    gone = 0
    for directory, group in _groups(small, to_bytes):
        try:
            gone += _join(spark, files, own, query, directory, group)
        except Exception as error:
            _log.warning("could not join files in %s: %s", files.url(directory), str(error).partition("\n")[0])
    return gone


def finish_joins(files: HadoopFiles, own: str, query: str) -> None:
    """What a crash of this query left half done; another one may be at work in the same directory."""
    for name in files.names(f"{own}/{NOTES}"):
        if name.startswith(f"{query}-") and name.endswith(".json"):
            path = f"{own}/{NOTES}/{name}"
            note = files.read_json(path)
            _publish(files, path, note["staged"], note["joined"], note["replaces"])


def _groups(small: Iterable[tuple[str, int]], to_bytes: int) -> Iterator[tuple[str, list[str]]]:
    by_directory: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, size in sorted(small):
        by_directory[path.rpartition("/")[0]].append((path, size))
    for directory, members in by_directory.items():
        group: list[str] = []
        total = 0
        for path, size in members:
            if group and (total + size > to_bytes or len(group) == MAX_FILES):
                if len(group) >= MIN_FILES:
                    yield directory, group
                group, total = [], 0
            group.append(path)
            total += size
        if len(group) >= MIN_FILES:
            yield directory, group


def _join(spark: "SparkSession", files: HadoopFiles, own: str, query: str, directory: str, group: list[str]) -> int:
    name = f"{query}-joined-{uuid.uuid4().hex}.parquet"
    staging = f"{own}/{name}"
    rows = spark.read.option("mergeSchema", "true").parquet(*map(files.url, group))
    rows.coalesce(1).write.mode("overwrite").parquet(files.url(staging))
    (staged,) = (path for path, _ in files.walk(staging) if path.endswith(".parquet"))
    joined = f"{directory}/{name}".lstrip("/")
    note = f"{own}/{NOTES}/{name}.json"
    files.write_json(note, {"staged": staged, "joined": joined, "replaces": group})
    _publish(files, note, staged, joined, group)
    files.delete(staging)
    return len(group)


def _publish(files: HadoopFiles, note: str, staged: str, joined: str, replaces: list[str]) -> None:
    if files.exists(staged):
        files.rename(staged, joined)
    assert files.exists(joined), "what replaces files is there before they go"
    for path in replaces:
        files.delete(path)
    files.delete(note)
