"""An etcd of one member as a process to measure with: its settings are its defaults, syncs included.

One member, because the machine has one disk and few cores: three would compete with the nodes for both."""

import shutil
from pathlib import Path

from bench.process import BrokerProcess

from headwater.transport.ports import free_ports

GREETING = b"GET /health HTTP/1.0\r\n\r\n"
"""It listens to clients when it has elected itself, so any answer will do."""


def new_process(folder: Path) -> BrokerProcess:
    """Not started yet; it is reached at `bootstrap`."""
    binary = shutil.which("etcd")
    if binary is None:
        raise RuntimeError("etcd is not installed (apt-get install etcd-server)")
    folder.mkdir(parents=True)
    clients, peers = (f"127.0.0.1:{port}" for port in free_ports(2))
    command = [
        binary,
        "--name=bench",
        f"--data-dir={folder / 'data'}",
        f"--listen-client-urls=http://{clients}",
        f"--advertise-client-urls=http://{clients}",
        f"--listen-peer-urls=http://{peers}",
        f"--initial-advertise-peer-urls=http://{peers}",
        f"--initial-cluster=bench=http://{peers}",
        "--log-level=warn",
    ]
    return BrokerProcess(command, clients, folder / "output.log", GREETING)
