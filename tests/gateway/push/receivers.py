"""Receivers of webhooks for tests: processes that are started, killed and asked what they got."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.transport.ports import free_port
from tests.support import eventually as support

START_S = 60.0


class Receiver:
    def __init__(self, log: Path) -> None:
        self._log = log
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.gateway.push.receiver", str(self._log), str(self.port)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        until_s = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < until_s and self._process.poll() is None, "the receiver did not start"
                time.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def got(self) -> list[dict[str, Any]]:
        """Every request that it has answered, or was about to."""
        if not self._log.exists():
            return []
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.endswith("}")]

    def taken(self) -> list[str]:
        return [line["body"] for line in self.got() if line["status"] < 300]


@contextmanager
def receiving(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path / "received.jsonl")
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.kill()


def eventually(claim: Callable[[], bool], what: str, patience_s: float = 75.0) -> None:
    support.eventually(claim, what, patience_s=patience_s)
