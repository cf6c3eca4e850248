"""Turns pairs into the rows of result.json, a table, and docs/benchmarks.md."""

import dataclasses
import pathlib

from measure import Skip
from pairs import Pair, summarize
from rows import Row, parse_row, works_of

# The part of benchmarks.md between these lines is written anew; the rest of
# the page is its authors'.
BEGIN = "<!-- compare.py writes from here -->"
END = "<!-- compare.py writes to here -->"

# Whose full cache a user would choose otherwise; a row's figure against "the
# faster peer" is the smaller ratio.
COMMON_PEERS = ("llama.cpp", "openvino")


def pairs_of(row: Row, pairs: list[Pair]) -> list[Pair]:
    """Those whose work yields the row."""
    work = works_of([row])[0].name
    return [
        pair for pair in pairs if pair.work == work and row.kind in pair.kinds
    ]


def summarize_row(row: Row, pairs: list[Pair], max_drift: float) -> dict:
    """A row of result.json: the row, lkv's median speed, figures by peer."""
    of_row = pairs_of(row, pairs)
    peers = {}
    for peer in dict.fromkeys(pair.peer for pair in of_row):
        summary = summarize(
            [pair for pair in of_row if pair.peer == peer],
            row.kind,
            max_drift,
        )
        if summary:
            peers[peer] = dataclasses.asdict(summary)
    lkv = summarize(of_row, row.kind, max_drift)
    return {
        **dataclasses.asdict(row),
        "lkv_tokens_per_second": lkv and lkv.lkv_tokens_per_second,
        "peers": peers,
    }


def faster_peer_ratio(row: dict) -> float | None:
    """Against the faster of the common peers; None unless both have figures."""
    ratios = [
        row["peers"][peer]["ratio_median"]
        for peer in COMMON_PEERS
        if peer in row["peers"]
    ]
    return min(ratios) if len(ratios) == len(COMMON_PEERS) else None


def ratio_table(rows: list[dict], peers: list[str]) -> list[list[str]]:
    """Cells; the first line names the columns."""
    table = [
        ["lkv / other", *peers, "the faster of " + ", ".join(COMMON_PEERS)]
    ]
    for row in rows:
        cells = [row["name"]]
        for peer in peers:
            figure = row["peers"].get(peer)
            cells.append(
                f"{figure['ratio_median']:.2f}x"
                f" ({figure['ratio_min']:.2f} to {figure['ratio_max']:.2f},"
                f" n = {figure['pairs']})"
                if figure
                else "–"
            )
        faster = faster_peer_ratio(row)
        cells.append(f"{faster:.2f}x" if faster else "–")
        table.append(cells)
    return table


def speed_table(rows: list[dict], peers: list[str]) -> list[list[str]]:
    table = [["tokens/s, median", "lkv", *peers]]
    for row in rows:
        ours = row["lkv_tokens_per_second"]
        cells = [row["name"], f"{ours:.1f}" if ours else "–"]
        for peer in peers:
            figure = row["peers"].get(peer)
            cells.append(
                f"{figure['peer_tokens_per_second']:.1f}"
                f" ({figure['peer_setting']})"
                if figure
                else "–"
            )
        table.append(cells)
    return table


def as_text(table: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) for cell, width in zip(line, widths)
        ).rstrip()
        for line in table
    )


def as_markdown(table: list[list[str]]) -> str:
    lines = [table[0], ["---"] * len(table[0]), *table[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def pair_line(pair: Pair) -> str:
    """One pair as a line of progress."""
    kinds = [
        f"{kind} {ours:.1f} against {pair.best(kind).speeds[kind]:.1f}"
        f" tokens/s (probe moved {pair.drift(kind):.0%})"
        for kind, ours in pair.lkv.speeds.items()
    ]
    return f"{pair.work}, {pair.peer}: " + ", ".join(kinds)


def skip_lines(skips: list[Skip]) -> list[str]:
    """One line per peer and reason, with the works it concerns."""
    works = {}
    for skip in skips:
        works.setdefault((skip.peer, skip.reason), []).append(skip.work)
    return [
        f"{peer}: {reason}" + (f" ({', '.join(of)})" if all(of) else "")
        for (peer, reason), of in works.items()
    ]


def left_out_lines(result: dict) -> list[str]:
    """What pairs showed that do not count, where none of a peer does."""
    stored = [Pair.from_json(pair) for pair in result["pairs"]]
    lines = []
    for row in result["rows"]:
        known = parse_row(row["name"])
        shown = []
        for peer in result["peers"]:
            of_peer = [
                pair for pair in pairs_of(known, stored) if pair.peer == peer
            ]
            summary = summarize(of_peer, known.kind, float("inf"))
            if peer not in row["peers"] and summary:
                shown.append(
                    f"{peer} {summary.ratio_median:.2f}x"
                    f" ({summary.ratio_min:.2f} to {summary.ratio_max:.2f},"
                    f" n = {summary.pairs})"
                )
        if shown:
            lines.append(f"{row['name']}: {', '.join(shown)}")
    return lines


def figures_section(result: dict, plots: list[str]) -> str:
    """What stands between BEGIN and END."""
    peers = result["peers"]
    skips = skip_lines([Skip(**skip) for skip in result["skipped"]])
    discarded = sum(
        figure["pairs_discarded"]
        for row in result["rows"]
        for figure in row["peers"].values()
    )
    parts = [
        f"{result['date']}, {result['processor']}, {result['cores']} cores;"
        f" `{result['model']}`, {result['threads']} threads,"
        f" {result['gen']} tokens decoded per run;"
        f" {', '.join([result['lkv'], *result['versions']])}."
        " Pairs whose probe moved by more"
        f" than {result['max_drift_percent']:g} % are left out"
        f" ({discarded} here); n pairs are left.",
        as_markdown(ratio_table(result["rows"], peers)),
        as_markdown(speed_table(result["rows"], peers)),
    ]
    parts += [f"![{pathlib.Path(plot).stem}]({plot})" for plot in plots]
    left_out = left_out_lines(result)
    if left_out:
        parts.append(
            "No pair counts, because the machine's memory changed its speed in"
            " each; what they showed all the same:\n\n"
            + "\n".join(f"- {line}" for line in left_out)
        )
    if skips:
        parts.append("Not measured:\n\n" + "\n".join(f"- {s}" for s in skips))
    return "\n\n".join(parts)


def with_figures(page: str, figures: str) -> str:
    """The page with its written part replaced. ValueError without markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the lines {BEGIN} and {END} are missing")
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}"
