"""How a running pipeline looks: a live table on a terminal, a line from time to time in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.output import note, size

if TYPE_CHECKING:
    from headwater.pipelines.run.progress import QueryProgress, RunStatus

LINE_EVERY_S = 10.0
REFRESHES_PER_S = 4
COLUMNS = ("sink", "batch", "rows", "in/s", "out/s", "lag", "batch ms", "state", "restarts")


@dataclass(frozen=True, slots=True)
class PipelineView:
    show: "Callable[[RunStatus], None]"
    emit: Callable[[str], None]
    """Writes a line of the result above the table."""


@contextmanager
def progress_view() -> Iterator[PipelineView]:
    """On stderr; results stay alone on stdout."""
    if sys.stderr.isatty():
        with _live_table() as view:
            yield view
    else:
        yield PipelineView(_lines(time.monotonic), _to_stdout)


def query_cells(query: "QueryProgress") -> tuple[object, ...]:
    return (
        query.query,
        query.batch,
        query.rows if query.batch is not None else None,
        query.rows_per_s,
        query.processed_per_s,
        query.lag,
        query.batch_ms,
        f"{query.state_rows} rows, {size(query.state_bytes)}" if query.state_rows else None,
        query.restarts or None,
    )


@contextmanager
def _live_table() -> Iterator[PipelineView]:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def table(status: "RunStatus") -> Table:
        drawn = Table(box=None, pad_edge=False)
        for index, name in enumerate(COLUMNS):
            drawn.add_column(name, justify="right" if index else "left", header_style="bold")
        for query in status.queries:
            drawn.add_row(*(Text("-" if cell is None else _grouped(cell)) for cell in query_cells(query)))
        return drawn

    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=REFRESHES_PER_S, redirect_stdout=False) as live:

        def emit_above(line: str) -> None:
            live.console.print(Text(line), soft_wrap=True)

        yield PipelineView(lambda status: live.update(table(status)), emit_above if sys.stdout.isatty() else _to_stdout)


def _lines(now: Callable[[], float]) -> "Callable[[RunStatus], None]":
    said_s = float("-inf")

    def show(status: "RunStatus") -> None:
        nonlocal said_s
        is_over = status.state != "running"
        begun = [query for query in status.queries if query.batch is not None]
        if not begun or (now() - said_s < LINE_EVERY_S and not is_over):
            return
        said_s = now()
        for query in begun:
            figures = [f"batch {query.batch}", f"{query.rows} rows"]
            figures += [f"{query.rows_per_s:g}/s"] if query.rows_per_s is not None else []
            figures += [f"lag {query.lag}"] if query.lag is not None else []
            figures += [f"{query.batch_ms} ms"] if query.batch_ms is not None else []
            note(f"{query.query}: {', '.join(figures)}")

    return show


def _to_stdout(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _grouped(cell: Any) -> str:
    return f"{cell:,}" if isinstance(cell, int | float) else str(cell)
