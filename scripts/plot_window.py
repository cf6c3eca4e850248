#!/usr/bin/env python3
"""plot_window.py FILE... -o IMAGE.svg: draws what `lkv bench window` measured.

Each FILE is what `lkv bench window --json` printed. Every text gets a panel:
above, the window that each law wants; below, the change of the attention
pattern that moves it, with the threshold. Vertical lines are the marks.
Colours follow the reader's light or dark scheme.
"""

import argparse
import html
import json
import pathlib
import sys

WIDTH = 760
LEFT, RIGHT = 64, 16
WINDOW_HEIGHT, CHANGE_HEIGHT = 170, 70
TITLE_HEIGHT, GAP, FOOT = 44, 14, 40
PANEL_HEIGHT = TITLE_HEIGHT + WINDOW_HEIGHT + GAP + CHANGE_HEIGHT + FOOT

STYLE = """
text { font: 12px sans-serif; fill: #24292f; }
.title { font-weight: bold; }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.frame { fill: none; stroke: #8c959f; }
.grid { stroke: #8c959f; stroke-opacity: 0.25; }
.level { stroke: #8c959f; stroke-dasharray: 5 4; }
.mark { stroke: #cf222e; stroke-dasharray: 2 3; }
.symmetric, .source, .change { fill: none; stroke-width: 2; }
.symmetric { stroke: #0969da; }
.source { stroke: #bc4c00; }
.change { stroke: #57606a; stroke-width: 1.2; }
@media (prefers-color-scheme: dark) {
  text { fill: #d0d7de; }
  .symmetric { stroke: #58a6ff; }
  .source { stroke: #f0883e; }
  .change { stroke: #adbac7; }
  .mark { stroke: #ff7b72; }
}
"""


def nice_step(most: float, most_lines: int) -> float:
    """A round distance of lines, at most so many of which reach `most` > 0."""
    if not most > 0:
        raise ValueError(f"an axis needs a length, {most} is none")
    unit = 1.0
    while unit > most:
        unit /= 10
    while unit * 10 <= most:
        unit *= 10
    for factor in (0.2, 0.5, 1, 2, 5):
        if most / (unit * factor) <= most_lines:
            return unit * factor
    raise AssertionError("a unit is at most ten times in its multiple")


class Axis:
    """Maps 0..most to pixels from `zero` on, `length` of them.

    Where all that is drawn is 0 the scale goes to 1.
    """

    def __init__(self, most: float, zero: float, length: float):
        self.most = most if most > 0 else 1.0
        self.zero = zero
        self.length = length

    def at(self, value: float) -> float:
        return self.zero + self.length * value / self.most

    def ticks(self) -> list[float]:
        # 35 pixels between lines are enough for their labels.
        step = nice_step(self.most, max(2, int(abs(self.length) / 35)))
        return [i * step for i in range(int(self.most / step) + 1)]


def step_path(x: Axis, y: Axis, values: list[float]) -> str:
    """A line that changes only where the values do."""
    parts = [f"M{x.at(0):.1f} {y.at(values[0]):.1f}"]
    for i in range(1, len(values)):
        if values[i] != values[i - 1]:
            parts.append(f"H{x.at(i):.1f}V{y.at(values[i]):.1f}")
    parts.append(f"H{x.at(len(values)):.1f}")
    return "".join(parts)


def line_path(x: Axis, y: Axis, values: list[float], every: int) -> str:
    points = [
        f"{x.at(i):.1f} {y.at(values[i]):.1f}"
        for i in range(0, len(values), every)
    ]
    return "M" + "L".join(points)


def text_at(x: float, y: float, css: str, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{css}">'
        f"{html.escape(text)}</text>"
    )


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        f' class="{css}"/>'
    )


def frame(x: Axis, y: Axis, label, level: float, name: str) -> list[str]:
    """A box with lines at the ticks of y and a dashed one at `level`."""
    left, right = x.at(0), x.at(x.most)
    out = [
        f'<rect x="{left:.1f}" y="{y.at(y.most):.1f}" width="{x.length}"'
        f' height="{-y.length}" class="frame"/>'
    ]
    for tick in y.ticks():
        out.append(line(left, y.at(tick), right, y.at(tick), "grid"))
        out.append(text_at(left - 6, y.at(tick) + 4, "end", label(tick)))
    out.append(line(left, y.at(level), right, y.at(level), "level"))
    out.append(text_at(right - 4, y.at(level) - 4, "end", name))
    return out


def panel(text: dict, marks: list[int], title: str, top: float) -> list[str]:
    curve = text["curve"]
    laws = list(curve[0]["window_tokens"])
    change = [row["change"] for row in curve]
    widest = max(max(row["window_tokens"].values()) for row in curve)
    window_zero = top + TITLE_HEIGHT + WINDOW_HEIGHT
    change_zero = window_zero + GAP + CHANGE_HEIGHT
    x = Axis(len(curve), LEFT, WIDTH - LEFT - RIGHT)
    y = Axis(1.08 * widest, window_zero, -WINDOW_HEIGHT)
    z = Axis(
        1.15 * max(max(change), text["change_threshold"]),
        change_zero,
        -CHANGE_HEIGHT,
    )
    out = [text_at(LEFT, top + 16, "title", title)]
    for i, law in enumerate(laws):
        at = LEFT + 130 * i
        out.append(line(at, top + 32, at + 22, top + 32, law))
        out.append(text_at(at + 28, top + 36, "", f"{law} law"))
    out += frame(
        x, y, lambda v: f"{v:,.0f}", text["base_window_tokens"], "base"
    )
    out += frame(
        x, z, lambda v: f"{v:.2g}", text["change_threshold"], "threshold"
    )
    for mark in marks:
        out.append(line(x.at(mark), y.at(y.most), x.at(mark), z.at(0), "mark"))
    for law in laws:
        values = [row["window_tokens"][law] for row in curve]
        out.append(f'<path d="{step_path(x, y, values)}" class="{law}"/>')
    every = max(1, len(change) // 512)
    out.append(f'<path d="{line_path(x, z, change, every)}" class="change"/>')
    for tick in x.ticks():
        out.append(
            text_at(x.at(tick), change_zero + 16, "middle", f"{tick:,.0f}")
        )
    out.append(
        text_at(
            x.at(x.most / 2),
            change_zero + 32,
            "middle",
            "above: window, tokens; below: change, nats; position in the text",
        )
    )
    return out


def draw(documents: list[dict], titles: list[str]) -> str:
    out = []
    for document in documents:
        for text in document["texts"]:
            marks = sorted(
                {
                    row["begin"]
                    for row in document["rows"]
                    if row["trace"] == text["trace"] and row["begin"] > 0
                }
            )
            n = len(out)
            title = (
                titles[n]
                if n < len(titles)
                else pathlib.PurePath(text["trace"]).stem
            )
            out.append(panel(text, marks, title, n * PANEL_HEIGHT))
    height = len(out) * PANEL_HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}"'
            f' height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{html.escape('The window along a text')}</title>",
            f"<style>{STYLE}</style>",
            *(element for elements in out for element in elements),
            "</svg>",
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("-o", "--output", required=True, type=pathlib.Path)
    parser.add_argument(
        "--title",
        action="append",
        default=[],
        help="of a panel, in order; default: the trace's name",
    )
    options = parser.parse_args()
    documents = []
    for path in options.files:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if not document["texts"] or "rows" not in document:
                raise KeyError
        except (OSError, ValueError, KeyError, TypeError):
            sys.exit(
                f"plot_window.py: {path}: is not what `lkv bench window"
                " --json` prints"
            )
        documents.append(document)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(draw(documents, options.title), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
