"""Load from `load.c`, `transactions.c` and `steady.c`: compiled once, run beside the broker, answers added up."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka

SOURCES = [Path(__file__).with_name(name) for name in ("load.c", "transactions.c", "steady.c", "load.h")]
BINARY = Path(__file__).resolve().parent.parent / ".cache" / "bench" / "load"
HEADER = Path("/usr/include/librdkafka/rdkafka.h")
RUN_TIMEOUT_S = 300
PROCESSES = 2
NO_SETTINGS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Throughput:
    messages: int
    payload_bytes: int
    seconds: float

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds

    @property
    def megabytes_per_s(self) -> float:
        return self.payload_bytes / 1e6 / self.seconds


@dataclass(frozen=True, slots=True)
class Latency:
    p50_ms: float
    p99_ms: float


def build() -> None:
    """Compile against the librdkafka that the confluent-kafka wheel carries, so that both speak the same client."""
    if shutil.which("gcc") is None or not HEADER.exists():
        raise RuntimeError("the load generator needs a C compiler (apt-get install gcc libc6-dev librdkafka-dev)")
    [library] = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka-*.so*")
    if BINARY.exists() and BINARY.stat().st_mtime > max(path.stat().st_mtime for path in (*SOURCES, library)):
        return
    BINARY.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-pthread", "-o", str(BINARY)]
    command += [str(source) for source in SOURCES if source.suffix == ".c"]
    subprocess.run([*command, str(library), f"-Wl,-rpath,{library.parent}"], check=True)


def ask(what: str, settings: Mapping[str, str] = NO_SETTINGS, **options: str | int) -> dict[str, float]:
    """The answer of one process. `settings` are librdkafka's."""
    [answer] = _run_all(what, 1, settings, **options)
    return answer


def produce(
    bootstrap: str,
    topic: str,
    messages: int,
    size_bytes: int,
    spread: bool = False,
    processes: int = PROCESSES,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Throughput:
    """`messages` in total, shared by several producer processes that start together."""
    share = messages // processes
    options = {"messages": share, "size": size_bytes, "spread": int(spread)}
    return _add(_run_all("produce", processes, settings, bootstrap=bootstrap, topic=topic, **options))


def consume(
    bootstrap: str,
    topic: str,
    partitions: int,
    messages: int,
    processes: int = PROCESSES,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Throughput:
    """Each process reads all `messages`, as two independent readers of one topic do."""
    options = {"messages": messages, "partitions": partitions}
    return _add(_run_all("consume", processes, settings, bootstrap=bootstrap, topic=topic, **options))


def latency(
    bootstrap: str,
    topic: str,
    messages: int,
    size_bytes: int,
    spread: bool = False,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Latency:
    options = {"messages": messages, "size": size_bytes, "linger_ms": 0, "spread": int(spread)}
    answer = ask("latency", settings, bootstrap=bootstrap, topic=topic, **options)
    return Latency(answer["p50_ms"], answer["p99_ms"])


def end_to_end(
    bootstrap: str, topic: str, messages: int, size_bytes: int, settings: Mapping[str, str] = NO_SETTINGS
) -> Latency:
    options = {"messages": messages, "size": size_bytes, "linger_ms": 0, "partitions": 1}
    answer = ask("endtoend", settings, bootstrap=bootstrap, topic=topic, **options)
    return Latency(answer["p50_ms"], answer["p99_ms"])


def _run_all(what: str, processes: int, settings: Mapping[str, str], **options: str | int) -> list[dict[str, float]]:
    command = [str(BINARY), what, *(f"{name}={value}" for name, value in options.items())]
    command += [f"rdkafka.{name}={value}" for name, value in settings.items()]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    answers = []
    try:
        for process in running:
            output, _ = process.communicate(timeout=RUN_TIMEOUT_S)
            if process.returncode != 0:
                raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
            answers.append(json.loads(output))
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    return answers


def _add(answers: list[dict[str, float]]) -> Throughput:
    """Together they are as slow as the slowest: the last acknowledgement ends the run."""
    return Throughput(
        messages=int(sum(answer["messages"] for answer in answers)),
        payload_bytes=int(sum(answer["bytes"] for answer in answers)),
        seconds=max(answer["seconds"] for answer in answers),
    )
