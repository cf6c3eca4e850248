#!/usr/bin/env python3
"""Compares lkv with its peers on one GGUF file, in one run.

Sets the peers up in .deps/peers/ (llama.cpp from the pinned source, OpenVINO
GenAI in a virtual environment, ik_llama.cpp built from source), then measures
A-B-A-B: lkv, peer, lkv, next peer, ... with the same file, threads and token
counts, and a plain read of memory beside every run. Pairs whose read moved are
run again. Each peer counts with its fastest setting. Ratios above 1 mean that
lkv is faster; machines drift, so only ratios mean something. Exits with 1
when a row got no figure.

Writes benchmarks/result.json, benchmarks/*.svg and the figures in
benchmarks.md below --out: the first after every pair, the others at the end.
All rows take hours. Ctrl-C, the end of a time limit and a crash keep what is
measured; --resume goes on from it, with the same rows or others.

Examples:
  bench/peers/compare.py --setup-only
  bench/peers/compare.py --peers llama.cpp --rows 'decode-*' --out /tmp/trial
  timeout 1h bench/peers/compare.py --rows 'prefill-*' --resume
  bench/peers/compare.py --page-only
"""

import argparse
import math
import pathlib
import re
import shlex
import shutil
import signal
import sys
import tempfile
import typing

import report
from batched_bench import IkLlamaCpp, LlamaCpp
from environment import ROOT, SetupError, say
from lkv_bench import LkvBench
from measure import Measurement, Protocol, Skip
from openvino_peer import OpenVino
from pairs import Pair
from plots import draw_plots
from result import (
    Earlier,
    describe_conditions,
    earlier_of,
    make_result,
    read_result,
    write_result,
)
from rows import MOST_TOKENS, ROW_NAMES, Row, choose_rows, works_of
from tool import MeasureError, RunOptions, Tool

PEER_NAMES = [
    "llama.cpp",
    "openvino",
    "openvino-evicting",
    "ik_llama.cpp",
    "lkv-full",
]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULT = pathlib.Path("benchmarks", "result.json")  # below --out


def parse_arguments() -> argparse.Namespace:
    def peers(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in PEER_NAMES:
                raise argparse.ArgumentTypeError(
                    f"{name}: no such peer; there are {', '.join(PEER_NAMES)}"
                )
        return names

    def rows(text: str) -> list[Row]:
        try:
            return choose_rows(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    def number(most: int) -> typing.Callable[[str], int]:
        def parse(text: str) -> int:
            if not re.fullmatch("[0-9]{1,9}", text) or not (
                1 <= int(text) <= most
            ):
                raise argparse.ArgumentTypeError(
                    f"{text}: a number from 1 to {most}"
                )
            return int(text)

        return parse

    def percent(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"{text}: a number above 0")
        return value

    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option(
        "--peers",
        type=peers,
        default=PEER_NAMES,
        metavar="LIST",
        help="of " + ", ".join(PEER_NAMES) + " (default: all)",
    )
    option(
        "--rows",
        type=rows,
        default=choose_rows("*"),
        metavar="LIST",
        help="names or patterns of "
        + ", ".join(ROW_NAMES).replace("%", "%%")
        + ", or others of that form, such as decode-512 (default: all)",
    )
    option(
        "--pairs", type=number(1000), default=7, help="per row [%(default)s]"
    )
    option(
        "--out",
        type=pathlib.Path,
        default=PAGE.parent,
        metavar="DIR",
        help="where the results go (default: docs)",
    )
    option("--setup-only", action="store_true", help="measure nothing")
    option(
        "--resume",
        action="store_true",
        help="keep the pairs of the stored result and add what is missing",
    )
    option(
        "--page-only",
        action="store_true",
        help="measure nothing; draw and write anew from the stored result",
    )
    option(
        "--dry-run", action="store_true", help="print the commands, run none"
    )
    option(
        "--lkv",
        type=absolute_path,
        default=ROOT / "build" / "release" / "bin" / "lkv",
        metavar="FILE",
    )
    option(
        "--model",
        type=absolute_path,
        default=next(iter((ROOT / ".deps" / "model").glob("*.gguf")), None),
        metavar="FILE",
        help="GGUF (default: the one set-up fetched)",
    )
    option("--threads", type=number(256), default=2, help="[%(default)s]")
    option(
        "--gen",
        type=number(MOST_TOKENS),
        default=64,
        help="tokens to decode per run [%(default)s]",
    )
    option(
        "--max-drift",
        type=percent,
        default=15,
        metavar="PERCENT",
        help="discard pairs whose probe moved more [%(default)s]",
    )
    args = parser.parse_args()
    measures = not args.setup_only and not args.page_only
    if measures and args.model is None:
        parser.error("the model is missing; run scripts/setup.sh")
    if measures and not args.model.is_file():
        parser.error(f"{args.model}: no such file")
    if measures and not args.dry_run:
        try:
            check_out(args.out)
        except (OSError, ValueError) as error:
            parser.error(f"--out: cannot take the results ({error})")
    return args


def check_out(out: pathlib.Path) -> None:
    """Raises OSError or ValueError now rather than after hours."""
    (out / RESULT).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=(out / RESULT).parent):
        pass
    page = out / PAGE.name
    report.with_figures((page if page.exists() else PAGE).read_text(), "")


def absolute_path(text: str) -> pathlib.Path:
    return pathlib.Path(text).resolve()


def make_peers(args: argparse.Namespace) -> list[Tool]:
    peers = [
        LlamaCpp(),
        OpenVino(),
        OpenVino(evicts=True),
        IkLlamaCpp(),
        LkvBench(args.lkv, full_cache=True),
    ]
    return [peer for peer in peers if peer.name in args.peers]


def print_commands(
    lkv: LkvBench, peers: list[Tool], rows: list[Row], options: RunOptions
) -> None:
    def show(tool: Tool, setting: str, command: list[str]) -> None:
        print(f"# {tool.name}, {setting}\n{shlex.join(command)}")

    show(lkv, "probe beside every run", lkv.probe_command(options))
    for work in works_of(rows):
        print(f"\n## {work.name}")
        for tool in [lkv, *peers]:
            if not tool.applies(work):
                continue
            reason = tool.refusal(work, options)
            if reason:
                print(f"# {tool.name}: {reason}")
                continue
            for setting in tool.settings(work):
                show(tool, setting, tool.command(work, setting, options))


def set_up(peers: list[Tool]) -> tuple[list[Tool], list[Skip]]:
    """The peers that are ready, and why the others are not."""
    ready = []
    skips = []
    for peer in peers:
        try:
            peer.set_up()
            ready.append(peer)
        except SetupError as error:
            say(f"{peer.name} is left out: {error}")
            reason = str(error).splitlines()[0]
            skips.append(Skip(peer.name, "", reason))
    return ready, skips


def write_page(out: pathlib.Path, result: dict) -> None:
    """Plots and page of a result, whether just measured or stored."""
    names = draw_plots(result, (out / RESULT).parent)
    page = out / PAGE.name
    if not page.exists():
        shutil.copyfile(PAGE, page)
    figures = report.figures_section(
        result, [f"{RESULT.parent}/{name}" for name in names]
    )
    page.write_text(report.with_figures(page.read_text(), figures))


def measure_all(
    args: argparse.Namespace, lkv: LkvBench, peers: list[Tool], skips: list
) -> int:
    conditions = describe_conditions(args)
    earlier = Earlier()
    if args.resume and (args.out / RESULT).exists():
        stored = read_result(args.out / RESULT)
        earlier = earlier_of(stored, conditions, args.rows, args.peers)
    options = RunOptions(args.model, args.threads, args.gen)
    protocol = Protocol(options, args.pairs, args.max_drift / 100)
    measured = Measurement(lkv, peers, protocol, pairs=earlier.pairs)
    measured.skips += earlier.skips + skips

    def save() -> dict:
        result = make_result(
            conditions, args.rows, peers, args.max_drift, measured, earlier
        )
        write_result(args.out / RESULT, result)
        return result

    def on_pair(pair: Pair) -> None:
        # After every pair: a run of hours must not be lost.
        save()
        say(report.pair_line(pair))

    code = 0
    # A time limit ends the run as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for work in works_of(args.rows):
            measured.measure(work, on_pair)
    except KeyboardInterrupt:
        say("stopped; what was measured is kept")
        code = 130
    finally:
        for line in report.skip_lines(measured.skips):
            say(line)
        if measured.pairs:
            result = save()
            write_page(args.out, result)
    if not measured.pairs:
        say("nothing was measured")
        return code or 1
    print(report.as_text(report.ratio_table(result["rows"], result["peers"])))
    print()
    print(report.as_text(report.speed_table(result["rows"], result["peers"])))
    empty = [row["name"] for row in result["rows"] if not row["peers"]]
    if empty:
        say(f"no pair counted for {', '.join(empty)}")
    return code or (1 if empty else 0)


def main() -> int:
    args = parse_arguments()
    lkv = LkvBench(args.lkv)
    peers = make_peers(args)
    if args.dry_run:
        options = RunOptions(args.model, args.threads, args.gen)
        print_commands(lkv, peers, args.rows, options)
        return 0
    try:
        if args.page_only:
            write_page(args.out, read_result(args.out / RESULT))
            return 0
        if not args.setup_only:
            lkv.set_up()
        peers, skips = set_up(peers)
        if args.setup_only:
            return 1 if skips else 0
        if not peers:
            say("no peer is ready")
            return 1
        return measure_all(args, lkv, peers, skips)
    except (SetupError, MeasureError) as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
