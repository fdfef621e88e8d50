"""A broker as a process of its own: start, wait until it answers a client, measure, stop.

Knows none of the brokers: `kafka.py`, `headwater.py`, `rabbitmq.py` and `nats.py` say what the command is."""

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
# ApiVersions v0: length, key 18, version 0, correlation 1, no client id. Every Kafka broker answers it first.
API_VERSIONS_REQUEST = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


class BrokerProcess:
    """One broker process and the figures the operating system keeps about it.

    It answers when eight bytes come back for `greeting`."""

    def __init__(
        self,
        command: Sequence[str],
        bootstrap: str,
        output: Path,
        greeting: bytes = API_VERSIONS_REQUEST,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._greeting = greeting
        self._environment = environment
        self.bootstrap = bootstrap
        self._host, port = bootstrap.rsplit(":", 1)
        self._port = int(port)
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self.started_at_s = 0.0

    def start(self) -> None:
        with open(self._output, "ab") as output:
            self.started_at_s = time.monotonic()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=self._environment,
            )

    def wait_until_answering(self, timeout_s: float = START_TIMEOUT_S) -> None:
        assert self._process is not None, "started before waited for"
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._command[0]} ended with {self._process.returncode}:\n{self.output_tail()}")
            if self._answers():
                return
            time.sleep(0.005)
        raise TimeoutError(f"{self._command[0]} did not answer within {timeout_s:.0f} s:\n{self.output_tail()}")

    def kill(self) -> None:
        """SIGKILL: no chance to flush, as in a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, without answers."""
        assert self._process is not None, "a broker that runs"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None, "a broker that runs"
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None, "a broker that runs"
        return self._process.pid

    def cpu_seconds(self) -> float:
        """User and system time of the broker and the children it has."""
        total = 0.0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def resident_bytes(self) -> int:
        total = 0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def output_tail(self) -> str:
        return self._output.read_text(errors="replace")[-3000:] if self._output.exists() else ""

    def _family(self) -> list[psutil.Process]:
        assert self._process is not None, "a broker that runs"
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:  # it was killed
            return []

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self._host, self._port), timeout=1.0) as connection:
                connection.settimeout(2.0)
                connection.sendall(self._greeting)
                return len(connection.recv(8)) == 8
        except OSError:
            return False


class MeasuredServer:
    """One broker in a folder of its own, from `start` to `stop`; `process` is for CPU and memory figures."""

    def __init__(self, name: str, process: BrokerProcess, folder: Path) -> None:
        self.name = name
        self.process = process
        self.bootstrap = process.bootstrap
        self.settings: Mapping[str, str] = {}
        self._folder = folder

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        try:
            self.process.start()
            self.process.wait_until_answering()
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        self.process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
