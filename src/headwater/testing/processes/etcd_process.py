"""An etcd on loopback for tests: one member or three, each a process that can be killed, paused and started again.

Ports are free ones and data lies in a directory of the test's own, so an etcd that the machine runs is not touched. A
member dies with the thread that started it: start members from the main thread. With a `Network` each member has a host
of its own.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headwater.testing.fakes.network import Network
from headwater.testing.processes.pausing import pause
from headwater.transport.ports import free_ports

START_TIMEOUT_S: Final = 30.0
START_ATTEMPTS: Final = 3
"""A port that was free a moment ago can be taken by another process."""
MAX_LOG_TAIL_CHARS: Final = 4000

# Members are on loopback, whatever proxy the environment names.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def find_etcd() -> str | None:
    """The path of the etcd binary, if there is one (Debian: etcd-server)."""
    return shutil.which("etcd")


class EtcdProcess:
    """Make with `start`; use as a context manager, or call `stop`."""

    def __init__(
        self,
        directory: Path,
        clients: Sequence[int],
        peers: Sequence[int],
        flags: Sequence[str],
        network: Network | None = None,
    ) -> None:
        self._directory = directory
        self._network = network
        self._clients = clients
        self._peers = peers
        self._flags = flags
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @classmethod
    def start(
        cls, directory: Path, members: int = 1, flags: Sequence[str] = (), network: Network | None = None
    ) -> "EtcdProcess":
        """Wait until the cluster has a leader; `flags` are for every member's command line. Hosts of the network are
        those of `host`."""
        assert members in (1, 3), "a cluster of etcd has one member or three here"
        for attempt in range(START_ATTEMPTS):
            ports = free_ports(2 * members)
            etcd = cls(directory / f"etcd-{attempt}", ports[:members], ports[members:], flags, network)
            try:
                for member in range(members):
                    etcd.restart(member, wait=False)
                etcd.wait_until_ready()
            except BaseException as error:
                etcd.stop()
                if isinstance(error, RuntimeError) and "address already in use" in str(error):
                    continue
                raise
            return etcd
        raise RuntimeError(f"etcd found no free ports in {START_ATTEMPTS} attempts")

    def __enter__(self) -> "EtcdProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def members(self) -> range:
        return range(len(self._clients))

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
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            for member, process in self._processes.items():
                if process.poll() is None and "\netcd_server_is_leader 1" in self._metrics(member):
                    return member
            time.sleep(0.05)
        raise TimeoutError(f"etcd has had no leader for {START_TIMEOUT_S:.0f} s")

    def kill(self, member: int) -> None:
        """SIGKILL, and wait: nothing of the member runs any more."""
        process = self._processes[member]
        process.kill()
        process.wait()

    def pause(self, member: int) -> None:
        """Its connections stay open, and nobody answers."""
        pause(self._processes[member].pid)

    def resume(self, member: int) -> None:
        self._processes[member].send_signal(signal.SIGCONT)

    def restart(self, member: int, wait: bool = True) -> None:
        """Start a member that does not run, with the data that it has."""
        assert member not in self._processes or self._processes[member].poll() is not None, "the member runs"
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._log(member).open("ab") as log:
            self._processes[member] = subprocess.Popen(
                self._command(member), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if wait:
            self._wait_for(member, time.monotonic() + START_TIMEOUT_S)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        for member in self.members:
            self._wait_for(member, deadline)

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

    def _wait_for(self, member: int, deadline: float) -> None:
        """Until the member answers that it is healthy, which it is when it knows a leader."""
        process = self._processes[member]
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"etcd ended with status {process.returncode}. It said:\n{self._log_tail(member)}")
            if '"health":"true"' in self._fetch(member, "/health"):
                return
            time.sleep(0.05)
        raise TimeoutError(f"etcd did not start in {START_TIMEOUT_S:.0f} s. It said:\n{self._log_tail(member)}")

    def _metrics(self, member: int) -> str:
        return self._fetch(member, "/metrics")

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
        setpriv = shutil.which("setpriv")
        return [
            *(self._network.command_prefix(self.host(member)) if self._network is not None else []),
            *([setpriv, "--pdeathsig=KILL"] if setpriv is not None else []),
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

    def _address(self, member: int) -> str:
        return "127.0.0.1" if self._network is None else self._network.address(self.host(member))

    def _log(self, member: int) -> Path:
        return self._directory / f"m{member}.log"

    def _log_tail(self, member: int) -> str:
        return self._log(member).read_text(errors="replace")[-MAX_LOG_TAIL_CHARS:]
