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

from headwater.cli.output import Problem, say

if TYPE_CHECKING:
    import asyncio

    from headwater.broker.server import Broker
    from headwater.broker.settings.broker_config import BrokerConfig
    from headwater.gateway.server import GatewayThread

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
EXIT_AT_ONCE = 130


app = typer.Typer(add_completion=False)


@app.command()
def serve(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", envvar="HEADWATER_DATA", metavar="DIR", help="Where records live.", show_default="headwater-data"
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect.", show_default="127.0.0.1:9092"),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", metavar="HOST:PORT", help="The address told to clients, if not the same."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings in TOML; options win over them.")
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            "--durability", help="sync: acknowledged is on disk. os: with the system, faster.", show_default="sync"
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT|off", help="Prometheus metrics.", show_default="127.0.0.1:9644"),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http", metavar="HOST:PORT|off", help="REST, schema registry and console.", show_default="127.0.0.1:8080"
        ),
    ] = None,
    node_id: Annotated[
        int | None, typer.Option("--node-id", min=0, help="This node's number in its cluster.", show_default="1")
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            envvar="HEADWATER_METADATA",
            metavar="URL",
            help="The cluster's metadata: etcd://host:2379,..., zookeeper://host:2181,..., sqlite:FILE on one host.",
        ),
    ] = None,
    peer_listen: Annotated[
        str | None,
        typer.Option("--peer-listen", metavar="HOST:PORT", help="Where other nodes connect: the node joins a cluster."),
    ] = None,
    peer_advertise: Annotated[
        str | None,
        typer.Option("--peer-advertise", metavar="HOST:PORT", help="The address told to other nodes, if not the same."),
    ] = None,
    roles: Annotated[
        str | None,
        typer.Option("--roles", help="Of broker, store, controller, with commas between.", show_default="all three"),
    ] = None,
    rack: Annotated[
        str | None, typer.Option("--rack", help="Where the node stands; replicas are spread over racks.")
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print every setting with its default, as TOML, and exit.")
    ] = False,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log JSON, one object a line.")] = False,
    parent_fd: Annotated[int | None, typer.Option("--parent-fd", hidden=True)] = None,
) -> None:
    """Start a broker."""
    if print_config:
        from headwater.cli.config_template import config_template

        say(config_template().rstrip())
        return
    from headwater.cli.logs import LEVELS, start_logging
    from headwater.cli.runtime import tune_interpreter

    if log_level not in LEVELS:
        raise Problem(f"--log-level {log_level!r} is unknown.", f"Use one of: {', '.join(LEVELS)}.", exit_code=2)
    tune_interpreter()
    import asyncio

    from headwater.broker.settings.broker_config import BrokerConfig, ConfigError
    from headwater.cli.runtime import new_event_loop

    start_logging(log_level, as_json=log_json)
    given: dict[str, Any] = {
        "data_dir": data, "listen": listen, "advertise": advertise, "durability": durability, "metrics": metrics,
        "http": http, "node_id": node_id, "metadata": metadata, "peer_listen": peer_listen,
        "peer_advertise": peer_advertise, "roles": roles, "rack": rack,
    }  # fmt: skip
    try:
        settings = BrokerConfig.load(config, **{name: value for name, value in given.items() if value is not None})
    except ConfigError as error:
        raise Problem(str(error), exit_code=2) from error
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(settings, parent_fd))


async def _serve(config: "BrokerConfig", parent_fd: int | None) -> None:
    import asyncio
    import signal

    from headwater.broker.server import Broker
    from headwater.cli.gateway_thread import start_gateway
    from headwater.cli.runtime import DeletedTopics, settle_garbage_collector
    from headwater.model.replica import StoreFailed

    stop_asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop_asked)
    try:
        broker = await Broker.start(config)
    except Exception as error:
        raise _explain_start(error, config) from error
    gateway = None
    try:
        try:
            gateway = start_gateway(broker)
        except (OSError, ValueError) as error:
            raise _explain_gateway(error, config) from error
        if parent_fd is not None:
            _tell_parent(parent_fd, broker, stop_asked)
        say(_banner(broker, gateway))
        sys.stdout.flush()
        settle_garbage_collector()
        deleted = DeletedTopics(loop)
        broker.catalog.on_removed.append(lambda topic: deleted.removed(topic.partition_count))
        await _until_asked(broker, stop_asked)
    except StoreFailed as error:
        raise Problem(
            f"The disk under {config.data_dir} failed: {error}.",
            "Nothing that was acknowledged depends on it. Check the disk, then start again: the broker recovers.",
        ) from error
    finally:
        if gateway is not None:
            await asyncio.to_thread(gateway.stop)
        await broker.stop()


async def _until_asked(broker: "Broker", stop_asked: "asyncio.Event") -> None:
    """Return when somebody wants the broker to stop; raise why it gave up, if it did before."""
    import asyncio

    asked = asyncio.ensure_future(stop_asked.wait())
    gave_up = asyncio.ensure_future(broker.wait_stopped())
    await asyncio.wait((asked, gave_up), return_when=asyncio.FIRST_COMPLETED)
    if gave_up.done():
        gave_up.result()
    asked.cancel()
    gave_up.cancel()


def _on_signal(stop_asked: "asyncio.Event") -> None:
    if stop_asked.is_set():
        os._exit(EXIT_AT_ONCE)
    stop_asked.set()


def _tell_parent(parent_fd: int, broker: "Broker", stop_asked: "asyncio.Event") -> None:
    """Whoever started us (headwater.testing) learns the address, and we end when it does."""
    import asyncio

    os.write(parent_fd, f"{_shown(broker.address)}\n".encode())
    loop = asyncio.get_running_loop()

    def on_end() -> None:
        loop.remove_reader(parent_fd)
        stop_asked.set()

    loop.add_reader(parent_fd, on_end)


def _banner(broker: "Broker", gateway: "GatewayThread | None") -> str:
    from importlib.metadata import version

    config = broker.config
    address = _shown(broker.address)
    bootstrap = "" if address == DEFAULT_BOOTSTRAP else f" --bootstrap {address}"
    metrics = broker.metrics_address
    facts: list[tuple[str, Any]] = [
        ("listening on", address),
        ("advertised as", _shown(broker.advertised)),
        ("node", config.node_id),
        ("cluster", broker.cluster_id),
        ("data", config.data_dir.absolute()),
        ("durability", config.durability.value),
        ("metrics", f"http://{_shown(metrics)}/metrics" if metrics is not None else "off"),
        ("http", f"http://{_shown((gateway.host, gateway.port))}" if gateway is not None else "off"),
    ]
    if broker.member is not None:
        peers = broker.neighbours.own
        facts[4:4] = [
            ("roles", ", ".join(config.roles)),
            ("rack", config.rack or "none"),
            ("peers reach it", _shown((peers.peer_host, peers.peer_port))),
            ("nodes", ", ".join(str(node.node_id) for node in broker.neighbours.alive())),
        ]
    lines = [f"Headwater {version('headwater')}", *(f"  {name:<15}{value}" for name, value in facts)]
    return "\n".join([*lines, f"  {'try':<15}headwater produce{bootstrap} greetings hello"])


def _shown(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _explain_start(error: Exception, config: "BrokerConfig") -> Exception:
    """A start that failed for a reason outside of the program becomes advice; anything else stays what it is."""
    from headwater.broker.cluster.node_session import NodeIdInUse
    from headwater.metadata.connect import BadMetadataUrl
    from headwater.metadata.store import Unavailable
    from headwater.model.replica import StoreError
    from headwater.storage.files import DirectoryInUse

    if isinstance(error, DirectoryInUse):
        return Problem(
            f"Another broker uses the data in {config.data_dir}.", "Stop it, or choose another directory with --data."
        )
    if isinstance(error, NodeIdInUse):
        return Problem(f"The cluster has this node already: {error}.")
    if isinstance(error, StoreError):
        return Problem(f"The data in {config.data_dir} cannot be used: {error}.", "Check the disk.")
    if isinstance(error, BadMetadataUrl):
        return Problem(f"The setting metadata is wrong: {error}.", exit_code=2)
    if isinstance(error, Unavailable):
        return Problem(f"The metadata store cannot be used: {error}.", "Check the setting metadata, and that store.")
    if not isinstance(error, OSError):
        return error
    if error.errno == errno.ENOSPC:
        return Problem(f"The disk of {config.data_dir} is full.", "Make room, then start again: nothing is lost.")
    if error.filename is not None:
        return Problem(f"Cannot use {error.filename}: {error.strerror}.", "Choose another directory with --data.")
    return _explain_address(error, *_listened(error, config))


def _explain_gateway(error: OSError | ValueError, config: "BrokerConfig") -> Problem:
    if isinstance(error, OSError):
        return _explain_address(error, config.http, "--http, or do without (--http off)")
    return Problem(f"http_token_file: {error}.", exit_code=2)


def _explain_address(error: OSError, address: object, option: str) -> Problem:
    if error.errno == errno.EADDRINUSE:
        return Problem(
            f"Another program listens on {address}.",
            f"It may be a broker that runs already. Stop it, or choose another port with {option}.",
        )
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return Problem(f"{address} is not an address of this machine.", f"Choose one with {option}.")
    return Problem(f"Cannot listen on {address}: {error.strerror or error}.", f"Choose another with {option}.")


def _listened(error: OSError, config: "BrokerConfig") -> tuple[object, str]:
    """Which address it was about: asyncio says it in the message only."""
    peer = config.peer_listen
    if peer is not None and peer != config.listen and str(tuple(peer)) in str(error):
        return peer, "--peer-listen"
    return config.listen, "--listen"
