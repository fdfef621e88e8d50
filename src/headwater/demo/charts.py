"""Charts as SVG in a page: lines over time, and bars. No library, no script, nothing to fetch."""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 560, 220
LEFT, RIGHT, TOP, BOTTOM = 58, 20, 46, 30
BARS_TOP = 34
COLOURS = ("#1f6f8b", "#d9822b", "#7a5195", "#488f31")
BAR_HEIGHT, BAR_GAP, LABEL_WIDTH = 22, 8, 130
MOST_TICKS = 5

Point = tuple[float, float]


def line_chart(title: str, series: Mapping[str, Sequence[Point]]) -> str:
    """x is seconds. Each series has a name, which the legend shows."""
    points = [point for each in series.values() for point in each]
    right_x = max((x for x, _ in points), default=0.0) or 1.0
    ticks = round_ticks(max((y for _, y in points), default=0.0))
    top_y = ticks[-1]

    def coordinates(point: Point) -> str:
        x = LEFT + point[0] / right_x * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - point[1] / top_y * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = [_title(title)]
    for value in ticks:
        y = HEIGHT - BOTTOM - value / top_y * (HEIGHT - TOP - BOTTOM)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="end">{shown(value)}</text>')
    for time_s in round_ticks(right_x):
        if time_s <= right_x:  # the line ends where the run did, not at a round number
            x = LEFT + time_s / right_x * (WIDTH - LEFT - RIGHT)
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 10}" class="middle">{shown(time_s)} s</text>')
    legend_x = LEFT
    for colour, (name, each) in zip(COLOURS, series.items(), strict=False):
        if len(each) == 1:  # a line of one point is none
            at_x, _, at_y = coordinates(each[0]).partition(",")
            parts.append(f'<circle cx="{at_x}" cy="{at_y}" r="3" fill="{colour}"/>')
        elif each:
            path = " ".join(map(coordinates, each))
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<rect x="{legend_x}" y="{TOP - 21}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{legend_x + 14}" y="{TOP - 12}">{escape(name)}</text>')
        legend_x += 28 + 7 * len(name)
    return _svg(HEIGHT, parts, title)


def bar_chart(title: str, bars: Sequence[tuple[str, float]], unit: str = "") -> str:
    """Bars from left to right, one below the other, in the order given."""
    widest = max((value for _, value in bars), default=0.0) or 1.0
    space = WIDTH - LABEL_WIDTH - RIGHT - 90
    parts = [_title(title)]
    for index, (name, value) in enumerate(bars):
        y = BARS_TOP + index * (BAR_HEIGHT + BAR_GAP)
        width = max(1.0, value / widest * space)
        parts.append(f'<text x="{LABEL_WIDTH - 8}" y="{y + 15}" class="end">{escape(name)}</text>')
        bar = f'x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2" fill="{COLOURS[0]}"'
        parts.append(f"<rect {bar}/>")
        parts.append(f'<text x="{LABEL_WIDTH + width + 6:.1f}" y="{y + 15}">{shown(value)}{escape(unit)}</text>')
    return _svg(BARS_TOP + max(1, len(bars)) * (BAR_HEIGHT + BAR_GAP) + 4, parts, title)


def round_ticks(most: float) -> list[float]:
    """From 0 in equal steps of 1, 2 or 5 times a power of ten, the last one not below `most`."""
    if most <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(most / MOST_TICKS))
    step = next(each * power for each in (1, 2, 5, 10) if most <= each * power * MOST_TICKS)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _title(title: str) -> str:
    return f'<text x="0" y="14" class="title">{escape(title)}</text>'


def _svg(height: int, parts: Sequence[str], title: str) -> str:
    opening = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
    return opening + "".join(parts) + "</svg>"
