"""Draws the figures of compare.py as SVG.

Plain bars need no library. Text stays text, so the files are small and in the
reader's own font; the same figures give the same file.
"""

import dataclasses
import math
import pathlib
from xml.sax.saxutils import escape

# Okabe and Ito's colours: told apart with any kind of colour vision.
COLOURS = {
    "lkv": "#000000",
    "llama.cpp": "#0072b2",
    "openvino": "#e69f00",
    "openvino-evicting": "#f0e442",
    "ik_llama.cpp": "#009e73",
    "lkv-full": "#999999",
}
GREY = "#555555"

WIDTH = 900
HEIGHT = 340
TOP = 60  # of the bars, below legend and titles
BOTTOM = 290  # of the bars, above the rows' names
LEFT = 70  # of the first panel: its numbers and what they are
GAP = 60  # between panels


@dataclasses.dataclass(frozen=True)
class Bar:
    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Panel:
    """Bars by tool, side by side above each row's name."""

    title: str
    names: list[str]  # of the rows
    bars: dict[str, list[Bar | None]]  # by tool: one per row


def ratios_panel(rows: list[dict]) -> Panel:
    def bar(figure: dict | None) -> Bar | None:
        return figure and Bar(
            figure["ratio_median"], figure["ratio_min"], figure["ratio_max"]
        )

    return Panel(
        "",
        [row["name"] for row in rows],
        {
            tool: [bar(row["peers"].get(tool)) for row in rows]
            for tool in _tools_of(rows)
        },
    )


def speeds_panel(rows: list[dict], kind: str) -> Panel:
    """Medians only: speeds of different pairs are not comparable."""

    def bar(value: float | None) -> Bar | None:
        return value and Bar(value, value, value)

    rows = [row for row in rows if row["kind"] == kind]
    bars = {"lkv": [bar(row["lkv_tokens_per_second"]) for row in rows]}
    for tool in _tools_of(rows):
        bars[tool] = [
            bar(row["peers"].get(tool, {}).get("peer_tokens_per_second"))
            for row in rows
        ]
    return Panel(kind, [row["name"] for row in rows], bars)


def draw_plots(result: dict, folder: pathlib.Path) -> list[str]:
    """Writes ratios.svg and speeds.svg; returns the names of the files."""
    rows = [row for row in result["rows"] if row["peers"]]
    speeds = [speeds_panel(rows, kind) for kind in ("decode", "prefill")]
    figures = {
        "ratios.svg": figure(
            [ratios_panel(rows)], "speed of lkv / speed of the other", line=1
        ),
        "speeds.svg": figure(
            [panel for panel in speeds if panel.names], "tokens per second"
        ),
    }
    for name, text in figures.items():
        (folder / name).write_text(text)
    return list(figures)


def figure(panels: list[Panel], unit: str, line: float | None = None) -> str:
    """The whole file; `line`: a value to draw a line at."""
    tools = dict.fromkeys(tool for panel in panels for tool in panel.bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}"'
        f' height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        # Pages may be dark.
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_legend(list(tools)),
        f'<text transform="translate(16 {(TOP + BOTTOM) // 2}) rotate(-90)"'
        f' text-anchor="middle">{escape(unit)}</text>',
    ]
    # Every row is as wide, in whichever panel.
    n_rows = sum(len(panel.names) for panel in panels)
    free = WIDTH - LEFT - GAP * (len(panels) - 1) - 20
    left = LEFT
    for panel in panels:
        width = free * len(panel.names) / max(n_rows, 1)
        parts += _draw_panel(panel, left, width, line)
        left += width + GAP
    return "\n".join([*parts, "</svg>"]) + "\n"


def axis_step(top: float) -> float:
    """The smallest of 1, 2, 5, 10, ... that needs at most six steps to top."""
    power = 10 ** math.floor(math.log10(top / 6))
    for factor in (1, 2, 5):
        if factor * power * 6 >= top:
            return factor * power
    return 10 * power


def _tools_of(rows: list[dict]) -> list[str]:
    return list(dict.fromkeys(peer for row in rows for peer in row["peers"]))


def _legend(tools: list[str]) -> list[str]:
    parts = []
    width = 140
    left = (WIDTH - width * len(tools)) / 2
    for i, tool in enumerate(tools):
        x = left + i * width
        parts += [
            f'<rect x="{x:.1f}" y="10" width="12" height="12"'
            f' fill="{COLOURS[tool]}"/>',
            _text(x + 17, 20, tool, "start"),
        ]
    return parts


def _draw_panel(
    panel: Panel, left: float, width: float, line: float | None
) -> list[str]:
    bars = [bar for tool in panel.bars.values() for bar in tool if bar]
    top = max([bar.high for bar in bars] + [line or 0]) or 1

    def y(value: float) -> float:
        return BOTTOM - value / top * (BOTTOM - TOP)

    right = left + width
    parts = [_text(left + width / 2, TOP - 12, panel.title, "middle")]
    step = axis_step(top)
    for i in range(math.floor(top / step) + 1):
        parts += [
            _line(left - 4, y(i * step), left, y(i * step)),
            _text(left - 7, y(i * step) + 4, f"{i * step:g}", "end"),
        ]
    place = width / max(len(panel.names), 1)
    for i, name in enumerate(panel.names):
        shown = {tool: row[i] for tool, row in panel.bars.items() if row[i]}
        bar_width = 0.8 * place / max(len(panel.bars), 1)
        x = left + place * (i + 0.5) - bar_width * len(shown) / 2
        for tool, bar in shown.items():
            parts.append(
                f'<rect x="{x + 0.05 * bar_width:.1f}" y="{y(bar.value):.1f}"'
                f' width="{0.9 * bar_width:.1f}"'
                f' height="{BOTTOM - y(bar.value):.1f}"'
                f' fill="{COLOURS[tool]}"/>'
            )
            if bar.low < bar.high:
                middle = x + bar_width / 2
                parts.append(_line(middle, y(bar.low), middle, y(bar.high)))
                for end in (bar.low, bar.high):
                    parts.append(_line(middle - 3, y(end), middle + 3, y(end)))
            x += bar_width
        # `decode-8192-25%` is too long for one line.
        for number, part in enumerate(name.split("-", 1)):
            center = left + place * (i + 0.5)
            parts.append(_text(center, BOTTOM + 17 + 15 * number, part))
    if line is not None:
        parts.append(_line(left, y(line), right, y(line)))
    parts.append(_line(left, TOP, left, BOTTOM))
    parts.append(_line(left, BOTTOM, right, BOTTOM))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{GREY}"'
        ' fill="none"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )
