"""`headwater serve`: one broker, until it is asked to stop.

SIGTERM or SIGINT stops it cleanly: what was acknowledged is on disk, and the next start has nothing to repair. A second
signal ends the process at once, which is safe too: the next start recovers, as after a crash.

The time from the command to the first acknowledged record is short on purpose: nothing is imported here that a
broker does not need.
"""

import errno
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.output import CommandFailed, note, say
from headwater.cli.process_options import LogJson, LogLevel, prepare_process

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from headwater.broker.server import Broker
    from headwater.broker.settings.broker_config import BrokerConfig
    from headwater.cli.renewed_gateway import RenewedGateway

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
EXIT_AT_ONCE = 130

Data = Annotated[
    Path | None,
    typer.Option(
        "--data", envvar="HEADWATER_DATA", metavar="DIR", help="Where records live.", show_default="headwater-data"
    ),
]
Listen = Annotated[
    str | None,
    typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect.", show_default="127.0.0.1:9092"),
]
Advertise = Annotated[
    str | None,
    typer.Option("--advertise", metavar="HOST:PORT", help="The address that clients are given, if not the same."),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings in TOML; options win over them.")
]
DurabilityName = Annotated[
    str | None,
    typer.Option(
        "--durability", help="sync: acknowledged is on disk. os: with the system, faster.", show_default="sync"
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option("--metrics", metavar="HOST:PORT|off", help="Prometheus metrics.", show_default="127.0.0.1:9644"),
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http", metavar="HOST:PORT|off", help="REST, schema registry and console.", show_default="127.0.0.1:8080"
    ),
]
NodeNumber = Annotated[
    int | None, typer.Option("--node-id", min=0, help="This node's number in its cluster.", show_default="1")
]
Metadata = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        envvar="HEADWATER_METADATA",
        metavar="URL",
        help="The cluster's metadata: etcd://host:2379,..., zookeeper://host:2181,..., sqlite:FILE on one host.",
    ),
]
PeerListen = Annotated[
    str | None,
    typer.Option("--peer-listen", metavar="HOST:PORT", help="Where other nodes connect: the node joins a cluster."),
]
PeerAdvertise = Annotated[
    str | None,
    typer.Option(
        "--peer-advertise", metavar="HOST:PORT", help="The address that other nodes are given, if not the same."
    ),
]
Roles = Annotated[
    str | None,
    typer.Option("--roles", help="Of broker, store, controller, with commas between.", show_default="all three"),
]
Rack = Annotated[str | None, typer.Option("--rack", help="Where the node stands; replicas are spread over racks.")]

app = typer.Typer(add_completion=False)


@app.command()
def serve(
    data: Data = None,
    listen: Listen = None,
    advertise: Advertise = None,
    config: ConfigFile = None,
    durability: DurabilityName = None,
    metrics: Metrics = None,
    http: Http = None,
    node_id: NodeNumber = None,
    metadata: Metadata = None,
    peer_listen: PeerListen = None,
    peer_advertise: PeerAdvertise = None,
    roles: Roles = None,
    rack: Rack = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Start although strangers may connect from elsewhere.", show_default=False),
    ] = None,
    insecure_metadata: Annotated[
        bool | None,
        typer.Option("--insecure-metadata", help="Start although the metadata store has no TLS.", show_default=False),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print every setting with its default, as TOML, and exit.")
    ] = False,
    log_level: LogLevel = "info",
    log_json: LogJson = False,
    parent_fd: Annotated[int | None, typer.Option("--parent-fd", hidden=True)] = None,
) -> None:
    """Start a broker."""
    if print_config:
        from headwater.cli.config_template import config_template

        say(config_template().rstrip())
        return
    prepare_process(log_level, log_json)
    options: dict[str, object] = {
        "data_dir": data, "listen": listen, "advertise": advertise, "durability": durability, "metrics": metrics,
        "http": http, "node_id": node_id, "metadata": metadata, "peer_listen": peer_listen,
        "peer_advertise": peer_advertise, "roles": roles, "rack": rack, "insecure": insecure,
        "insecure_metadata": insecure_metadata,
    }  # fmt: skip
    if metadata is not None and "@" in metadata and any(metadata in word for word in sys.argv):
        note(
            "headwater: everybody on this machine can see the login in --metadata: write the URL into the file of "
            "--config, or into HEADWATER_METADATA"
        )
    _run(_load_config(config, options), parent_fd)


def _load_config(file: Path | None, options: "Mapping[str, object]") -> "BrokerConfig":
    from headwater.broker.settings.broker_config import BrokerConfig, ConfigError

    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    try:
        return BrokerConfig.load(file, **given)
    except ConfigError as error:
        raise CommandFailed(str(error), exit_code=2) from error


def _run(config: "BrokerConfig", parent_fd: int | None) -> None:
    import asyncio

    from headwater.cli.runtime import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(config, parent_fd))


async def _serve(config: "BrokerConfig", parent_fd: int | None) -> None:
    import asyncio
    import signal

    from headwater.broker.server import Broker
    from headwater.cli.renewed_gateway import RenewedGateway
    from headwater.cli.runtime import DeletedTopics, tune_garbage_collector
    from headwater.model.replica import StoreFailed

    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop_requested)
    try:
        broker = await Broker.start(config)
    except Exception as error:
        raise _explain_start(error, config) from error
    gateway = None
    try:
        try:
            gateway = RenewedGateway.start(broker)
        except (OSError, ValueError) as error:
            raise _explain_gateway(error, config) from error
        if parent_fd is not None:
            _report_to_parent(parent_fd, broker, stop_requested)
        say(_banner(broker, gateway))
        sys.stdout.flush()
        tune_garbage_collector()
        deleted = DeletedTopics(loop)
        broker.catalog.on_removed.append(lambda topic: deleted.removed(topic.partition_count))
        await _until_stop_requested(broker, stop_requested)
    except StoreFailed as error:
        raise CommandFailed(
            f"The disk under {config.data_dir} failed: {error}.",
            "Nothing that was acknowledged depends on it. Check the disk, then start again: the broker recovers.",
        ) from error
    finally:
        if gateway is not None:
            await gateway.stop()
        await broker.stop()


async def _until_stop_requested(broker: "Broker", stop_requested: "asyncio.Event") -> None:
    """Return when a stop is requested; raise the broker's failure if it ends before that."""
    import asyncio

    request = asyncio.ensure_future(stop_requested.wait())
    end = asyncio.ensure_future(broker.wait_stopped())
    await asyncio.wait((request, end), return_when=asyncio.FIRST_COMPLETED)
    if end.done():
        end.result()
    request.cancel()
    end.cancel()


def _on_signal(stop_requested: "asyncio.Event") -> None:
    if stop_requested.is_set():
        os._exit(EXIT_AT_ONCE)
    stop_requested.set()


def _report_to_parent(parent_fd: int, broker: "Broker", stop_requested: "asyncio.Event") -> None:
    """Send the address to the process that started this one (a test, or `cluster up`), and stop when it ends."""
    import asyncio

    os.write(parent_fd, f"{_shown(broker.address)}\n".encode())
    loop = asyncio.get_running_loop()

    def on_end() -> None:
        loop.remove_reader(parent_fd)
        stop_requested.set()

    loop.add_reader(parent_fd, on_end)


def _banner(broker: "Broker", gateway: "RenewedGateway | None") -> str:
    from importlib.metadata import version

    config = broker.config
    address = _shown(broker.address)
    bootstrap = "" if address == DEFAULT_BOOTSTRAP else f" --bootstrap {address}"
    metrics = broker.metrics_address
    rows: list[tuple[str, object]] = [
        ("listening on", address),
        ("advertised as", _shown(broker.advertised)),
        *(("listener", f"{each.name} on {each.listen}, {each.protocol.value}") for each in config.listener),
        ("node", config.node_id),
        ("cluster", broker.cluster_id),
        ("data", config.data_dir.absolute()),
        ("durability", config.durability.value),
        ("metrics", f"http://{_shown(metrics)}/metrics" if metrics is not None else "off"),
        ("http", f"http://{_shown((gateway.host, gateway.port))}" if gateway is not None else "off"),
    ]
    if broker.member is not None:
        peers = broker.cluster_nodes.own
        rows[4:4] = [
            ("roles", ", ".join(config.roles)),
            ("rack", config.rack or "none"),
            ("peers reach it", _shown((peers.peer_host, peers.peer_port))),
            ("nodes", ", ".join(str(node.node_id) for node in broker.cluster_nodes.alive())),
        ]
    lines = [f"Headwater {version('headwater')}", *(f"  {name:<15}{value}" for name, value in rows)]
    return "\n".join([*lines, f"  {'try':<15}headwater produce{bootstrap} greetings hello"])


def _shown(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _explain_start(error: Exception, config: "BrokerConfig") -> Exception:
    """Advice for a failure that the operator can repair; any other exception as it is."""
    from headwater.broker.cluster.node_session import NodeIdInUse
    from headwater.metadata.connect import BadMetadataUrl
    from headwater.metadata.store import Unavailable
    from headwater.model.replica import StoreError
    from headwater.storage.files import DirectoryInUse
    from headwater.transport.tls_errors import UnusableCertificate

    if isinstance(error, UnusableCertificate):
        return CommandFailed(str(error), exit_code=2)
    if isinstance(error, DirectoryInUse):
        return CommandFailed(
            f"Another broker uses the data in {config.data_dir}.", "Stop it, or choose another directory with --data."
        )
    if isinstance(error, NodeIdInUse):
        return CommandFailed(
            f"The cluster has this node already: {error}.", "Stop the other node, or choose another --node-id."
        )
    if isinstance(error, StoreError):
        return CommandFailed(f"The data in {config.data_dir} cannot be used: {error}.", "Check the disk under it.")
    if isinstance(error, BadMetadataUrl):
        return CommandFailed(f"The setting metadata is wrong: {error}.", exit_code=2)
    if isinstance(error, Unavailable):
        return CommandFailed(
            f"The metadata store cannot be used: {error}.", "Check the setting metadata, and whether that store runs."
        )
    if not isinstance(error, OSError):
        return error
    if error.errno == errno.ENOSPC:
        return CommandFailed(f"The disk of {config.data_dir} is full.", "Make room, then start again: nothing is lost.")
    if error.filename is not None:
        return CommandFailed(f"Cannot use {error.filename}: {error.strerror}.", "Choose another directory with --data.")
    return _explain_address(error, *_listened(error, config))


def _explain_gateway(error: OSError | ValueError, config: "BrokerConfig") -> CommandFailed:
    if isinstance(error, OSError):
        return _explain_address(error, config.http, "--http, or do without (--http off)")
    return CommandFailed(f"http_token_file: {error}.", exit_code=2)


def _explain_address(error: OSError, address: object, option: str) -> CommandFailed:
    if error.errno == errno.EADDRINUSE:
        return CommandFailed(
            f"Another program listens on {address}.",
            f"It may be a broker that runs already. Stop it, or choose another port with {option}.",
        )
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return CommandFailed(f"{address} is not an address of this machine.", f"Choose one with {option}.")
    return CommandFailed(f"Cannot listen on {address}: {error.strerror or error}.", f"Choose another with {option}.")


def _listened(error: OSError, config: "BrokerConfig") -> tuple[object, str]:
    """The address that could not be listened on, and where it is set: the error's text names it."""
    peer = config.peer_listen
    if peer is not None and peer != config.listen and str(tuple(peer)) in str(error):
        return peer, "--peer-listen"
    for listener in config.listener:
        if str(tuple(listener.listen)) in str(error):
            return listener.listen, f"listen of listener {listener.name}"
    return config.listen, "--listen"
