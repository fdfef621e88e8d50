"""The `headwater` command: one file per noun, each imported when it is called.

A command that cannot do its work says so in one or two sentences on stderr and exits with 1 (2 for a mistake in the
command line); people never see a traceback for what they can repair themselves.
"""

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headwater.cli.output import CommandFailed, note, say

MODULES = {
    "serve": "serve",
    "security": "security.commands",
    "topic": "topic",
    "subscription": "subscription",
    "queue": "queue",
    "group": "group",
    "transaction": "transaction",
    "produce": "produce",
    "consume": "consume",
    "pipeline": "pipeline.commands",
    "cluster": "cluster.commands",
    "gateway": "gateway",
    "user": "user",
    "acl": "acl",
    "quota": "quota",
    "audit": "audit",
}
"""Each noun, in the order of the help, with the module under `headwater.cli` that has its commands."""
EXIT_BROKEN_PIPE = 128 + 13


class Commands(TyperGroup):
    def list_commands(self, context: Any) -> list[str]:
        return list(MODULES)

    def get_command(self, context: Any, name: str) -> Any:
        if name not in MODULES:
            return None
        command = typer.main.get_command(import_module(f"headwater.cli.{MODULES[name]}").app)
        command.name = name
        return command

    def invoke(self, context: Any) -> Any:
        try:
            result = super().invoke(context)
            sys.stdout.flush()
            return result
        except CommandFailed as problem:
            note(f"headwater: {problem}")
            raise typer.Exit(problem.exit_code) from problem
        except BrokenPipeError:
            # The reader of our pipe is gone (`| head`). What is still buffered must not be written at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_BROKEN_PIPE) from None


app = typer.Typer(
    cls=Commands,
    name="headwater",
    help="A durable message log that speaks the Kafka protocol.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked_for: bool) -> None:
    if is_asked_for:
        from importlib.metadata import version

        say(f"headwater {version('headwater')}")
        raise typer.Exit()


@app.callback()
def headwater(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


if __name__ == "__main__":
    app()
