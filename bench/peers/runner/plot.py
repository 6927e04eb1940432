"""An SVG bar chart: a panel for each scenario, with the median and the min–max spread of the rounds. Independent of any queue."""

from html import escape
from statistics import median

from .contestants import SYMPHONY
from .report import RATES, TITLES, keys

WIDTH, LABEL, FIGURE = 760, 190, 110
BAR, GAP, HEAD = 18, 8, 46

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 }
  .bar { fill: #a8b3bf }
  .own { fill: #0969da }
  .spread { stroke: #1f2328; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .bar { fill: #57606a }
    .own { fill: #4493f8 }
    .spread { stroke: #e6edf3 }
  }
"""


def svg(report):
    """The whole chart as SVG."""
    parts, top = [], 0
    for scenario, title in TITLES.items():
        for key, name in keys(scenario).items():
            bars = [(one.name, list(report.values(scenario, one.name, key=key).values())) for one in report.contestants]
            bars = [(name, values) for name, values in bars if values]
            if bars:
                heading = title if key in RATES else f"{name}, milliseconds: lower is better".capitalize()
                panel, height = _panel(heading, bars, key, top)
                parts.append(panel)
                top += height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img" aria-label="Symphony compared with its peers">'
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(title, bars, key, top):
    bar_width = WIDTH - LABEL - FIGURE
    largest = max(max(values) for _, values in bars)
    lines = [f'<text class="title" x="0" y="{top + 28}">{escape(title)}</text>']
    y = top + HEAD
    for name, values in sorted(bars, key=lambda bar: median(bar[1]), reverse=not key.endswith("_ms")):
        position = lambda value: LABEL + bar_width * value / largest
        middle, end = y + BAR / 2, position(median(values))
        kind = "own" if name == SYMPHONY else "bar"
        figure = f"{median(values):.2f} ms" if key.endswith("_ms") else f"{median(values):,.0f}"
        lines.append(f'<text x="{LABEL - 10}" y="{middle + 4.5}" text-anchor="end">{escape(name)}</text>')
        lines.append(f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{end - LABEL:.1f}" height="{BAR}"/>')
        if len(values) > 1:
            lines.append(f'<line class="spread" x1="{position(min(values)):.1f}" x2="{position(max(values)):.1f}" y1="{middle}" y2="{middle}"/>')
        lines.append(f'<text x="{position(max(values)) + 8:.1f}" y="{middle + 4.5}">{figure}</text>')
        y += BAR + GAP
    return "\n".join(lines), y - top + GAP
