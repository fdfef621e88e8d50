"""Headwater as a process to measure, started as a person would start it, on a data directory of its own."""

import sys
import tempfile
from pathlib import Path

from bench.process import BrokerProcess, MeasuredServer

from headwater.transport.ports import free_port


def start_command(data: Path, bootstrap: str, durability: str) -> list[str]:
    command = [headwater_program(), "serve", "--data", str(data), "--listen", bootstrap, "--durability", durability]
    return [*command, "--metrics", "off", "--http", "off", "--log-level", "warning"]


def headwater_program() -> str:
    return str(Path(sys.executable).parent / "headwater")


class HeadwaterServer(MeasuredServer):
    def __init__(self, durability: str) -> None:
        folder, bootstrap = Path(tempfile.mkdtemp(prefix="headwater-bench-")), f"127.0.0.1:{free_port()}"
        command = start_command(folder / "data", bootstrap, durability)
        process = BrokerProcess(command, bootstrap, folder / "output.log")
        super().__init__(f"headwater {durability}", process, folder)
