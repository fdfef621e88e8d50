"""Headwater as a process to measure, started as a person would start it, on a data directory of its own."""

import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.process import BrokerProcess

from headwater.transport.ports import free_port


def start_command(data: Path, bootstrap: str, durability: str) -> list[str]:
    """The one place that knows how Headwater is started."""
    command = [headwater_program(), "serve", "--data", str(data), "--listen", bootstrap, "--durability", durability]
    return [*command, "--metrics", "off", "--http", "off", "--log-level", "warning"]


def headwater_program() -> str:
    return str(Path(sys.executable).parent / "headwater")


class HeadwaterServer:
    """A running Headwater; `process` is its broker, for CPU and memory figures."""

    def __init__(self, durability: str) -> None:
        self.name = f"headwater {durability}"
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
        self.bootstrap = f"127.0.0.1:{free_port()}"
        command = start_command(self._folder / "data", self.bootstrap, durability)
        self.process = BrokerProcess(command, self.bootstrap, self._folder / "output.log")

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
