"""A producer that keeps its pace through a fault, and what it saw: when no acknowledgements came, and for how long.

The clock of `steady.c` is that of `time.monotonic`, so a fault's moment can be found among its gaps."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Final

from bench.load import BINARY, RUN_TIMEOUT_S

INTERVAL_MS: Final = 1
SHORTEST_GAP_S: Final = 0.02
"""A shorter one is not listed: see `GAP_S` in `steady.c`."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a steady producer has seen."""

    sent: int
    refused: int
    gaps: list[tuple[float, float]]
    """From one acknowledgement to the next, where that took long."""
    p50_ms: float
    p99_ms: float
    max_ms: float

    def stall_s(self, begin_s: float, end_s: float) -> float:
        """The longest time without an acknowledgement between two moments, or the shortest that is listed."""
        within = [min(to, end_s) - max(start, begin_s) for start, to in self.gaps if to > begin_s and start < end_s]
        return max(within, default=SHORTEST_GAP_S)


class Steady:
    """A producer of one record each millisecond. `finish` once."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def finish(self) -> Seen:
        output, _ = self._process.communicate(timeout=RUN_TIMEOUT_S)
        if self._process.returncode != 0:
            raise RuntimeError(f"the steady producer ended with {self._process.returncode}")
        answer = json.loads(output)
        latencies = answer["latencies"]
        gaps = [(start, end) for start, end in answer["gaps"]]
        in_ms = (latencies["p50_ms"], latencies["p99_ms"], latencies["max_ms"])
        return Seen(answer["sent"], answer["refused"], gaps, *in_ms)


@contextmanager
def steady(bootstrap: str, topic: str, size_bytes: int) -> Iterator[Steady]:
    """It has had its first acknowledgement."""
    options = {"interval_ms": INTERVAL_MS, "size": size_bytes, "linger_ms": 0}
    with _begun("steady", bootstrap=bootstrap, topic=topic, **options) as process:
        yield Steady(process)


@contextmanager
def touching(bootstrap: str, topic: str, partitions: int) -> Iterator["Touch"]:
    """A producer that knows all partitions and waits for `Touch.all`."""
    options = {"partitions": partitions, "size": 100, "linger_ms": 5}
    with _begun("touch", bootstrap=bootstrap, topic=topic, **options) as process:
        yield Touch(process)


class Touch:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def begin(self) -> None:
        stdin = _pipe(self._process.stdin)
        stdin.write("\n")
        stdin.flush()

    def end_s(self) -> float:
        """When the last partition had taken its record; waits until then."""
        output, _ = self._process.communicate(timeout=2 * RUN_TIMEOUT_S)
        if self._process.returncode != 0:
            raise RuntimeError("not every partition took a record")
        found: float = json.loads(output)["at_s"]
        return found


@contextmanager
def _begun(what: str, **options: str | int) -> Iterator["subprocess.Popen[str]"]:
    command = [str(BINARY), what, *(f"{name}={value}" for name, value in options.items())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if _pipe(process.stdout).readline() != "begun\n":
            raise RuntimeError(f"{' '.join(command)} did not begin")
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            _pipe(pipe).close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None, "the process was started with pipes"
    return pipe
