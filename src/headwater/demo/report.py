"""The report of a run: one HTML file that needs nothing else."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from headwater.demo.charts import bar_chart, line_chart
from headwater.demo.figures import Figures

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em; color: #1c2b33; }
h1 { font-weight: 600; } .facts { display: flex; flex-wrap: wrap; gap: 1em; padding: 0; list-style: none; }
.facts li { background: #eef4f6; border-radius: 6px; padding: .6em 1em; } .facts b { display: block; font-size: 1.5em; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1.5em; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: #1c2b33; }
svg .title { font-size: 14px; font-weight: 600; } svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: #d5dfe3; }
table { border-collapse: collapse; } td, th { padding: .2em 1em .2em 0; text-align: left; }
@media (prefers-color-scheme: dark) { body { background: #12191d; color: #dfe8ec; } svg text { fill: #dfe8ec; }
  .facts li { background: #1f2b31; } svg .grid { stroke: #2c3a41; } }
"""


FLAG_HEAD = "<tr><th>card</th><th>orders</th><th>countries</th><th>total</th><th>because of</th></tr>"


def report(history: Sequence[Figures], versions: str) -> str:
    """Raises nothing for a run that was cut short: what is not there is not drawn."""
    last = history[-1]
    results = last.results
    figures = [
        (f"{last.clicks:,}", "clicks"),
        (f"{last.orders:,}", "orders sent"),
        (f"{results.orders:,}", "orders counted by Spark"),
        (f"{results.revenue:,.2f} €", "revenue"),
        (f"{last.packed.orders:,}", "orders packed by the queue's workers"),
        (f"{last.packed.given_back:,}", "attempts given back"),
        (f"{last.dead_letters:,}", "dead letters"),
    ]
    flags = "".join(
        f"<tr><td>{escape(card)}</td><td>{orders}</td><td>{countries}</td><td>{total:,.2f} €</td>"
        f"<td>{escape(reasons)}</td></tr>"
        for card, orders, countries, total, reasons in results.flags
    )
    lags = [(each.at_s, float(each.lag)) for each in history if each.lag is not None]
    charts = [
        line_chart("Events a second", {"clicks": _rates(history, "clicks"), "orders": _rates(history, "orders")}),
        line_chart("Records that Spark has not read yet", {"lag": lags}),
        bar_chart("Revenue by the minute", [(minute.minute, minute.revenue) for minute in results.minutes], " €"),
        bar_chart("Top products by revenue", [(name, revenue) for name, _, revenue in results.top_products], " €"),
        bar_chart("From a look to an order, in sessions", [(name, float(count)) for name, count in results.funnel]),
        line_chart(
            "The queue of orders",
            {
                "waiting": [(each.at_s, float(each.queue_depth)) for each in history],
                "dead letters": [(each.at_s, float(each.dead_letters)) for each in history],
            },
        ),
    ]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Headwater demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>
<h1>A shop on Headwater, for {last.at_s:.0f} seconds</h1>
<p>{escape(_verdict(last))}</p>
<ul class="facts">{"".join(f"<li><b>{escape(number)}</b>{escape(what)}</li>" for number, what in figures)}</ul>
<div class="charts">{"".join(f"<div>{chart}</div>" for chart in charts)}</div>
<h2>Cards that look stolen</h2>
{f"<table>{FLAG_HEAD}{flags}</table>" if flags else "<p>No card has passed a limit.</p>"}
<p>{escape(versions)}</p>
</body></html>
"""


def _verdict(last: Figures) -> str:
    if last.is_worked_off:
        return (
            f"All {last.orders:,} orders that were sent have been counted by Spark, and each was packed by one of the "
            "queue's workers or is among the dead letters."
        )
    if not last.queries:
        return "The run ended before Spark had started."
    return "The run was stopped before everything that was sent had been counted and packed."


def _rates(history: Sequence[Figures], name: str) -> list[tuple[float, float]]:
    found = []
    for before, now in pairwise(history):
        span_s = now.at_s - before.at_s
        if span_s > 0:
            found.append((now.at_s, (getattr(now, name) - getattr(before, name)) / span_s))
    return found
