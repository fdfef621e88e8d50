"""`headwater gateway`: HTTP beside a cluster, in a process of its own, until it is asked to stop."""

import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.bootstrap import NoBroker, check_bootstrap
from headwater.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from headwater.cli.output import Problem, say

DEFAULT_HTTP = "127.0.0.1:8080"

app = typer.Typer(add_completion=False)


@app.command()
def gateway(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
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
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log JSON, one object a line.")] = False,
) -> None:
    """Serve HTTP beside a cluster: REST, push, schema registry and console."""
    from headwater.broker.settings.setting import Address, ConfigError
    from headwater.cli.logs import LEVELS, start_logging
    from headwater.cli.runtime import new_event_loop, settle_garbage_collector, tune_interpreter
    from headwater.gateway.config import GatewayConfig
    from headwater.gateway.http.security import BadToken
    from headwater.gateway.server import GatewayThread, listen

    if log_level not in LEVELS:
        raise Problem(f"--log-level {log_level!r} is unknown.", f"Use one of: {', '.join(LEVELS)}.", exit_code=2)
    tune_interpreter()
    start_logging(log_level, as_json=log_json)
    try:
        host, port = Address.parse(http)
    except ConfigError as error:
        raise Problem(f"--http {http!r}: {error}.", exit_code=2) from error
    with suppress(NoBroker):  # the gateway waits for one
        check_bootstrap(bootstrap)
    settings = GatewayConfig(
        bootstrap=bootstrap,
        host=host,
        port=port,
        broker_pages=metrics,
        token_file=token_file,
        allowed_hosts=tuple(allow_host),
        private_webhooks=private_webhooks,
    )
    try:
        running = GatewayThread(settings, listen(settings), new_event_loop)
    except OSError as error:
        raise Problem(f"Cannot listen on {http}: {error.strerror or error}.", "Choose another with --http.") from error
    stop_asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop_asked.set())
    running.start()
    try:
        running.wait_until_ready()
        say(f"Headwater gateway of {bootstrap}\n  {'http':<15}http://{Address(running.host, running.port)}")
        sys.stdout.flush()
        settle_garbage_collector()
        stop_asked.wait()
    except BadToken as error:
        raise Problem(f"--token-file: {error}.", exit_code=2) from error
    finally:
        running.stop()
