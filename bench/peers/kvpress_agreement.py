#!/usr/bin/env python3
"""Holds lkv's baselines against NVIDIA kvpress's own, on the same windows.

Both sides read the same windows of the same texts with the same GGUF file (the
peer dequantised, in float32), cut each context down once to the same number of
tokens a head with the same ones protected, and are fed the tokens that follow.
Nothing leaves while these come. Compared is KL(full || cut down), each side
against its own full cache, window by window.

Makes .deps/kvpress/ (6 GB) in the first run. Fails when the two sides read
different tokens, when their full caches do not predict alike, or when the
peer's way of feeding tokens changes what it predicts; a disagreement of
policies is a result, not a failure.

Example:
  bench/peers/kvpress_agreement.py --windows 2 \\
    --texts novel.txt,code.h,manual.txt,src/eval/texts/dialogue.txt
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys

import environment
from environment import ROOT, SetupError, say

FOLDER = ROOT / ".deps" / "kvpress"
REQUIREMENTS = pathlib.Path(__file__).with_name("kvpress_requirements.txt")
WORKER = pathlib.Path(__file__).with_name("kvpress_worker.py")

POLICIES = [
    "streaming",
    "observed",
    "snapkv",
    "tova",
    "expected_attention",
    "random",
]
# The same with lkv's definition of the statistic: see the worker.
AS_LKV_DEFINES = {
    name: f"{name}, max" for name in ("observed", "snapkv", "tova")
}

# lkv protects whole pages of 16 tokens, so both sides protect the first of them
# and the last ones.
FIRST_TOKENS = 16
LAST_TOKENS = 128

# In the bytes of so many tokens a head holds 368 (12 %) and, depending on what
# its policy notes about a page, 752 or 768 (25 %) tokens of 3,072, some 100
# fewer under expected_attention, which notes much about queries: metadata is
# charged too, pages are whole, and two pages a head stay free for the next
# tokens.
BUDGETS = "13.8%,26.8%"

# The full caches of both sides predict the text equally well: lkv keeps keys
# and values in 16 bit and some weights to 2^-11 (1e-3 nats in all).
MOST_NLL_DIFFERENCE = 0.01
# Tokens fed behind a cache against a single pass over everything.
MOST_SINGLE_PASS_KL = 1e-6

DRAWS = 10000


class DisagreementError(Exception):
    """The two sides do not do the same thing; the message says in what."""


@dataclasses.dataclass(frozen=True)
class Interval:
    low: float
    high: float


def bootstrap(values: list[float]) -> Interval:
    """95 % interval of the mean over windows; the same draws every time."""
    generator = random.Random(1)
    means = sorted(
        statistics.fmean(generator.choices(values, k=len(values)))
        for _ in range(DRAWS)
    )
    return Interval(means[int(0.025 * DRAWS)], means[int(0.975 * DRAWS)])


@dataclasses.dataclass(frozen=True)
class Row:
    """One policy at one budget, by window."""

    policy: str
    budget: float  # share of the context that was asked for
    held: list[int]  # tokens of the context that a head kept
    lkv_kl: list[float]
    lkv_top1: list[float]
    peer_kl: list[float]
    peer_top1: list[float]

    @property
    def differences(self) -> list[float]:
        return [ours - peer for ours, peer in zip(self.lkv_kl, self.peer_kl)]

    def agrees(self, floor: float) -> bool:
        """Whether the windows leave it open which side's mean is higher, or
        may be by no more than another 16-bit type of keys changes."""
        interval = bootstrap(self.differences)
        return interval.low <= floor and interval.high >= -floor


def eval_command(args: argparse.Namespace) -> list[str]:
    options = {
        "unit": "repack",
        "lane_spread": "equal",
        "sink_tokens": FIRST_TOKENS,
        "recent_tokens": LAST_TOKENS,
    }
    sets = [
        word
        for key, value in options.items()
        for word in ("--set", f"{key}={value}")
    ]
    return [
        str(args.lkv),
        "eval",
        *("--model", str(args.model)),
        *("--threads", str(args.threads)),
        *("-f", ",".join(args.texts)),
        *("--windows", str(args.windows)),
        *("--context", str(args.context)),
        *("--forced", str(args.forced)),
        *("--budget", args.budgets),
        *("--budget-of", "context"),
        *("--observe", args.observe),
        *("--policies", ",".join(POLICIES)),
        *sets,
        "--json",
    ]


def window_begins(n_tokens: int, n_windows: int, n_window: int) -> list[int]:
    """Where `lkv eval` places the windows of a text."""
    room = n_tokens - n_window
    if n_windows == 1:
        return [0]
    return [room * i // (n_windows - 1) for i in range(n_windows)]


def parse_window(name: str) -> tuple[str, int]:
    """Text and first token of a window of `lkv eval`."""
    text, begin = re.fullmatch(r"(.*) at ([0-9]+)", name).groups()
    return text, int(begin)


def kept_tokens(evaluation: dict, window: int) -> dict[str, list[int]]:
    """What each press is to keep in a window, by budget: what lkv held."""
    kept = {}
    for budget in budgets_of(evaluation):
        for row in rows_at(evaluation, budget):
            held = row["held_tokens_by_window"][window]
            kept.setdefault(row["policy"], []).append(held)
    for policy, press in AS_LKV_DEFINES.items():
        if policy in kept:
            kept[press] = kept[policy]
    return kept


def make_job(args: argparse.Namespace, evaluation: dict) -> dict:
    """What the worker is to do: the windows that lkv ran."""
    windows = []
    for i, name in enumerate(evaluation["windows"]):
        text, begin = parse_window(name)
        kept = kept_tokens(evaluation, i)
        windows.append({"text": text, "begin": begin, "kept": kept})
    return {
        "model": str(args.model),
        "threads": args.threads,
        "context_tokens": args.context,
        "forced_tokens": args.forced,
        "first_tokens": FIRST_TOKENS,
        "last_tokens": LAST_TOKENS,
        "windows": windows,
    }


def budgets_of(evaluation: dict) -> list[float]:
    return sorted({row["budget"] for row in evaluation["rows"]})


def rows_at(evaluation: dict, budget: float) -> list[dict]:
    return [row for row in evaluation["rows"] if row["budget"] == budget]


def check_sides(args: argparse.Namespace, evaluation: dict, peer: dict) -> None:
    """Raises DisagreementError unless both sides measured the same thing."""
    n_window = args.context + args.forced + 1
    expected = [
        f"{text} at {begin}"
        for text in args.texts
        for begin in window_begins(peer["tokens"][text], args.windows, n_window)
    ]
    if expected != evaluation["windows"]:
        raise DisagreementError(
            "the peer's tokenizer splits a text into another number of tokens:"
            f" it would place windows at {expected}, not"
            f" {evaluation['windows']}"
        )
    if peer["single_pass_kl"] > MOST_SINGLE_PASS_KL:
        raise DisagreementError(
            "feeding tokens behind the whole cache is not what a single pass"
            f" over the text predicts (KL {peer['single_pass_kl']:.2g})"
        )
    for name, ours, window in zip(
        evaluation["windows"],
        evaluation["full_nll_by_window"],
        peer["windows"],
    ):
        if abs(ours - window["full_nll"]) > MOST_NLL_DIFFERENCE:
            raise DisagreementError(
                f"{name}: the full caches predict the text differently"
                f" ({ours:.4f} and {window['full_nll']:.4f} nats a token)"
            )


def rows_of(evaluation: dict, peer: dict, presses: dict) -> list[Row]:
    """Rows of policies beside presses (policy to press), by budget."""
    rows = []
    for budget_index, budget in enumerate(budgets_of(evaluation)):
        for row in rows_at(evaluation, budget):
            if row["policy"] not in presses:
                continue
            key = (budget_index, presses[row["policy"]])
            cells = [
                cell
                for window in peer["windows"]
                for cell in window["rows"]
                if (cell["budget"], cell["press"]) == key
            ]
            rows.append(
                Row(
                    presses[row["policy"]],
                    budget,
                    row["held_tokens_by_window"],
                    row["kl_by_window"],
                    row["top1_by_window"],
                    [cell["kl"] for cell in cells],
                    [cell["top1"] for cell in cells],
                )
            )
    return rows


def mean_text(values: list[float]) -> str:
    interval = bootstrap(values)
    return (
        f"{statistics.fmean(values):.4f}"
        f" ({interval.low:.4f} to {interval.high:.4f})"
    )


def table(rows: list[Row], floor: float) -> str:
    """In Markdown; floor: KL that means nothing."""
    lines = [
        "| held | policy | kvpress KL (95 %) | lkv KL (95 %) |"
        " lkv - kvpress (95 %) | agree | top-1 kvpress, lkv |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        top1 = ", ".join(
            f"{100 * statistics.fmean(values):.1f} %"
            for values in (row.peer_top1, row.lkv_top1)
        )
        cells = [
            f"{statistics.fmean(row.held):.0f}",
            row.policy,
            mean_text(row.peer_kl),
            mean_text(row.lkv_kl),
            mean_text(row.differences),
            "yes" if row.agrees(floor) else "no",
            top1,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def run_worker(job: dict) -> dict:
    worker = subprocess.run(
        [str(FOLDER / "venv" / "bin" / "python"), str(WORKER)],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        # Without the progress bars of the libraries.
        env={**os.environ, "TQDM_DISABLE": "1"},
        text=True,
        check=False,
    )
    if worker.returncode:
        raise SetupError(f"{WORKER.name} ended with {worker.returncode}")
    return json.loads(worker.stdout)


def run_eval(args: argparse.Namespace) -> dict:
    evaluation = subprocess.run(
        eval_command(args), stdout=subprocess.PIPE, check=False
    )
    if evaluation.returncode:
        raise SetupError(f"lkv eval ended with {evaluation.returncode}")
    return json.loads(evaluation.stdout)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option(
        "--texts",
        type=lambda text: text.split(","),
        required=True,
        metavar="FILE,...",
        help="UTF-8",
    )
    option("--windows", type=int, default=2, help="of each text [%(default)s]")
    option("--context", type=int, default=3072, help="[%(default)s]")
    option("--forced", type=int, default=256, help="[%(default)s]")
    option(
        "--budgets",
        default=BUDGETS,
        metavar="LIST",
        help="shares of the context, in bytes: metadata takes its part"
        f" [{BUDGETS}]".replace("%", "%%"),
    )
    option(
        "--observe",
        choices=["all", "sampled"],
        default="all",
        help="queries of the context that lkv's policies see; sampled is what"
        " they see in use, kvpress's see all [%(default)s]",
    )
    option("--threads", type=int, default=2, help="[%(default)s]")
    option(
        "--lkv",
        type=pathlib.Path,
        default=ROOT / "build" / "release" / "bin" / "lkv",
        metavar="FILE",
    )
    option(
        "--model",
        type=pathlib.Path,
        default=next(iter((ROOT / ".deps" / "model").glob("*.gguf")), None),
        metavar="FILE",
        help="GGUF (default: the one set-up fetched)",
    )
    option(
        "--json",
        type=pathlib.Path,
        metavar="FILE",
        help="where the figures of every window go, too",
    )
    args = parser.parse_args()
    if args.model is None or not args.model.is_file():
        parser.error("the model is missing; run scripts/setup.sh")
    if not args.lkv.is_file():
        parser.error(f"{args.lkv}: no such file; build it first")
    args.model = args.model.resolve()
    return args


def main() -> int:
    args = parse_arguments()
    try:
        environment.ensure_venv(FOLDER, REQUIREMENTS)
        say("lkv eval")
        evaluation = run_eval(args)
        say("kvpress")
        peer = run_worker(make_job(args, evaluation))
        if args.json:
            both = {"lkv": evaluation, "kvpress": peer}
            args.json.write_text(json.dumps(both, indent=1))
        check_sides(args, evaluation, peer)
    except (SetupError, DisagreementError) as error:
        say(str(error))
        return 1
    version = environment.pinned_version(REQUIREMENTS, "kvpress")
    print(f"kvpress {version}, {len(peer['windows'])} windows\n")
    floor = evaluation["noise_floor"]["kl_mean"]
    same_names = {name: name for name in POLICIES}
    print(table(rows_of(evaluation, peer, same_names), floor))
    print("\nThe same with lkv's definitions in kvpress's frame\n")
    print(table(rows_of(evaluation, peer, AS_LKV_DEFINES), floor))
    print(f"\nNoise floor of lkv: KL {floor:.5f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
