"""The two clients whose transactions are measured, asked in the same words and answering with the same figures.

librdkafka speaks the protocol of KIP-98; Apache Kafka's own client speaks KIP-890 (`transaction.version` 2), where
partitions join a transaction by being written to, and each transaction has an epoch of its own."""

import json
import shutil
import subprocess
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Protocol, Self

from bench import load, maven

SOURCE = Path(__file__).with_name("Transactions.java")
CLASSES = Path(__file__).resolve().parent.parent / ".cache" / "bench" / "classes"
HEAP = "-Xmx512M"
"""as in Kafka's own script for measuring producers"""
COMPILE_TIMEOUT_S = 120
STOP_TIMEOUT_S = 20.0
KIP_890 = 2


class WrongProtocol(Exception):
    """The broker would have the client speak another protocol than the one that is to be measured."""


class Client(Protocol):
    name: str

    def ask(self, what: str, **options: str | int) -> dict[str, float]:
        """What `transactions.c` says of the verb."""


class Librdkafka:
    """A process for each question."""

    name = "librdkafka"

    def ask(self, what: str, **options: str | int) -> dict[str, float]:
        return load.ask(what, **options)


class JavaClient:
    """One process for all questions about a broker: its code is compiled while the broker warms up."""

    name = "Java"

    def __init__(self, class_path: str) -> None:
        self._class_path = class_path

    def __enter__(self) -> Self:
        command = ["java", HEAP, "-cp", self._class_path, SOURCE.stem]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def ask(self, what: str, **options: str | int) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = " ".join([what, *(f"{name}={value}" for name, value in options.items())])
        too_late = Timer(load.RUN_TIMEOUT_S, self._process.kill)
        too_late.start()
        try:
            self._process.stdin.write(question + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            too_late.cancel()
        if not line:
            raise RuntimeError(f"the Java client ended instead of answering {question!r}; its output above says why")
        answer: dict[str, float] = json.loads(line)
        return answer

    def must_speak_kip_890_with(self, bootstrap: str) -> None:
        found = self.ask("version", bootstrap=bootstrap)["transaction_version"]
        if found < KIP_890:
            raise WrongProtocol(f"the broker at {bootstrap} has transaction.version {found:.0f}; {KIP_890} is measured")


def compile_java() -> str:
    """Compile the Java client when its source has changed; returns the class path that runs it."""
    if shutil.which("javac") is None:
        raise maven.JarsUnavailable("`javac` is not installed (apt-get install default-jdk-headless)")
    jars, made = maven.class_path("client", maven.KAFKA_CLIENT), CLASSES / f"{SOURCE.stem}.class"
    if not made.exists() or made.stat().st_mtime < SOURCE.stat().st_mtime:
        command = ["javac", "-Xlint:all", "-cp", jars, "-d", str(CLASSES), str(SOURCE)]
        subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_S)
    return f"{CLASSES}:{jars}"
