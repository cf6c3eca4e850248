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
from environment import ROOT
from measure import Measurement
from tool import Tool, output_of


def describe_versions(lkv: pathlib.Path, peers: list[Tool]) -> list[str]:
    ours = output_of([str(lkv), "--version"]).strip()
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        check=False,
        capture_output=True,
        text=True,
    ).stdout.strip()
    theirs = [peer.version for peer in peers if peer.version]
    return [f"{ours} ({commit})" if commit else ours, *dict.fromkeys(theirs)]


def make_result(
    args: argparse.Namespace,
    versions: list[str],
    peers: list[Tool],
    measured: Measurement,
) -> dict:
    """Every figure of the run, as JSON takes it."""
    max_drift = args.max_drift / 100
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor_name(),
        "cores": os.cpu_count(),
        "versions": versions,
        "model": args.model.name,
        "threads": args.threads,
        "gen": args.gen,
        "kv_type": args.kv_type,
        "max_drift_percent": args.max_drift,
        "peers": [peer.name for peer in peers],
        "rows": [
            report.summarize_row(row, measured.pairs, max_drift)
            for row in args.rows
        ],
        "skipped": [dataclasses.asdict(skip) for skip in measured.skips],
        "pairs": [dataclasses.asdict(pair) for pair in measured.pairs],
    }


def write_result(path: pathlib.Path, result: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def _processor_name() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
