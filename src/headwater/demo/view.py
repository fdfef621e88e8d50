"""The demo on a terminal: one screen that is drawn again every second. In a log, a line from time to time."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headwater.demo.figures import Figures, rates

LINE_EVERY_S = 5.0
LAST_MINUTES = 5
BAR_CHARS = 24

Show = Callable[[str, Sequence[Figures]], None]


@contextmanager
def demo_view(bootstrap: str) -> Iterator[Show]:
    """What to call with the phase of the demo, and all figures so far."""
    if not sys.stdout.isatty():
        yield _lines()
        return
    console = Console()
    with Live(console=console, auto_refresh=False, transient=False) as live:
        yield lambda phase, history: live.update(screen(bootstrap, phase, history), refresh=True)


def screen(bootstrap: str, phase: str, history: Sequence[Figures]) -> RenderableType:
    if not history:
        return Text(phase)
    now = history[-1]
    clicks_per_s, orders_per_s = rates(history)
    title = Text.assemble(
        ("Headwater demo", "bold"), f"  {phase}  ", (f"{now.at_s:.0f} s", "bold"), f"  broker {bootstrap}"
    )
    traffic = _pairs(
        ("clicks/s", f"{clicks_per_s:,.0f}"),
        ("orders/s", f"{orders_per_s:,.1f}"),
        ("clicks", f"{now.clicks:,}"),
        ("orders", f"{now.orders:,}"),
    )
    queue = _pairs(
        ("waiting", f"{now.queue_depth:,}"),
        ("packed", f"{now.packed.orders:,}"),
        ("given back", f"{now.packed.given_back:,}"),
        ("dead letters", f"{now.dead_letters:,}"),
    )
    return Group(
        title,
        Columns(
            [
                Panel(traffic, title="topics", width=28),
                Panel(queue, title="queue of orders", width=28),
                Panel(_revenue(now), title="revenue by the minute", width=42),
            ]
        ),
        Columns(
            [
                Panel(_bars((name, revenue, " €") for name, _, revenue in now.results.top_products),
                      title="top products", width=57),
                Panel(_bars((name, float(count), "") for name, count in now.results.funnel),
                      title="sessions that …", width=57),
            ]
        ),
        Panel(_queries(now), title="Spark", width=100),
    )  # fmt: skip


def _pairs(*pairs: tuple[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right", style="bold")
    for pair in pairs:
        table.add_row(*pair)
    return table


def _revenue(now: Figures) -> RenderableType:
    if not now.results.minutes:
        return Text("…")
    rows = [
        (minute.minute[-5:], f"{minute.orders:,} orders", f"{minute.revenue:,.2f} €")
        for minute in now.results.minutes[-LAST_MINUTES:]
    ]
    table = Table.grid(padding=(0, 2))
    table.add_column()
    for _ in range(2):
        table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _bars(bars: Iterable[tuple[str, float, str]]) -> RenderableType:
    rows = list(bars)
    widest = max((value for _, value, _ in rows), default=0.0)
    if not widest:
        return Text("…")
    table = Table.grid(padding=(0, 1))
    for name, value, unit in rows:
        table.add_row(name, Text("█" * max(1, round(value / widest * BAR_CHARS)), style="cyan"), f"{value:,.0f}{unit}")
    return table


def _queries(now: Figures) -> RenderableType:
    if not now.queries:
        return Text("starting …")
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(("query", "batch", "rows", "rows/s", "lag", "batch ms")):
        table.add_column(name, justify="right" if index else "left")
    for query in now.queries:
        cells = (query.batch, query.rows, query.rows_per_s, query.lag, query.batch_ms)
        shown = ("-" if cell is None or query.batch is None else f"{cell:,}" for cell in cells)
        table.add_row(query.query, *shown)
    return table


def _lines() -> Show:
    said_s = float("-inf")
    said_phase = ""

    def show(phase: str, history: Sequence[Figures]) -> None:
        nonlocal said_s, said_phase
        if phase != said_phase:
            sys.stdout.write(f"{phase}\n")
            said_phase = phase
        if history and history[-1].at_s - said_s >= LINE_EVERY_S:
            now = history[-1]
            said_s = now.at_s
            sys.stdout.write(f"{summary(now)}\n")
        sys.stdout.flush()

    return show


def summary(now: Figures) -> str:
    lag = "Spark starts" if not now.queries else f"lag {now.lag}" if now.lag is not None else "Spark reads"
    return (
        f"{now.at_s:4.0f} s: {now.clicks:,} clicks, {now.orders:,} orders, {lag}, counted {now.results.orders:,} "
        f"orders and {now.results.revenue:,.2f} €, packed {now.packed.orders:,}, waiting {now.queue_depth:,}, "
        f"dead letters {now.dead_letters:,}"
    )
