"""What the commands print: tables for people, JSON for machines, and problems that say what to do.

Results go to stdout and everything else to stderr, so that a command can stand in a pipe. A table is drawn with
lines only on a terminal; in a pipe it is plain columns, for `awk` and `grep`.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class CommandFailed(Exception):
    """Ends the command with a message for the person at the keyboard: what happened, why, and what to do."""

    def __init__(self, what: str, advice: str = "", exit_code: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.what} {self.advice}".strip()


def say(text: str) -> None:
    """Write one line of the result to stdout."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Write one line that is not part of the result to stderr."""
    sys.stderr.write(text + "\n")


def print_json(value: Any) -> None:
    say(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False, default=str))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "") -> None:
    """Numbers are aligned to the right. Without rows a terminal shows the text `empty`, and a pipe gets the head."""
    if not rows and empty and sys.stdout.isatty():
        note(empty)
        return
    numeric = [all(isinstance(row[n], int | float) for row in rows) and bool(rows) for n in range(len(columns))]
    cells = [[shown(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(columns, cells, numeric)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in ([name.upper() for name in columns], *cells):
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        say("  ".join(aligned).rstrip())


def confirm(question: str, yes: bool) -> None:
    """Ask before data is deleted. Without a terminal to ask on, `--yes` is required. Raises CommandFailed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailed(
            "This deletes data, and there is no terminal to ask for a confirmation.",
            "Repeat it with --yes.",
            exit_code=2,
        )
    import typer

    typer.confirm(question, abort=True, err=True)


def size(size_bytes: int | None) -> str:
    """For people: 1536 is 1.5 KiB; None, not known, is a dash."""
    if size_bytes is None:
        return "-"
    value = float(size_bytes)
    for unit in UNITS:
        if value < 1024 or unit == UNITS[-1]:
            break
        value /= 1024
    return f"{int(value)} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        # Text, not markup: names from outside may contain square brackets
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def shown(cell: object) -> str:
    """Names from outside may hold control characters, which must not reach a terminal."""
    text = "-" if cell is None else str(cell)
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
