"""`headwater cluster`: a whole cluster on this machine, and any cluster's state, stores and growth."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.brokers import Bootstrap, Brokers, ClientFile, local_brokers
from headwater.cli.client import Json
from headwater.cli.cluster.files import MAX_NODES, known_plan, load_plan
from headwater.cli.cluster.report import counted, print_description
from headwater.cli.output import CommandFailed, confirm, note, print_json, say

if TYPE_CHECKING:
    from headwater.cli.cluster.description import ClusterDescription
    from headwater.cli.cluster.secured import SecuredCluster

DEFAULT_DIRECTORY = Path("headwater-cluster")
LOOK_EVERY_S = 0.5
MAX_PORT = 65_535

app = typer.Typer(help="Start, look at, grow and shrink a cluster.", no_args_is_help=True, add_completion=False)

Data = Annotated[
    Path, typer.Option("--data", envvar="HEADWATER_CLUSTER", metavar="DIR", help="Where the local cluster lives.")
]
LocalData = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The directory of a local cluster, to ask that cluster.")
]
Metadata = Annotated[
    str | None,
    typer.Option("--metadata", envvar="HEADWATER_METADATA", metavar="URL", help="The cluster's metadata store."),
]
Roles = Annotated[
    str | None, typer.Option("--roles", help="Of broker, store, controller, with commas.", show_default="all three")
]
Target = Annotated[str, typer.Argument(metavar="NODE|STORE", help="A node's number, or the beginning of a store's id.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command()
def up(
    nodes: Annotated[int, typer.Option("--nodes", min=2, max=MAX_NODES, help="How many, in a new cluster.")] = 3,
    data: Data = DEFAULT_DIRECTORY,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_NODES, help="Of a topic that is created without a number.", show_default="3"),
    ] = None,
    use_etcd: Annotated[
        bool | None,
        typer.Option("--etcd/--sqlite", help="Where the metadata is kept.", show_default="etcd, if it is installed"),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=MAX_PORT - MAX_NODES, help="Of the first node; the others follow. 0: free ones.")
    ] = 9092,
    racks: Annotated[str | None, typer.Option(help="Names, with commas: nodes stand in them in turn.")] = None,
    durability: Annotated[str, typer.Option(help="sync or os, as in `headwater serve`.")] = "sync",
    logs: Annotated[bool, typer.Option("--logs/--no-logs", help="Show what the processes say.")] = True,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="A new cluster has TLS, also between nodes, logins and access control."),
    ] = False,
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="HTTP in one more process: REST, registry and console.")
    ] = True,
) -> None:
    """Start a cluster on this machine, until Ctrl-C.

    The same directory brings the same cluster back, with its nodes and its data."""
    from headwater.cli.cluster.table import cluster_view
    from headwater.cli.cluster.up import LocalCluster, new_plan

    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"Cannot use {data}: {error.strerror}.", "Choose another directory with --data.") from error
    plan = load_plan(data)
    if plan is None:
        names = racks.split(",") if racks else []
        plan = new_plan(
            nodes, replicas, use_etcd, port, [name.strip() for name in names], durability, has_console=console,
            is_secure=secure,
        )  # fmt: skip
    elif secure and not plan.is_secure:
        raise CommandFailed(
            f"The cluster in {data} was made without --secure.", "Start a new one in another directory with --data."
        )
    else:
        note(f"The cluster of {len(plan.nodes)} nodes in {data} starts again, as it was.")
        plan = plan.with_free_console()
    with cluster_view(with_logs=logs) as view:
        asyncio.run(LocalCluster(data, plan, view).run())


@app.command()
def add(
    data: Data = DEFAULT_DIRECTORY,
    roles: Roles = None,
    rack: Annotated[str | None, typer.Option(help="Where it stands.")] = None,
) -> None:
    """Add a node to the local cluster that runs. New segments land on it at once; nothing old moves.

    To any other cluster a node is added by starting it: `headwater serve --node-id N --metadata URL --peer-listen A`"""
    from headwater.cli.cluster.control import order

    _check_roles(roles)
    known_plan(data)
    say(order(data, do="add", roles=roles, rack=rack))


@app.command()
def restart(
    name: Annotated[str, typer.Argument(metavar="NODE|etcd", help="A node's number, or etcd.")],
    data: Data = DEFAULT_DIRECTORY,
) -> None:
    """Stop a process of the local cluster in order, if it runs, and start it again."""
    from headwater.cli.cluster.control import order

    known_plan(data)
    say(order(data, do="restart", name=name))


@app.command()
def kill(
    name: Annotated[str, typer.Argument(metavar="NODE|etcd", help="A node's number, or etcd.")],
    data: Data = DEFAULT_DIRECTORY,
) -> None:
    """Kill a process of the local cluster, as `kill -9` does, to see what happens."""
    from headwater.cli.cluster.control import order

    known_plan(data)
    say(order(data, do="kill", name=name))


@app.command()
def status(
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
    metadata: Metadata = None,
    data: LocalData = None,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Wait until the cluster is healthy; exit with 1 if it is not by then."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show nodes, disks, leaders, and partitions that lack a leader or replicas.

    With --metadata also roles, stores and their states, and partitions that are being taken over."""

    def look() -> "tuple[ClusterDescription, bool]":
        """The cluster, and whether it is healthy with all its nodes."""
        plan = known_plan(data) if data is not None else None
        local, url, count, own_client = None, metadata, 1, None
        if plan is not None and data is not None:
            local, url, count = plan.bootstrap, url or plan.metadata_url(data), len(plan.nodes)
            own_client = _secured(data).admin_file if plan.is_secure else None
        cluster = _describe(local_brokers(bootstrap, client_file, local, own_client), url)
        return cluster, cluster.is_healthy and cluster.nodes_up >= count

    cluster, is_healthy = _waited(look, wait)
    if json:
        print_json(
            {**asdict(cluster), "under_replicated": cluster.under_replicated, "leaderless": cluster.leaderless,
             "is_healthy": cluster.is_healthy}
        )  # fmt: skip
    else:
        print_description(cluster)
    if wait is not None and not is_healthy:
        raise CommandFailed(f"The cluster was not healthy within {wait:g} s.", "The tables above show what is missing.")


@app.command()
def drain(
    target: Target,
    metadata: Metadata = None,
    data: LocalData = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let it take segments again.")] = False,
    wait: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Wait until it is empty; exit with 1 if it is not.")
    ] = None,
) -> None:
    """Empty a store, or all stores of a node: they get no new segments, and their segments move to others. Then the
    node can be removed."""
    asyncio.run(_drain(target, _url(metadata, data), undo, wait))


@app.command()
def lost(
    target: Target,
    metadata: Metadata = None,
    data: LocalData = None,
    undo: Annotated[bool, typer.Option("--undo", help="The store came back after all.")] = False,
    yes: Yes = False,
) -> None:
    """Declare that a store will not come back: its segments are copied from other replicas at once.

    A partition whose only sound replica is on this store loses acknowledged records by that."""
    asyncio.run(_lost(target, _url(metadata, data), undo, yes))


@app.command("rotate-secret")
def rotate_secret(
    metadata: Metadata = None,
    data: LocalData = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="The cluster_secret_file of the nodes, if they have one."),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long a node may take to see the next step.")
    ] = 60.0,
) -> None:
    """Replace the secret that nodes prove to each other that they know, while they run.

    All nodes take a new one beside the old one; then all prove the new one; then the old one is gone. Where the file is
    not shared by all nodes, copy it to the others after each step that is told."""
    from headwater.cli.cluster.secret_rotation import FilePlace, MetadataPlace, SecretPlace, rotate
    from headwater.cli.cluster.stores import opened

    url = _url(metadata, data)
    if file is None and metadata is None:
        directory = data if data is not None else DEFAULT_DIRECTORY
        file = _secured(directory).secret_file if known_plan(directory).is_secure else None

    async def run() -> None:
        async with opened(url) as store:
            place: SecretPlace = FilePlace(file) if file is not None else MetadataPlace(store)
            await rotate(place, store, wait, note)

    asyncio.run(run())
    say("The nodes have a new secret, and the old one is worth nothing any more.")


def _secured(data: Path) -> "SecuredCluster":
    from headwater.cli.cluster.secured import SecuredCluster

    return SecuredCluster(data)


def _check_roles(roles: str | None) -> None:
    if roles is None:
        return
    from headwater.broker.settings.setting import ConfigError
    from headwater.broker.settings.setting import roles as read_roles

    try:
        read_roles(roles)
    except ConfigError as error:
        raise CommandFailed(f"--roles {roles!r}: {error}.", exit_code=2) from error


def _url(metadata: str | None, data: Path | None) -> str:
    if metadata is not None:
        return metadata
    if data is not None or load_plan(DEFAULT_DIRECTORY) is not None:
        directory = data if data is not None else DEFAULT_DIRECTORY
        return known_plan(directory).metadata_url(directory)
    raise CommandFailed(
        "No cluster is named.", "Name its metadata with --metadata URL, or a local cluster with --data DIR.", 2
    )


def _describe(brokers: Brokers, metadata: str | None) -> "ClusterDescription":
    from headwater.cli.cluster.description import together
    from headwater.cli.cluster.kafka_description import ask_brokers
    from headwater.cli.cluster.metadata_description import read_metadata
    from headwater.cli.cluster.stores import opened

    async def read(url: str) -> "ClusterDescription":
        async with opened(url) as store:
            return await read_metadata(store)

    if metadata is None:
        return ask_brokers(brokers)
    by_metadata = asyncio.run(read(metadata))
    try:
        return together(ask_brokers(brokers), by_metadata)
    except CommandFailed as problem:
        note(f"headwater: {problem}")
        return by_metadata


def _waited(
    look: "Callable[[], tuple[ClusterDescription, bool]]", wait_s: float | None
) -> "tuple[ClusterDescription, bool]":
    deadline = time.monotonic() + (wait_s or 0.0)
    while True:
        try:
            cluster, is_healthy = look()
            if wait_s is None or is_healthy or time.monotonic() >= deadline:
                return cluster, is_healthy
        except CommandFailed:
            if time.monotonic() >= deadline:
                raise
        time.sleep(LOOK_EVERY_S)


async def _drain(target: str, url: str, undo: bool, wait_s: float | None) -> None:
    from headwater.cli.cluster.stores import decide, find_stores, opened, until_empty
    from headwater.model.cluster import StoreState

    state = StoreState.ACTIVE if undo else StoreState.DRAINING
    async with opened(url) as metadata:
        stores = await find_stores(metadata, target)
        for record, version in stores:
            if record.state is StoreState.LOST:
                raise CommandFailed(
                    f"Store {record.store_id} is lost.", "`headwater cluster lost --undo` takes that back."
                )
            if record.state is not state:
                await decide(metadata, record, version, state)
            word = "takes segments again" if undo else "is being drained"
            say(f"Store {record.store_id} of node {record.node_id} {word}.")
        if undo or wait_s is None:
            return
        left = 0
        try:
            async with asyncio.timeout(wait_s):
                async for left in until_empty(metadata, frozenset(record.store_id for record, _ in stores)):
                    note(f"{counted(left, 'segment')} left")
        except TimeoutError:
            raise CommandFailed(
                f"{counted(left, 'segment')} left after {wait_s:g} s.",
                "Have other stores room? `headwater cluster status` shows it.",
            ) from None
    say("It is empty, and can be removed.")


async def _lost(target: str, url: str, undo: bool, yes: bool) -> None:
    from headwater.cli.cluster.stores import decide, find_stores, living_stores, opened
    from headwater.model.cluster import StoreState

    async with opened(url) as metadata:
        stores = await find_stores(metadata, target)
        alive = await living_stores(metadata)
        for record, version in stores:
            if undo:
                if record.state is StoreState.LOST:
                    await decide(metadata, record, version, StoreState.ACTIVE)
                say(f"Store {record.store_id} counts again.")
                continue
            if record.store_id in alive:
                raise CommandFailed(
                    f"Store {record.store_id} is alive on node {alive[record.store_id]}.",
                    "To empty it, use `headwater cluster drain`.",
                )
            note(
                f"Store {record.store_id} of node {record.node_id}: acknowledged records whose only sound copy is "
                "there will be lost."
            )
            confirm("Is it lost for good?", yes)
            await decide(metadata, record, version, StoreState.LOST)
            say(f"Store {record.store_id} is lost.")
