"""The document that compare.py leaves: result.json."""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import subprocess

import report
from environment import ROOT, SetupError
from measure import Measurement, Skip
from pairs import Pair
from rows import ROW_NAMES, Row, parse_row, works_of
from tool import Tool, output_of

# Only figures with the same of these may stand in one result.
CONDITIONS = ["processor", "cores", "lkv", "model", "threads", "gen"]


def describe_conditions(args: argparse.Namespace) -> dict:
    lkv = output_of([str(args.lkv), "--version"]).strip()
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        check=False,
        capture_output=True,
        text=True,
    ).stdout.strip()
    return {
        "processor": _processor_name(),
        "cores": os.cpu_count(),
        "lkv": f"{lkv} ({commit})" if commit else lkv,
        "model": args.model.name,
        "threads": args.threads,
        "gen": args.gen,
    }


@dataclasses.dataclass(frozen=True)
class Earlier:
    """What an earlier run left, to go on from."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    peers: list[str] = dataclasses.field(default_factory=list)
    versions: list[str] = dataclasses.field(default_factory=list)
    pairs: list[Pair] = dataclasses.field(default_factory=list)
    skips: list[Skip] = dataclasses.field(default_factory=list)


def read_result(path: pathlib.Path) -> dict:
    """Raises SetupError."""
    try:
        result = json.loads(path.read_text())
        check_result(result)
        return result
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise SetupError(
            f"{path}: no result of compare.py ({type(error).__name__}:"
            f" {error}); measure anew"
        ) from None


def check_result(result: dict) -> None:
    """Raises one of many errors unless all that is read later is there."""
    for name in [*CONDITIONS, "date", "max_drift_percent", "versions"]:
        result[name]
    [Skip(**skip) for skip in result["skipped"]]
    pairs = [Pair.from_json(pair) for pair in result["pairs"]]
    rows = [parse_row(row["name"]) for row in result["rows"]]
    for row in rows:
        report.summarize_row(row, pairs, result["max_drift_percent"] / 100)
    report.figures_section(result, [])


def earlier_of(
    result: dict, conditions: dict, rows: list[Row], peers: list[str]
) -> Earlier:
    """What of a stored result still holds when `rows` and `peers` run again.

    Raises SetupError when it was measured under other conditions.
    """
    for name in CONDITIONS:
        if result.get(name) != conditions[name]:
            raise SetupError(
                f"the stored result has {name} {result.get(name)}, now it is"
                f" {conditions[name]}; measure without --resume"
            )
    # Why something was skipped is found out again where it is tried again.
    works = {work.name for work in works_of(rows)} | {""}
    skips = [Skip(**skip) for skip in result["skipped"]]
    return Earlier(
        [parse_row(row["name"]) for row in result["rows"]],
        result["peers"],
        result["versions"],
        [Pair.from_json(pair) for pair in result["pairs"]],
        [s for s in skips if s.peer not in peers or s.work not in works],
    )


def make_result(
    conditions: dict,
    rows: list[Row],
    peers: list[Tool],
    max_drift_percent: float,
    measured: Measurement,
    earlier: Earlier,
) -> dict:
    """Every figure of this run and the earlier one, as JSON takes it."""
    known = {row.name: row for row in earlier.rows + rows}
    names = [name for name in ROW_NAMES if name in known]
    names += [name for name in known if name not in ROW_NAMES]
    versions = [peer.version for peer in peers if peer.version]
    return {
        "date": datetime.date.today().isoformat(),
        **conditions,
        "versions": list(dict.fromkeys(earlier.versions + versions)),
        "max_drift_percent": max_drift_percent,
        "peers": list(
            dict.fromkeys(earlier.peers + [peer.name for peer in peers])
        ),
        "rows": [
            report.summarize_row(
                known[name], measured.pairs, max_drift_percent / 100
            )
            for name in names
        ],
        "skipped": [dataclasses.asdict(skip) for skip in measured.skips],
        "pairs": [dataclasses.asdict(pair) for pair in measured.pairs],
    }


def write_result(path: pathlib.Path, result: dict) -> None:
    """A crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(result, indent=1) + "\n")
    draft.replace(path)


def _processor_name() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
