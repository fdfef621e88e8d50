"""What a broker tells at its metrics address, and the Kafka protocol has no request for."""

import json
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import typer

from headwater.cli.brokers import REQUEST_TIMEOUT_S
from headwater.cli.output import CommandFailed

DEFAULT_METRICS: Final = "127.0.0.1:9644"
MAX_PAGE_BYTES: Final = 64 * 1024 * 1024

Metrics = Annotated[str, typer.Option("--metrics", metavar="HOST:PORT", help="Where the broker shows its metrics.")]
T = TypeVar("T")


def read_page(metrics: str, page: str, read: Callable[[Any], T], token: bytes | None = None) -> T:
    """What `read` makes of a page in JSON. Raises CommandFailed."""
    import urllib.request

    headers = {"Authorization": f"Bearer {token.decode()}"} if token is not None else {}
    # Proxies that the environment names are for websites, not for a broker's port.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(f"http://{metrics}{page}", headers=headers)
        with opener.open(request, timeout=REQUEST_TIMEOUT_S) as answer:
            return read(json.loads(answer.read(MAX_PAGE_BYTES)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandFailed(
            f"The broker's metrics at {metrics} cannot be read: {error}.",
            "Give the address of `headwater serve --metrics HOST:PORT` with --metrics.",
        ) from error
