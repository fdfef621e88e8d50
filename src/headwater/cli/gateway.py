"""`headwater gateway`: HTTP beside a cluster, in a separate process, until it is asked to stop."""

import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.bootstrap import NoBroker, check_brokers
from headwater.cli.brokers import Bootstrap, ClientFile, brokers_of
from headwater.cli.metrics_token import MetricsToken, metrics_token
from headwater.cli.output import CommandFailed, say
from headwater.cli.process_options import LogJson, LogLevel, prepare_process

if TYPE_CHECKING:
    from headwater.gateway.config import GatewayConfig

DEFAULT_HTTP = "127.0.0.1:8080"

app = typer.Typer(add_completion=False)


@app.command()
def gateway(
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
    http: Annotated[str, typer.Option("--http", metavar="HOST:PORT", help="Where to listen.")] = DEFAULT_HTTP,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Holds a token that every request must bear.")
    ] = None,
    allow_host: Annotated[
        list[str], typer.Option("--allow-host", metavar="NAME", help="A name that clients may call it by; * is any.")
    ] = [],  # noqa: B006 (typer copies it)
    private_webhooks: Annotated[
        bool, typer.Option("--private-webhooks", help="Webhooks may be in private address ranges.")
    ] = False,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Where a broker shows its metrics and pages.")
    ] = None,
    metrics_token_file: MetricsToken = None,
    log_level: LogLevel = "info",
    log_json: LogJson = False,
) -> None:
    """Serve HTTP beside a cluster: REST, push, schema registry and console."""
    brokers = brokers_of(bootstrap, client_file)
    prepare_process(log_level, log_json)
    from headwater.broker.settings.setting import Address, ConfigError
    from headwater.gateway.config import GatewayConfig

    try:
        host, port = Address.parse(http)
    except ConfigError as error:
        raise CommandFailed(f"--http {http!r}: {error}.", exit_code=2) from error
    with suppress(NoBroker):  # the gateway waits for one
        check_brokers(brokers)
    _serve(
        GatewayConfig(
            bootstrap=brokers.bootstrap,
            security=brokers.security,
            host=host,
            port=port,
            broker_pages=metrics,
            broker_pages_token=metrics_token(metrics_token_file),
            token_file=token_file,
            allowed_hosts=tuple(allow_host),
            private_webhooks=private_webhooks,
        )
    )


def _serve(config: "GatewayConfig") -> None:
    """Until SIGTERM or SIGINT. Raises CommandFailed."""
    from headwater.broker.settings.setting import Address
    from headwater.cli.runtime import new_event_loop, tune_garbage_collector
    from headwater.gateway.server import GatewayThread, listen
    from headwater.transport.token_file import BadToken

    try:
        gateway = GatewayThread(config, listen(config), new_event_loop)
    except OSError as error:
        address = Address(config.host, config.port)
        raise CommandFailed(
            f"Cannot listen on {address}: {error.strerror or error}.", "Choose another with --http."
        ) from error
    stop_requested = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop_requested.set())
    gateway.start()
    try:
        gateway.wait_until_ready()
        say(f"Headwater gateway of {config.bootstrap}\n  {'http':<15}http://{Address(gateway.host, gateway.port)}")
        sys.stdout.flush()
        tune_garbage_collector()
        stop_requested.wait()
    except BadToken as error:
        raise CommandFailed(f"--token-file: {error}.", exit_code=2) from error
    finally:
        gateway.stop()
