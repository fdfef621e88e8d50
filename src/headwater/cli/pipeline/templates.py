"""`headwater pipeline ready`: the pipelines that come with Headwater, to read, to copy and to change."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.client import Json
from headwater.cli.output import CommandFailed, note, print_json, print_table, say


def ready(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Print this one.")] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Copy its files there, to change and run.")
    ] = None,
    json: Json = False,
) -> None:
    """List the pipelines that are ready to run; print or copy one."""
    from headwater.pipelines.templates.catalog import TemplateError, pipeline_template, pipeline_templates

    if name is None:
        if to is not None:
            raise CommandFailed(
                "--to needs the name of a pipeline.", "`headwater pipeline ready` lists them.", exit_code=2
            )
        rows = [{"pipeline": each.name, "summary": each.summary} for each in pipeline_templates()]
        if json:
            print_json(rows)
            return
        print_table(("pipeline", "what it does"), [tuple(row.values()) for row in rows])
        return
    try:
        pipeline = pipeline_template(name)
        if to is None:
            say(pipeline.text.rstrip())
            return
        files = pipeline.copy_to(to)
    except TemplateError as error:
        raise CommandFailed(str(error)) from error
    if json:
        print_json([str(file) for file in files])
        return
    for file in files:
        say(str(file))
    note(f"Change topics and columns to yours, then: headwater pipeline run {files[0]}")
