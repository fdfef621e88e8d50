"""A broker as a `headwater serve` child process.

Parent and child share a socket pair (`--parent-fd`): the child writes its address there when it is ready, and
stops when the other end closes, so that a test run that is killed leaves no broker behind.

It is a new interpreter, unless this process prefers forks (`forks.py`).
"""

import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.cli.toml_text import toml_text
from headwater.testing.processes import forks

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
MAX_READY_LINE_BYTES = 1024
MAX_LOG_TAIL_CHARS = 4000


class BrokerProcess:
    def __init__(self, config: Mapping[str, Any], scratch: Path, command_prefix: Sequence[str] = ()) -> None:
        """With a prefix another program starts the broker and becomes it, as `nsenter` does."""
        self._config = config
        self._scratch = scratch
        self._command_prefix = command_prefix
        self._process: subprocess.Popen[bytes] | forks.ForkedProcess | None = None
        self._lifeline: socket.socket | None = None

    @staticmethod
    def log_in(scratch: Path) -> str:
        path = scratch / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the process has not started"
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def signal(self, number: int) -> None:
        assert self._process is not None, "a signal comes after start"
        self._process.send_signal(number)

    def start(self) -> tuple[str, int]:
        """Return the address that the child says it listens on; raise with the child's words if it gives up."""
        self.launch()
        return self.wait_until_ready()

    def launch(self) -> None:
        """Start, and wait for nothing."""
        config_path = self._scratch / "broker.toml"
        config_path.write_text(toml_text(self._config))
        ours, theirs = socket.socketpair()
        with theirs, (self._scratch / "broker.log").open("ab") as log:
            arguments = ["serve", "--config", str(config_path), "--parent-fd", str(theirs.fileno())]
            if forks.are_preferred() and not self._command_prefix:
                self._process = forks.shared_server().start(arguments, log.fileno(), theirs.fileno())
            else:
                command = [*self._command_prefix, sys.executable, "-m", "headwater.cli.main", *arguments]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(theirs.fileno(),)
                )
        self._lifeline = ours

    def wait_until_ready(self) -> tuple[str, int]:
        assert self._lifeline is not None, "it was launched"
        try:
            return _read_address(self._lifeline)
        except (TimeoutError, ConnectionError) as error:
            self.kill()
            tail = self.log_in(self._scratch)[-MAX_LOG_TAIL_CHARS:]
            raise RuntimeError(f"the broker process did not start ({error}). It said:\n{tail}") from error

    def stop(self) -> None:
        """SIGTERM, and wait. A broker that does not end in time is killed, and that is an error."""
        assert self._process is not None, "stop comes after start"
        was_running = self.is_running
        try:
            self._process.terminate()
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the broker process did not stop within {STOP_TIMEOUT_S:.0f} s") from None
        finally:
            self.kill()
        if was_running and status != 0:
            tail = self.log_in(self._scratch)[-MAX_LOG_TAIL_CHARS:]
            raise RuntimeError(f"the broker process ended with status {status}. It said:\n{tail}")

    def kill(self) -> None:
        assert self._process is not None, "kill comes after start"
        self._process.kill()
        self._process.wait()
        if self._lifeline is not None:
            self._lifeline.close()


def _read_address(lifeline: socket.socket) -> tuple[str, int]:
    lifeline.settimeout(START_TIMEOUT_S)
    line = b""
    while not line.endswith(b"\n"):
        received = lifeline.recv(MAX_READY_LINE_BYTES)
        if not received:
            raise ConnectionError("it ended before it was ready")
        line += received
        assert len(line) <= MAX_READY_LINE_BYTES, "the ready line is one address"
    host, _, port = line.decode().strip().rpartition(":")
    return host.strip("[]"), int(port)
