"""The Python processes that Spark's JVM starts, to be killed: those of tasks, of sources, and of sinks."""

import random
import time
from collections.abc import Iterator

import psutil

TASKS = "pyspark.worker"
"""Forked for tasks, and used again for others."""
SOURCE = "pyspark.sql.streaming.python_streaming_source_runner"
"""One for each source of a query; it says which offsets there are."""
SINK = "pyspark.sql.worker.python_streaming_sink_runner"
"""Made for each micro-batch; it commits."""
DAEMON = "pyspark.daemon"
WAIT_S = 60.0
POLL_S = 0.002


def workers(module: str, of: int) -> Iterator[psutil.Process]:
    """Below the process `of` that run this module. The daemons that fork them are left out."""
    for process in psutil.Process(of).children(recursive=True):
        try:
            command, parent = process.cmdline(), process.parent()
            is_forked = parent is not None and DAEMON in parent.cmdline()
        except psutil.Error:
            continue  # it ended meanwhile
        if module in command and (is_forked or DAEMON not in command):
            yield process


def kill_a_worker(module: str, of: int, chance: random.Random) -> None:
    """kill -9 of one of them, as soon as there is one."""
    deadline_s = time.monotonic() + WAIT_S  # some live for a moment: this looks more often than `eventually`
    while True:
        assert time.monotonic() < deadline_s, f"a process of {module} is there in time"
        found = list(workers(module, of))
        if found:
            try:
                chance.choice(found).kill()
                return
            except psutil.NoSuchProcess:
                continue
        time.sleep(POLL_S)
