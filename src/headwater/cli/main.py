"""The `headwater` command: one file per noun, joined here.

A command that cannot do its work says so in one or two sentences on stderr and exits with 1 (2 for a mistake in the
command line); people never see a traceback for what they can repair themselves.
"""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headwater.cli.consume import consume
from headwater.cli.group import app as group
from headwater.cli.output import Problem, note, say
from headwater.cli.produce import produce
from headwater.cli.serve import serve
from headwater.cli.topic import app as topic

EXIT_BROKEN_PIPE = 128 + 13


class Commands(TyperGroup):
    def invoke(self, context: Any) -> Any:
        try:
            result = super().invoke(context)
            sys.stdout.flush()
            return result
        except Problem as problem:
            note(f"headwater: {problem}")
            raise typer.Exit(problem.exit_code) from problem
        except BrokenPipeError:
            # The reader of our pipe has seen enough. Nothing may be written at exit either.
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
app.command()(serve)
app.add_typer(topic, name="topic")
app.add_typer(group, name="group")
app.command()(produce)
app.command()(consume)


def _print_version(wanted: bool) -> None:
    if wanted:
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
