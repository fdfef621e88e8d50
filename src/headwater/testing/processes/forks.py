"""Starts `headwater serve` by forking a process that has imported the broker (`fork_server.py`): a fifth of the CPU
time of a new interpreter, which is most of what a short test with a broker of its own costs.

    with ForkServer() as server:
        process = server.start(["serve", "--config", "broker.toml"], log_fd, keep_fd)

The child runs what the command runs, in an interpreter that has loaded some modules more. A new interpreter is the
default, and `prefer_forks` chooses. Linux alone, because a signal must not reach another process that got the number.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

MAX_REQUEST_BYTES: Final = 128 * 1024
NUMBER_BYTES: Final = 4
START_TIMEOUT_S: Final = 60.0


class ForkedProcess:
    """What a BrokerProcess needs of `subprocess.Popen`, for a child of the fork server."""

    def __init__(self, pid: int, status_fd: int) -> None:
        self.pid = pid
        self._status_fd = status_fd
        self._returncode: int | None = None
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._pidfd = -1  # it ended at once, and its status is on the way

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._look(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("headwater serve", timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None and self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self._returncode is None and select.select([self._status_fd], [], [], timeout)[0]:
            status = os.read(self._status_fd, NUMBER_BYTES)
            assert len(status) == NUMBER_BYTES, "the fork server lives as long as the process that uses it"
            self._returncode = int.from_bytes(status, "big", signed=True)
            os.close(self._status_fd)
            if self._pidfd >= 0:
                os.close(self._pidfd)
        return self._returncode


class ForkServer:
    """Safe for threads: each start is one exchange on the socket."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(START_TIMEOUT_S)
        self._lock = threading.Lock()
        with theirs:
            command = [sys.executable, "-m", "headwater.testing.processes.fork_server", str(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The children go on."""
        self._socket.close()
        self._process.wait(START_TIMEOUT_S)

    def start(self, arguments: Sequence[str], log_fd: int, keep_fd: int) -> ForkedProcess:
        """Fork a child that runs `headwater` with these arguments, this process's environment and its directory."""
        message = json.dumps([list(arguments), keep_fd, str(Path.cwd()), dict(os.environ)]).encode()
        if len(message) > MAX_REQUEST_BYTES:
            raise ValueError(f"an environment of {len(message)} bytes is too large for the fork server")
        status_fd, their_status_fd = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [message], [log_fd, keep_fd, their_status_fd])
                pid = self._socket.recv(NUMBER_BYTES)
            if len(pid) < NUMBER_BYTES:
                raise RuntimeError("the fork server has ended")
        except BaseException:
            os.close(status_fd)
            raise
        finally:
            os.close(their_status_fd)
        return ForkedProcess(int.from_bytes(pid, "big"), status_fd)


_are_preferred = False
_shared: ForkServer | None = None
_shared_lock = threading.Lock()


def prefer_forks(are_preferred: bool = True) -> None:
    """From now on broker processes of this process are forked, where that can be done, or are not."""
    global _are_preferred
    _are_preferred = are_preferred and hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")


def are_preferred() -> bool:
    return _are_preferred


def shared_server() -> ForkServer:
    """The one of this process, which starts with the first use."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = ForkServer()
            atexit.register(_shared.close)
        return _shared
