"""The token that a broker's metrics address may ask for, as an option of commands that read there."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.output import CommandFailed

MetricsToken = Annotated[
    Path | None,
    typer.Option("--metrics-token-file", metavar="FILE", help="Holds the token that the metrics address asks for."),
]


def metrics_token(file: Path | None) -> bytes | None:
    """Raises CommandFailed."""
    if file is None:
        return None
    from headwater.transport.token_file import BadToken, read_token

    try:
        return read_token(file)
    except BadToken as error:
        raise CommandFailed(f"--metrics-token-file: {error}.", exit_code=2) from error
