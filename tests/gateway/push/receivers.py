"""Receivers of webhooks for tests: processes that are started, killed and asked what they got."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.transport.ports import free_port
from tests.support.eventually import eventually


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
        eventually(self._answers, "the receiver has started")

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, "the receiver did not start"
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

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
