"""A ZooKeeper on loopback for tests: one server or three, each a process that can be killed, paused and started again.

Java is started directly with the jars of Debian's package. Ports are free ones and data lies in a directory of the
test's own, so a ZooKeeper that the machine runs is not touched. A server dies with the thread that started it: start
servers from the main thread.
"""

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from headwater.testing.processes.pausing import pause
from headwater.transport.ports import free_ports

JARS: Final = tuple(
    Path(f"/usr/share/java/{name}.jar") for name in ("zookeeper", "slf4j-simple", "netty-codec", "netty-resolver")
)
"""The first names most of what it needs in its manifest, the second writes the log to standard error; the others are
needed for TLS, and Debian's manifest has forgotten them."""
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0
START_ATTEMPTS: Final = 3
"""A port that was free a moment ago can be taken by another process."""
ASK_TIMEOUT_S: Final = 1.0
MAX_ANSWER_BYTES: Final = 64 * 1024
MAX_LOG_TAIL_CHARS: Final = 4000
TICK_MS: Final = 500
"""Sessions last at least two ticks; a follower that hears nothing from its leader gives up after four."""


def why_missing() -> str:
    """What there is not to run ZooKeeper; empty when all is there."""
    if shutil.which("java") is None:
        return "java is not installed"
    missing = [str(jar) for jar in JARS if not jar.exists()]
    return f"{', '.join(missing)} not found (Debian: zookeeper)" if missing else ""


class ZookeeperProcess:
    """Make with `start`; use as a context manager, or call `stop`."""

    def __init__(self, directory: Path, ports: Sequence[int], members: int, settings: Mapping[str, str]) -> None:
        self._directory = directory
        self._clients = ports[:members]
        self._peers = ports[members : 2 * members]
        self._elections = ports[2 * members :]
        self._settings = settings
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @classmethod
    def start(cls, directory: Path, members: int = 1, settings: Mapping[str, str] | None = None) -> "ZookeeperProcess":
        """Wait until every server serves; `settings` are added to the configuration of each."""
        assert members in (1, 3), "an ensemble of ZooKeeper has one server or three here"
        for attempt in range(START_ATTEMPTS):
            zookeeper = cls(directory / f"zookeeper-{attempt}", free_ports(3 * members), members, settings or {})
            try:
                for member in zookeeper.members:
                    zookeeper.restart(member, wait=False)
                zookeeper.wait_until_ready()
            except BaseException as error:
                zookeeper.stop()
                if isinstance(error, RuntimeError) and "Address already in use" in str(error):
                    continue
                raise
            return zookeeper
        raise RuntimeError(f"ZooKeeper found no free ports in {START_ATTEMPTS} attempts")

    def __enter__(self) -> "ZookeeperProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def members(self) -> range:
        return range(len(self._clients))

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
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            for member in self.members if among is None else among:
                is_running = self._processes[member].poll() is None
                if is_running and self._mode(member) in ("leader", "standalone"):
                    return member
            time.sleep(0.05)
        raise TimeoutError(f"ZooKeeper has had no leader for {START_TIMEOUT_S:.0f} s")

    def kill(self, member: int) -> None:
        """SIGKILL, and wait: nothing of the server runs any more."""
        process = self._processes[member]
        process.kill()
        process.wait()

    def pause(self, member: int) -> None:
        """Its connections stay open, and nobody answers."""
        pause(self._processes[member].pid)

    def resume(self, member: int) -> None:
        self._processes[member].send_signal(signal.SIGCONT)

    def restart(self, member: int, wait: bool = True) -> None:
        """Start a server that does not run, with the data that it has."""
        assert member not in self._processes or self._processes[member].poll() is not None, "the server runs"
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

    def _wait_for(self, member: int, deadline: float) -> None:
        """Until the server says what it is, which it does when it serves."""
        process = self._processes[member]
        while time.monotonic() < deadline:
            if process.poll() is not None:
                status = process.returncode
                raise RuntimeError(f"ZooKeeper ended with status {status}. It said:\n{self._log_tail(member)}")
            if self._mode(member):
                return
            time.sleep(0.05)
        raise TimeoutError(f"ZooKeeper did not start in {START_TIMEOUT_S:.0f} s. It said:\n{self._log_tail(member)}")

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
        java, setpriv = shutil.which("java"), shutil.which("setpriv")
        assert java is not None, "java is not installed"
        return [
            *([setpriv, "--pdeathsig=KILL"] if setpriv is not None else []),
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

    def _log(self, member: int) -> Path:
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory / f"m{member}.log"

    def _log_tail(self, member: int) -> str:
        return self._log(member).read_text(errors="replace")[-MAX_LOG_TAIL_CHARS:]
