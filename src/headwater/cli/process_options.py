"""What `headwater serve` and `headwater gateway` have in common: options for logs, and the setup of their process."""

from typing import Annotated

import typer

from headwater.cli.output import CommandFailed

LogLevel = Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log JSON, one object a line.")]


def prepare_process(log_level: str, as_json: bool) -> None:
    """Call it before the broker or the gateway is imported: it turns garbage collection off, which importing would set
    off again and again. Raises CommandFailed."""
    from headwater.cli.runtime import tune_interpreter
    from headwater.logs.formats import LEVELS, start_logging

    if log_level not in LEVELS:
        raise CommandFailed(f"--log-level {log_level!r} is unknown.", f"Use one of: {', '.join(LEVELS)}.", exit_code=2)
    tune_interpreter()
    start_logging(log_level, as_json=as_json)
