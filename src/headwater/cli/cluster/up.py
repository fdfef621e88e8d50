"""A whole cluster on this machine, as child processes: etcd if it is there, the nodes, and the console.

The start: etcd, then all others at once. The stop goes the other way, and stops the nodes one after the other: each
hands over what it leads, as long as there is another node. A process that ends by itself is shown and left alone until
`headwater cluster restart`.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.cli.cluster.child import Child, EtcdChild, GatewayChild, NodeChild, find_etcd
from headwater.cli.cluster.control import taking_orders
from headwater.cli.cluster.files import LocalNode, LocalPlan, locked, save_plan
from headwater.cli.cluster.secured import SecuredCluster
from headwater.cli.output import CommandFailed
from headwater.transport.ports import free_ports, is_free

if TYPE_CHECKING:
    from headwater.broker.cluster.watch import ClusterWatch

SHOW_EVERY_S: Final = 0.5
DEFAULT_HTTP_PORT: Final = 8080
"""Of the console, if it is free and the nodes have their usual ports, too."""


def new_plan(
    count: int,
    replicas: int | None,
    use_etcd: bool | None,
    port: int,
    racks: list[str],
    durability: str,
    *,
    has_console: bool = True,
    is_secure: bool = False,
) -> LocalPlan:
    """Of a new cluster. Raises CommandFailed for options that contradict each other, or if etcd is missing."""
    if durability not in ("sync", "os"):
        raise CommandFailed(f"--durability {durability!r} is unknown.", "Use sync or os.", exit_code=2)
    replica_count = replicas if replicas is not None else min(3, count)
    if replica_count > count:
        raise CommandFailed(f"{replica_count} replicas need {replica_count} nodes, not {count}.", exit_code=2)
    if use_etcd and find_etcd() is None:
        raise CommandFailed(
            "etcd is not installed.", "Debian: etcd-server; and pip install 'headwater[etcd]'. Or use --sqlite."
        )
    is_etcd = find_etcd() is not None if use_etcd is None else use_etcd
    free = free_ports(count + 3)
    ports = [port + number for number in range(count)] if port else free[3:]
    members = tuple(
        LocalNode(number, ports[number - 1], rack=racks[(number - 1) % len(racks)] if racks else None)
        for number in range(1, count + 1)
    )
    http_port = (DEFAULT_HTTP_PORT if port and is_free(DEFAULT_HTTP_PORT) else free[2]) if has_console else None
    ports_of_etcd = (free[0], free[1]) if is_etcd else None
    return LocalPlan(ports_of_etcd, replica_count, durability, members, http_port, is_secure)


@dataclass(frozen=True, slots=True)
class LocalClusterSnapshot:
    """The state of a local cluster at one moment."""

    directory: Path
    plan: LocalPlan
    metadata_url: str
    children: Sequence[Child]
    watch: "ClusterWatch | None"


@dataclass(frozen=True, slots=True)
class LocalClusterView:
    """The callbacks of a view."""

    say: Callable[[str, str], None]
    """Gets a process's name and a line of its output."""
    tell: Callable[[str], None]
    """Gets a message for people."""
    show: Callable[[LocalClusterSnapshot], None]
    ready: Callable[[LocalClusterSnapshot], None]
    """Called once, when all processes are up."""


class LocalCluster:
    def __init__(self, directory: Path, plan: LocalPlan, view: LocalClusterView) -> None:
        self._directory = directory
        self._plan = plan
        self._view = view
        self._etcd: EtcdChild | None = None
        if plan.etcd_ports is not None:
            self._etcd = EtcdChild(directory, plan.etcd_ports, view.say)
        self._nodes = [NodeChild(directory, plan, node, view.say) for node in plan.nodes]
        self._console = GatewayChild(directory, plan, view.say) if plan.http_port is not None else None
        self._watch: ClusterWatch | None = None
        self._changes = asyncio.Lock()
        self._stop_requested = asyncio.Event()
        self._waits: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until a signal stops it. Raises CommandFailed if it cannot be started."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._request_stop)
        with locked(self._directory):
            _write_secured(self._directory, self._plan)
            save_plan(self._directory, self._plan)
            try:
                if await self._unless_stopped(self._start()):
                    async with taking_orders(self._directory, self._carry_out):
                        await self._look_on()
            finally:
                await self._stop()

    @property
    def _children(self) -> list[Child]:
        console = [self._console] if self._console is not None else []
        return [*([self._etcd] if self._etcd is not None else []), *self._nodes, *console]

    @property
    def _snapshot(self) -> LocalClusterSnapshot:
        return LocalClusterSnapshot(
            self._directory, self._plan, self._plan.metadata_url(self._directory), self._children, self._watch
        )

    async def _start(self) -> None:
        if self._etcd is not None:
            await self._launch(self._etcd)
        async with asyncio.TaskGroup() as group:
            for child in (*self._nodes, *([self._console] if self._console is not None else [])):
                group.create_task(self._launch(child))

    async def _launch(self, child: Child) -> None:
        await child.start()
        task = asyncio.create_task(self._notice_end(child))
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)

    async def _notice_end(self, child: Child) -> None:
        await child.wait()
        if not child.is_stopping:
            self._view.tell(f"{child.name} {child.state}. To start it again: {self._how_to_restart(child)}")

    async def _look_on(self) -> None:
        from headwater.broker.cluster.watch import ClusterWatch
        from headwater.metadata.connect import open_metadata

        metadata = await open_metadata(self._plan.metadata_url(self._directory))
        try:
            self._watch = ClusterWatch(metadata)
            watching = asyncio.create_task(self._watch.run())
            try:
                await self._unless_stopped(self._watch.synced())
                if not self._stop_requested.is_set():
                    self._view.ready(self._snapshot)
                while not self._stop_requested.is_set():
                    self._view.show(self._snapshot)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(SHOW_EVERY_S):
                            await self._stop_requested.wait()
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        finally:
            await metadata.close()

    async def _unless_stopped(self, work: Any) -> bool:
        """Do the work, unless a stop is requested first; returns whether it was done."""
        doing = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self._stop_requested.wait())
        await asyncio.wait((doing, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
            return False
        try:
            doing.result()
        except BaseExceptionGroup as group:
            problems, others = group.split(CommandFailed)
            if problems is None or others is not None:
                raise
            raise _first(problems) from None
        return True

    def _request_stop(self) -> None:
        if self._stop_requested.is_set():
            for child in self._children:
                self._waits.add(asyncio.ensure_future(child.kill()))
        self._stop_requested.set()

    async def _stop(self) -> None:
        async with self._changes:  # an order under way gives up now
            pass
        for child in reversed(self._children):
            await child.stop()
            self._view.show(self._snapshot)
        await asyncio.gather(*self._waits, return_exceptions=True)

    # Orders

    async def _carry_out(self, order: Mapping[str, Any]) -> str:
        """Orders run one after the other. A stop does not wait for them: `_stop` stops what they have started."""
        async with self._changes:
            match order.get("do"):
                case "add":
                    return await self._add(order.get("roles"), order.get("rack"))
                case "restart":
                    return await self._restart(self._child(str(order.get("name"))))
                case "kill":
                    return await self._kill(self._child(str(order.get("name"))))
        raise CommandFailed(f"There is no order {order.get('do')!r}.")

    async def _add(self, roles: str | None, rack: str | None) -> str:
        plan = self._plan.grown(roles, rack)
        node = NodeChild(self._directory, plan, plan.nodes[-1], self._view.say)
        self._nodes.append(node)
        try:
            await self._launch_unless_stopped(node)
        except CommandFailed:
            self._nodes.remove(node)
            raise
        self._plan = plan
        save_plan(self._directory, plan)
        return f"Added node {node.node.node_id} at {node.node.address}."

    def _child(self, name: str) -> Child:
        for child in self._children:
            if name in (child.name, child.name.removeprefix("node-")):
                return child
        raise CommandFailed(f"There is no {name!r}.", f"There are {', '.join(child.name for child in self._children)}.")

    async def _kill(self, child: Child) -> str:
        if not child.is_running:
            raise CommandFailed(f"{child.name} does not run.", f"Start it with `{self._how_to_restart(child)}`.")
        await child.strike()
        return f"Killed {child.name}."

    async def _restart(self, child: Child) -> str:
        await child.stop()
        await self._launch_unless_stopped(child)
        return f"Restarted {child.name}."

    async def _launch_unless_stopped(self, child: Child) -> None:
        if self._stop_requested.is_set() or not await self._unless_stopped(self._launch(child)):
            raise CommandFailed("The cluster is being stopped.")

    def _how_to_restart(self, child: Child) -> str:
        return f"headwater cluster restart {child.name.removeprefix('node-')} --data {self._directory}"


def _write_secured(directory: Path, plan: LocalPlan) -> None:
    """The certificates and the first users of a new cluster. Raises CommandFailed."""
    secured = SecuredCluster(directory)
    if not plan.is_secure or secured.is_there:
        return
    try:
        secured.write(plan.bootstrap, directory / plan.nodes[0].name)
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}.", "Choose another directory with --data.") from error


def _first(group: BaseExceptionGroup[CommandFailed]) -> CommandFailed:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, CommandFailed), "a group of problems holds problems"
    return error
