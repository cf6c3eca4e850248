#!/usr/bin/env python3
"""Draws the figures of compare.py as SVG; needs matplotlib.

Usage: plots.py RESULT.json; writes ratios.svg and speeds.svg beside it.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot  # noqa: E402  (after the choice of backend)

# Okabe and Ito's colours: told apart with any kind of colour vision.
COLOURS = {
    "lkv": "#000000",
    "llama.cpp": "#0072b2",
    "openvino": "#e69f00",
    "openvino-evicting": "#f0e442",
    "ik_llama.cpp": "#009e73",
    "lkv-full": "#999999",
}


def group_bars(axes, rows: list[str], bars: dict[str, list]) -> None:
    """Bars by tool, side by side for each row.

    bars[tool][i] is (value, low, high) of rows[i], or None without a figure.
    """
    width = 0.8 / max(len(bars), 1)
    for position, (tool, figures) in enumerate(bars.items()):
        shown = [(i, f) for i, f in enumerate(figures) if f is not None]
        places = [i - 0.4 + (position + 0.5) * width for i, _ in shown]
        values = [f[0] for _, f in shown]
        lows = [f[0] - f[1] for _, f in shown]
        highs = [f[2] - f[0] for _, f in shown]
        axes.bar(
            places,
            values,
            width * 0.9,
            yerr=[lows, highs],
            label=tool,
            color=COLOURS[tool],
            ecolor="#555555",
            capsize=2,
        )
    axes.set_xticks(range(len(rows)), rows, rotation=20, ha="right")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=3)


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


def save(figure, path: pathlib.Path) -> None:
    figure.tight_layout()
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

    figure, axes = pyplot.subplots(figsize=(8, 3.6))
    group_bars(axes, [row["name"] for row in rows], ratios_of(rows))
    axes.axhline(1, color="#555555", linewidth=0.8)
    axes.set_ylabel("speed of lkv / speed of the other")
    save(figure, directory / "ratios.svg")

    figure, panels = pyplot.subplots(1, 2, figsize=(8, 3.6))
    for axes, kind in zip(panels, ("decode", "prefill")):
        chosen = [row for row in rows if row["kind"] == kind]
        group_bars(axes, [row["name"] for row in chosen], speeds_of(chosen))
        axes.set_ylabel("tokens per second")
    save(figure, directory / "speeds.svg")


if __name__ == "__main__":
    main()
