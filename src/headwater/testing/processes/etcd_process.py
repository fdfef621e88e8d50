"""An etcd on loopback for tests: one member or three, each a process that can be killed, paused and started again.

Ports are free ones and data lies in a directory of the test's own, so an etcd that the machine runs is not touched.
With a `Network` each member has its own host.
"""

import contextlib
import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headwater.testing.fakes.network import Network
from headwater.testing.processes.member_processes import MemberProcesses, start_members
from headwater.transport.ports import free_ports

START_TIMEOUT_S: Final = 30.0

# Members are on loopback, whatever proxy the environment names.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def find_etcd() -> str | None:
    """The path of the etcd binary, if there is one (Debian: etcd-server)."""
    return shutil.which("etcd")


class EtcdProcess(MemberProcesses):
    """Make with `start`."""

    SERVICE = "etcd"
    START_TIMEOUT_S = START_TIMEOUT_S

    def __init__(
        self,
        directory: Path,
        clients: Sequence[int],
        peers: Sequence[int],
        flags: Sequence[str],
        network: Network | None = None,
    ) -> None:
        super().__init__(directory, len(clients))
        self._network = network
        self._clients = clients
        self._peers = peers
        self._flags = flags

    @classmethod
    def start(
        cls, directory: Path, members: int = 1, flags: Sequence[str] = (), network: Network | None = None
    ) -> "EtcdProcess":
        """Wait until the cluster has a leader; `flags` are for every member's command line. The network's hosts are
        named by `host`."""
        assert members in (1, 3), "a cluster of etcd has one member or three here"

        def create(attempt: int) -> EtcdProcess:
            ports = free_ports(2 * members)
            return cls(directory / f"etcd-{attempt}", ports[:members], ports[members:], flags, network)

        return start_members(create)

    @property
    def endpoints(self) -> list[str]:
        return [f"{self._address(member)}:{port}" for member, port in enumerate(self._clients)]

    @staticmethod
    def host(member: int) -> str:
        """The name of a member's host in a network."""
        return f"etcd{member}"

    def url(self, prefix: str = "test", members: Sequence[int] | None = None) -> str:
        """A metadata URL, of all members or of some."""
        chosen = self.members if members is None else members
        return f"etcd://{','.join(self.endpoints[member] for member in chosen)}/{prefix}"

    def leader(self) -> int:
        """The number of the member that leads, as its own metrics say; waits for an election."""
        return self._find_leader(lambda member: "\netcd_server_is_leader 1" in self._fetch(member, "/metrics"))

    def stop(self) -> None:
        """Also for members that are paused or dead. They are killed: their data goes with the test."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def call(
        self, path: str, body: Mapping[str, Any], member: int = 0, timeout_s: float = START_TIMEOUT_S
    ) -> dict[str, Any]:
        """One call of etcd's JSON gateway: what tests need and the metadata store does not, such as a compaction.

        Bytes are base64 there, and 64-bit numbers strings."""
        request = urllib.request.Request(f"http://{self.endpoints[member]}{path}", json.dumps(body).encode())
        with _OPENER.open(request, timeout=timeout_s) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _is_ready(self, member: int) -> bool:
        """Whether the member is healthy, which it is when it knows a leader."""
        return '"health":"true"' in self._fetch(member, "/health")

    def _fetch(self, member: int, path: str) -> str:
        """Empty when the member does not answer."""
        with (
            contextlib.suppress(OSError),
            _OPENER.open(f"http://{self.endpoints[member]}{path}", timeout=1.0) as answer,
        ):
            return str(answer.read().decode())
        return ""

    def _command(self, member: int) -> list[str]:
        binary = find_etcd()
        assert binary is not None, "etcd is not installed"
        client, peer = (f"http://{self._address(member)}:{ports[member]}" for ports in (self._clients, self._peers))
        peers = enumerate(self._peers)
        cluster = ",".join(f"m{number}=http://{self._address(number)}:{port}" for number, port in peers)
        return [
            binary,
            f"--name=m{member}",
            f"--data-dir={self._directory / f'm{member}'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={cluster}",
            "--initial-cluster-state=new",
            "--logger=zap",
            "--log-level=warn",
            *self._flags,
        ]

    def _command_prefix(self, member: int) -> list[str]:
        return [] if self._network is None else list(self._network.command_prefix(self.host(member)))

    def _address(self, member: int) -> str:
        return "127.0.0.1" if self._network is None else self._network.address(self.host(member))
