"""One process of a local cluster: a node, etcd or the console. Its output goes to a log file and, line by line, to a
callback.

A child has its own session, so that Ctrl-C reaches the parent alone, which stops everything in the right order. No
child outlives the parent: a node sees the end of a socket that both share, others get a signal from the kernel.
"""

import asyncio
import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from headwater.cli.cluster.files import LocalNode, LocalPlan
from headwater.cli.cluster.secured import SecuredCluster
from headwater.cli.output import CommandFailed
from headwater.cli.toml_text import toml_text
from headwater.transport.ports import HOST

READY_WITHIN_S: Final = 60.0
STOPPED_WITHIN_S: Final = 20.0
MAX_LINE_BYTES: Final = 64 * 1024
LOOK_EVERY_S: Final = 0.05

Emit = Callable[[str, str], None]
"""Gets a process's name and a line of its output."""


class Child:
    def __init__(self, name: str, log: Path, emit: Emit) -> None:
        self.name = name
        self.log = log
        self._emit = emit
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._last_line = ""
        self.is_ready = False
        self.is_stopping = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def state(self) -> str:
        if self._process is None:
            return "-"
        if self._process.returncode is None:
            return "stopping" if self.is_stopping else "up" if self.is_ready else "starting"
        return "stopped" if self.is_stopping else f"ended: {how_it_ended(self._process.returncode)}"

    async def start(self) -> None:
        """Return when it is ready. Raises CommandFailed, with its last line of output, if it does not start."""
        assert not self.is_running, f"{self.name} runs"
        self.is_ready = self.is_stopping = False
        self._last_line = ""
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                await self._launch()
        except TimeoutError:
            await self.kill()
            raise CommandFailed(
                f"{self.name} was not ready after {READY_WITHIN_S:.0f} s.", f"See {self.log}."
            ) from None
        self.is_ready = True

    async def stop(self) -> None:
        """SIGTERM; SIGKILL if that takes too long."""
        self.is_stopping = True
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOPPED_WITHIN_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
        await self._ended()

    async def kill(self) -> None:
        self.is_stopping = True
        await self.strike()

    async def strike(self) -> None:
        """SIGKILL that counts as an accident: `is_stopping` stays false."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await self._ended()

    async def wait(self) -> None:
        """Return when it has ended."""
        assert self._process is not None, "a child is waited for after it was started"
        await self._process.wait()
        await self._ended()

    async def _launch(self) -> None:
        raise NotImplementedError

    async def _spawn(self, command: Sequence[str], pass_fds: Sequence[int] = ()) -> asyncio.subprocess.Process:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=pass_fds,
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )
        self._reader = asyncio.create_task(self._read(self._process))
        return self._process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None, "the output is a pipe"
        with self.log.open("ab", buffering=0) as log:
            while True:
                try:
                    line = await process.stdout.readline()
                except ValueError:  # longer than the limit: what was read of it is gone
                    continue
                if not line:
                    return
                log.write(line)
                text = line.decode(errors="replace").rstrip()
                self._last_line = text or self._last_line
                self._emit(self.name, text)

    async def _ended(self) -> None:
        if self._reader is not None:
            await self._reader

    async def _gave_up(self) -> CommandFailed:
        """End it, and say why it did not start: by its last line of output."""
        await self.kill()
        reason = self._last_line.removeprefix("headwater: ") or "it printed nothing"
        return CommandFailed(f"{self.name} did not start: {reason}", f"Its whole output is in {self.log}.")


class NodeChild(Child):
    """`headwater serve`. It writes to a socket when it is ready, and ends when the socket is closed."""

    def __init__(self, directory: Path, plan: LocalPlan, node: LocalNode, emit: Emit) -> None:
        super().__init__(node.name, directory / "logs" / f"{node.name}.log", emit)
        self.node = node
        self._directory = directory
        self._plan = plan
        self._lifeline: socket.socket | None = None

    async def _launch(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
        ours, theirs = socket.socketpair()
        self._lifeline = ours
        with theirs:
            await self._spawn(self._command(theirs.fileno()), (theirs.fileno(),))
        ours.setblocking(False)
        if not await asyncio.get_running_loop().sock_recv(ours, 1024):
            raise await self._gave_up()

    async def _ended(self) -> None:
        await super()._ended()
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None

    def _command(self, parent_fd: int) -> list[str]:
        config = self._write_config()
        serve = [sys.executable, "-m", "headwater.cli.main", "serve", "--config", str(config)]
        return [*serve, "--parent-fd", str(parent_fd)]

    def _write_config(self) -> Path:
        """As a file, so that people see the settings of a node in a cluster."""
        node, plan = self.node, self._plan
        data = self._directory.resolve() / node.name
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        cluster: dict[str, Any] = {"peer_listen": f"{HOST}:0", "default_replication_factor": plan.replicas}
        if node.roles is not None:
            cluster["roles"] = node.roles
        if node.rack is not None:
            cluster["rack"] = node.rack
        way_in: dict[str, Any] = {"listen": node.address}
        if plan.is_secure:
            secured = SecuredCluster(self._directory)
            cluster["cluster_secret_file"] = secured.secret_file
            way_in = secured.settings(node.name, node.address, HOST)
        path = data / "node.toml"
        path.write_text(
            toml_text(
                {
                    "node_id": node.node_id,
                    "data_dir": data,
                    "metrics": "off",
                    "http": "off",
                    "metadata": plan.metadata_url(self._directory),
                    "durability": plan.durability,
                    **way_in,
                    "cluster": cluster,
                    "topic": {"min.insync.replicas": plan.replicas // 2 + 1},
                }
            ),
            encoding="utf-8",
        )
        return path


class GatewayChild(Child):
    """`headwater gateway` beside the nodes: it goes on when any of them is killed."""

    def __init__(self, directory: Path, plan: LocalPlan, emit: Emit) -> None:
        super().__init__("console", directory / "logs" / "console.log", emit)
        self._bootstrap = plan.bootstrap
        self._port = plan.http_port
        self._secured = SecuredCluster(directory) if plan.is_secure else None

    async def _launch(self) -> None:
        process = await self._spawn(self._command())
        while not await asyncio.to_thread(_answers, f"http://{HOST}:{self._port}/healthz", b"ok"):
            if process.returncode is not None:
                raise await self._gave_up()
            await asyncio.sleep(LOOK_EVERY_S)

    def _command(self) -> list[str]:
        gateway = [
            sys.executable,
            "-m",
            "headwater.cli.main",
            "gateway",
            "--client",
            str(self._secured.console_file) if self._secured is not None else "",
            "--bootstrap",
            self._bootstrap,
        ]
        if self._secured is not None:
            gateway += ["--token-file", str(self._secured.token_file)]
        return [*_ends_with_its_parent(), *gateway, "--http", f"{HOST}:{self._port}", "--log-level", "warning"]


class EtcdChild(Child):
    """etcd with one member, enough for a local cluster: a machine that fails takes all nodes with it anyway."""

    def __init__(self, directory: Path, ports: tuple[int, int], emit: Emit) -> None:
        super().__init__("etcd", directory / "logs" / "etcd.log", emit)
        self._data = directory.resolve() / "etcd"
        self._ports = ports

    async def _launch(self) -> None:
        process = await self._spawn(self._command())
        while not await asyncio.to_thread(self._is_healthy):
            if process.returncode is not None:
                raise await self._gave_up()
            await asyncio.sleep(LOOK_EVERY_S)

    def _command(self) -> list[str]:
        binary = find_etcd()
        if binary is None:
            raise CommandFailed(
                "The metadata of this cluster is in etcd, which is not installed.",
                "Install it (Debian: etcd-server), or start a new cluster with --sqlite in another --data.",
            )
        client, peer = (f"http://{HOST}:{port}" for port in self._ports)
        return [
            *_ends_with_its_parent(),
            binary,
            "--name=local",
            f"--data-dir={self._data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=local={peer}",
            "--auto-compaction-mode=revision",
            "--auto-compaction-retention=10000",
            "--logger=zap",
            "--log-level=warn",
        ]

    def _is_healthy(self) -> bool:
        return _answers(f"http://{HOST}:{self._ports[0]}/health", b'"health":"true"')


def _answers(url: str, word: bytes) -> bool:
    """Whether the page is there and contains the word."""
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=1.0) as answer:
            return word in answer.read(1024)
    except OSError:
        return False


def _ends_with_its_parent() -> list[str]:
    """A command prefix for programs that do not notice the end of their parent themselves."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig=TERM"] if setpriv is not None else []


def find_etcd() -> str | None:
    """The path of etcd; None unless it and its Python client are installed."""
    from importlib.util import find_spec

    return shutil.which("etcd") if find_spec("grpc") is not None else None


def how_it_ended(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
