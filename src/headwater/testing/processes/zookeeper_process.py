"""A ZooKeeper on loopback for tests: one server or three, each a process that can be killed, paused and started again.

Java is started directly with the jars of Debian's package. Ports are free ones and data lies in a directory of the
test's own, so a ZooKeeper that the machine runs is not touched.
"""

import contextlib
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from headwater.testing.processes.member_processes import MemberProcesses, start_members
from headwater.transport.ports import free_ports

JARS: Final = tuple(
    Path(f"/usr/share/java/{name}.jar") for name in ("zookeeper", "slf4j-simple", "netty-codec", "netty-resolver")
)
"""The first names most of what it needs in its manifest, the second writes the log to standard error; the others are
needed for TLS, and Debian's manifest has forgotten them."""
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0
ASK_TIMEOUT_S: Final = 1.0
MAX_ANSWER_BYTES: Final = 64 * 1024
TICK_MS: Final = 500
"""Sessions last at least two ticks; a follower that hears nothing from its leader gives up after four."""


def why_missing() -> str:
    """What there is not to run ZooKeeper; empty when all is there."""
    if shutil.which("java") is None:
        return "java is not installed"
    missing = [str(jar) for jar in JARS if not jar.exists()]
    return f"{', '.join(missing)} not found (Debian: zookeeper)" if missing else ""


class ZookeeperProcess(MemberProcesses):
    """Make with `start`."""

    SERVICE = "ZooKeeper"
    START_TIMEOUT_S = START_TIMEOUT_S

    def __init__(self, directory: Path, ports: Sequence[int], members: int, settings: Mapping[str, str]) -> None:
        super().__init__(directory, members)
        self._clients = ports[:members]
        self._peers = ports[members : 2 * members]
        self._elections = ports[2 * members :]
        self._settings = settings

    @classmethod
    def start(cls, directory: Path, members: int = 1, settings: Mapping[str, str] | None = None) -> "ZookeeperProcess":
        """Wait until every server serves; `settings` are added to the configuration of each."""
        assert members in (1, 3), "an ensemble of ZooKeeper has one server or three here"
        return start_members(
            lambda attempt: cls(directory / f"zookeeper-{attempt}", free_ports(3 * members), members, settings or {})
        )

    @property
    def servers(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._clients]

    def url(self, root: str = "test", members: Sequence[int] | None = None, login: str = "") -> str:
        """A metadata URL, of all servers or of some."""
        chosen = self.members if members is None else members
        at = f"{login}@" if login else ""
        return f"zookeeper://{at}{','.join(self.servers[member] for member in chosen)}/{root}"

    def leader(self, among: Sequence[int] | None = None) -> int:
        """The number of the server that leads, as it says itself; waits for an election."""
        chosen = self.members if among is None else among
        return self._find_leader(lambda member: member in chosen and self._mode(member) in ("leader", "standalone"))

    def stop(self) -> None:
        """Also for servers that are paused or dead."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _is_ready(self, member: int) -> bool:
        return bool(self._mode(member))

    def _mode(self, member: int) -> str:
        """leader, follower or standalone; empty when the server does not serve."""
        for line in self._ask(member, b"srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return ""

    def _ask(self, member: int, word: bytes) -> str:
        answer = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._clients[member]), ASK_TIMEOUT_S) as connection,
        ):
            connection.sendall(word)
            while len(answer) < MAX_ANSWER_BYTES and (received := connection.recv(4096)):
                answer += received
        return answer.decode(errors="replace")

    def _command(self, member: int) -> list[str]:
        java = shutil.which("java")
        assert java is not None, "java is not installed"
        return [
            java,
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # several start at a time, and none runs for long
            "-Dzookeeper.preAllocSize=1024",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            ":".join(map(str, JARS)),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self._configuration(member)),
        ]

    def _configuration(self, member: int) -> Path:
        data = self._directory / f"m{member}"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(member))
        settings = {
            "tickTime": str(TICK_MS),
            "initLimit": "20",
            "syncLimit": "4",
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            "dataDir": str(data),
            "clientPort": str(self._clients[member]),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            **self._settings,
        }
        if len(self._clients) > 1:
            for number, (peer, election) in enumerate(zip(self._peers, self._elections, strict=True)):
                settings[f"server.{number}"] = f"127.0.0.1:{peer}:{election}"
        path = self._directory / f"m{member}.cfg"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path
