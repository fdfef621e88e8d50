"""What a local cluster (`headwater cluster up`) keeps in its directory.

cluster.json     LocalPlan: which nodes there are, and where they listen
lock             held by the process that runs the cluster
control.sock     where that process takes orders (`cluster/control`)
metadata.db      the metadata, if it is in SQLite
etcd/            the metadata, if it is in etcd
node-1/ ...      the data of each node
logs/            what each process said
tls/ ...         with --secure: see `cluster/secured`
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headwater.cli.output import CommandFailed
from headwater.transport.ports import HOST, free_port, is_free

PREFIX = "headwater"
"""Of the keys in etcd."""
MAX_NODES = 32


@dataclass(frozen=True, slots=True)
class LocalNode:
    node_id: int
    port: int
    roles: str | None = None
    rack: str | None = None

    @property
    def name(self) -> str:
        return f"node-{self.node_id}"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class LocalPlan:
    etcd_ports: tuple[int, int] | None
    """Of clients and of peers; None if the metadata is in SQLite."""
    replicas: int
    """Of a topic that is created without a number."""
    durability: str
    nodes: tuple[LocalNode, ...]
    http_port: int | None = None
    """Of REST, schema registry and console; None if there is no console."""
    is_secure: bool = False
    """With TLS, logins and access control, on files that `cluster/secured` writes."""

    @property
    def console(self) -> str | None:
        """The URL of the console; None if there is none."""
        return f"http://{HOST}:{self.http_port}" if self.http_port is not None else None

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def metadata_url(self, directory: Path) -> str:
        if self.etcd_ports is None:
            return f"sqlite:{directory.resolve() / 'metadata.db'}"
        return f"etcd://{HOST}:{self.etcd_ports[0]}/{PREFIX}"

    def with_free_console(self) -> "LocalPlan":
        """With another port for the console if another program listens on its own meanwhile."""
        is_taken = self.http_port is not None and not is_free(self.http_port)
        return replace(self, http_port=free_port()) if is_taken else self

    def grown(self, roles: str | None, rack: str | None) -> "LocalPlan":
        """With one node more: the next number, and the port after the last one if that is free."""
        if len(self.nodes) >= MAX_NODES:
            raise CommandFailed(f"A local cluster has at most {MAX_NODES} nodes.")
        number = max((node.node_id for node in self.nodes), default=0) + 1
        after = max((node.port for node in self.nodes), default=0) + 1
        port = after if is_free(after) else free_port()
        return replace(self, nodes=(*self.nodes, LocalNode(number, port, roles, rack)))


def plan_file(directory: Path) -> Path:
    return directory / "cluster.json"


def load_plan(directory: Path) -> LocalPlan | None:
    """None if there is no cluster in the directory."""
    path = plan_file(directory)
    try:
        plain: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        ports = plain["etcd_ports"]
        return LocalPlan(
            etcd_ports=(int(ports[0]), int(ports[1])) if ports is not None else None,
            replicas=int(plain["replicas"]),
            durability=str(plain["durability"]),
            nodes=tuple(LocalNode(**node) for node in plain["nodes"]),
            http_port=int(plain["http_port"]) if plain.get("http_port") is not None else None,
            is_secure=bool(plain.get("is_secure", False)),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise CommandFailed(f"{path} cannot be read: {error}.", "Choose another directory with --data.") from error


def save_plan(directory: Path, plan: LocalPlan) -> None:
    path = plan_file(directory)
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(plan), indent=2) + "\n", encoding="utf-8")
    scratch.replace(path)


def known_plan(directory: Path) -> LocalPlan:
    plan = load_plan(directory)
    if plan is None:
        raise CommandFailed(f"There is no cluster in {directory}.", "`headwater cluster up --data DIR` starts one.")
    return plan


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the lock of the directory: at most one process runs its cluster. Raises CommandFailed."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandFailed(
                f"The cluster in {directory} runs already.",
                "Add a node with `headwater cluster add`, or stop the cluster with Ctrl-C in its terminal.",
            ) from None
        yield
    finally:
        os.close(descriptor)
