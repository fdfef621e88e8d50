"""The other side of `bench.spark_driver`: starts it, tells it what to do, and watches the memory of its executors."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any

import psutil
from bench.spark_contenders import Contender

ROOT = Path(__file__).resolve().parent.parent
ORDER_TIMEOUT_S = 400.0
STOP_TIMEOUT_S = 30.0
LOOK_INTERVAL_S = 0.1


@dataclass(slots=True)
class Cpu:
    """Of the JVM, and of the JVM with all Python processes below it. Next to it, others on the machine make little
    difference: they slow a query down, but what it has to do stays the same."""

    jvm_s: float = 0.0
    all_s: float = 0.0


@dataclass(slots=True)
class Memory:
    """Resident at one moment, the largest of all that were looked at. Pages that Python workers share, because they
    were forked, are counted for each of them."""

    jvm_bytes: int = 0
    all_bytes: int = 0


class SparkProcess:
    """A Spark for one contender's turn. In local mode its JVM is the driver and the executor in one."""

    def __init__(self, contender: Contender, jars: list[Path]) -> None:
        self.contender = contender
        self._jars = jars if contender.needs_jars else []
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "bench.spark_driver", ",".join(map(str, self._jars))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
        )
        self._answer("start")

    def ask(self, what: str, **arguments: Any) -> dict[str, float]:
        assert self._process is not None, "started before it is asked"
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the missing answer tells
            self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
            self._process.stdin.flush()
        return self._answer(what)

    @contextmanager
    def cpu(self) -> Iterator[Cpu]:
        """What is used inside of the block, known when it ends."""
        used, before = Cpu(), self._cpu()
        yield used
        after = self._cpu()
        used.jvm_s, used.all_s = after.jvm_s - before.jvm_s, after.all_s - before.all_s

    @contextmanager
    def memory(self) -> Iterator[Memory]:
        """The peak inside of the block, known when it ends."""
        peak, done = Memory(), Event()

        def watch() -> None:
            while not done.wait(LOOK_INTERVAL_S):
                self._look(peak)

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield peak
        finally:
            done.set()
            watcher.join()

    def stop(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            for process in [*psutil.Process(self._process.pid).children(recursive=True), self._process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _answer(self, what: str) -> dict[str, float]:
        assert self._process is not None
        assert self._process.stdout is not None
        too_late = Timer(ORDER_TIMEOUT_S, self._process.kill)
        too_late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            too_late.cancel()
        if not line:
            raise RuntimeError(f"{self.contender.name}: Spark ended instead of answering {what!r}; see above")
        answer: dict[str, float] = json.loads(line)
        return answer

    def _cpu(self) -> Cpu:
        assert self._process is not None
        found = Cpu()
        for jvm in psutil.Process(self._process.pid).children():
            found.jvm_s += sum(jvm.cpu_times()[:2])
            for process in [jvm, *jvm.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    found.all_s += sum(process.cpu_times()[:4])  # those that ended are their parents'
        return found

    def _look(self, peak: Memory) -> None:
        """The JVM is the one child of our process, and Python workers are below it."""
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            sizes = []
            for jvm in psutil.Process(self._process.pid).children():
                own_bytes = jvm.memory_info().rss
                sizes.append(own_bytes)
                peak.jvm_bytes = max(peak.jvm_bytes, own_bytes)
                for process in jvm.children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        # A process that the JVM has just forked is still a picture of it, and would count it twice.
                        if process.name() != jvm.name():
                            sizes.append(process.memory_info().rss)
            peak.all_bytes = max(peak.all_bytes, sum(sizes))


class Others:
    """How busy the machine was with something else since this was made: then figures are worth less."""

    def __init__(self) -> None:
        self._begun_s, self._busy_s, self._ours_s = time.monotonic(), _busy_s(), _family_s()

    def percent(self) -> float:
        elapsed_s = (time.monotonic() - self._begun_s) * (psutil.cpu_count() or 1)
        others_s = _busy_s() - self._busy_s - (_family_s() - self._ours_s)
        return max(0.0, 100 * others_s / elapsed_s)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq


def _family_s() -> float:
    """CPU time of this process and all below it, those included that have ended and were waited for."""
    this, total = psutil.Process(), 0.0
    for process in [this, *this.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total
