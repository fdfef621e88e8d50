"""A pipeline that runs beside its test, in a thread of its own, until the test is done with it."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headwater.pipelines.run.progress import QueryProgress, RunStatus
from headwater.pipelines.run.runner import Runner, RunOptions
from headwater.pipelines.spec.check import load
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JVM = (
    # A JVM that lives for a minute does not get back what its second compiler costs, and has no code to drop.
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UseCodeCacheFlushing "
    # Spark starts a program for the mode of every file.
    "-Djdk.lang.Process.launchMechanism=VFORK"
)
WAIT_S = 120.0
"""For one thing to happen, on a machine that is busy."""


class RunningPipeline:
    """Stops at the end of its block. Its failure is that of whoever waits for it to do something else."""

    def __init__(self, spark: "SparkSession", file: Path, bootstrap: str) -> None:
        self.notes: list[str] = []
        self._runner = Runner(load(file), spark, RunOptions(bootstrap), None, lambda line: None, self.notes.append)
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the pipeline stops when it is asked to"

    @property
    def status(self) -> RunStatus:
        return self._runner.status

    def query(self, name: str) -> QueryProgress:
        """How one of its queries is; as before its first batch while it has not started."""
        return next((query for query in self.status.queries if query.query == name), QueryProgress(name))

    @property
    def interruptions(self) -> list[str]:
        """What made it start queries again, beside a machine that is too busy for Spark."""
        return [note for note in self.notes if "started again" in note and "too much to do" not in note]

    def starting_queries(self) -> list[str]:
        """Those of its queries that get their sources ready just now, as Spark says, and what it says of each."""
        before = self._messages()
        # One may have got ready, and the next begun, while they were asked one after the other.
        after = self._messages()
        both = [
            name for name in before if all(each.get(name, "").startswith("Initializing") for each in (before, after))
        ]
        return [f"{name}: {after[name]}" for name in both]

    def _messages(self) -> dict[str, str]:
        return {query.name: query.status["message"] for query in self._runner._spark.streams.active}

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            if is_so():
                return True
            assert self._error is None, f"{what}; but it failed: {self._error}"
            return False

        eventually(look, lambda: f"{what}; the status is {self.status}", patience_s=WAIT_S)

    def failure(self) -> Exception:
        """With which the pipeline ends by itself."""
        self._thread.join(WAIT_S)
        assert self._error is not None, f"it fails; the status is {self.status}"
        return self._error

    def _run(self) -> None:
        try:
            self._runner.run(self._stop.is_set, lambda status: None)
        except Exception as error:
            self._error = error
