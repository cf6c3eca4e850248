#!/usr/bin/env python3
"""Draws the figures of compare.py as SVG; needs matplotlib.

Usage: plots.py RESULT.json; writes ratios.svg and speeds.svg beside it.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")

import matplotlib.patches  # noqa: E402  (after the choice of backend)
from matplotlib import pyplot  # noqa: E402

# Okabe and Ito's colours: told apart with any kind of colour vision.
COLOURS = {
    "lkv": "#000000",
    "llama.cpp": "#0072b2",
    "openvino": "#e69f00",
    "openvino-evicting": "#f0e442",
    "ik_llama.cpp": "#009e73",
    "lkv-full": "#999999",
}


def group_bars(axes, rows: list[dict], bars: dict[str, list]) -> None:
    """Bars by tool, side by side above each row's name.

    bars[tool][i] is (value, low, high) of rows[i], or None without a figure.
    """
    width = 0.8 / max(len(bars), 1)
    for i in range(len(rows)):
        shown = [tool for tool in bars if bars[tool][i] is not None]
        for position, tool in enumerate(shown):
            value, low, high = bars[tool][i]
            place = i + (position - (len(shown) - 1) / 2) * width
            axes.bar(place, value, width * 0.9, color=COLOURS[tool])
            if low < high:
                error = [[value - low], [high - value]]
                axes.errorbar(place, value, error, color="#555555", capsize=2)
    names = [row["name"].replace("-", "\n", 1) for row in rows]
    axes.set_xticks(range(len(rows)), names)
    axes.spines[["top", "right"]].set_visible(False)


def ratios_of(rows: list[dict]) -> dict[str, list]:
    tools = dict.fromkeys(peer for row in rows for peer in row["peers"])
    return {
        tool: [
            (
                (s["ratio_median"], s["ratio_min"], s["ratio_max"])
                if (s := row["peers"].get(tool))
                else None
            )
            for row in rows
        ]
        for tool in tools
    }


def speeds_of(rows: list[dict]) -> dict[str, list]:
    """Medians only: speeds of different pairs are not comparable."""

    def flat(value):
        return None if value is None else (value, value, value)

    tools = dict.fromkeys(peer for row in rows for peer in row["peers"])
    bars = {"lkv": [flat(row["lkv_tokens_per_second"]) for row in rows]}
    for tool in tools:
        bars[tool] = [
            flat(row["peers"].get(tool, {}).get("peer_tokens_per_second"))
            for row in rows
        ]
    return bars


def save(figure, tools: list[str], path: pathlib.Path) -> None:
    patches = [matplotlib.patches.Patch(color=COLOURS[t]) for t in tools]
    figure.legend(
        patches, tools, loc="outside upper center", ncols=6, frameon=False
    )
    # No date: the same figures give the same file.
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    result = pathlib.Path(sys.argv[1])
    directory = result.parent
    rows = json.loads(result.read_text())["rows"]
    pyplot.rcParams.update(
        # Text stays text: small files, and the reader's own font.
        {"svg.fonttype": "none", "svg.hashsalt": "lkv", "font.size": 9}
    )

    figure, axes = pyplot.subplots(figsize=(9, 3.6), layout="constrained")
    ratios = ratios_of(rows)
    group_bars(axes, rows, ratios)
    axes.axhline(1, color="#555555", linewidth=0.8)
    axes.set_ylabel("speed of lkv / speed of the other")
    save(figure, list(ratios), directory / "ratios.svg")

    figure, panels = pyplot.subplots(
        1, 2, figsize=(9, 3.6), layout="constrained"
    )
    for axes, kind in zip(panels, ("decode", "prefill")):
        chosen = [row for row in rows if row["kind"] == kind]
        group_bars(axes, chosen, speeds_of(chosen))
        axes.set_title(kind, fontsize="medium")
    panels[0].set_ylabel("tokens per second")
    save(figure, list(speeds_of(rows)), directory / "speeds.svg")


if __name__ == "__main__":
    main()
