#!/usr/bin/env python3
"""Compares lkv with llama.cpp on one GGUF file, in one run.

Builds llama-bench from the pinned source that scripts/setup.sh fetched (for
this machine's processor, once), then measures A-B-A-B: lkv, llama.cpp, lkv,
llama.cpp, ... with the same file, threads and token counts. llama.cpp runs
with flash attention on and off and counts with the faster of the two. Prints
the median ratio with its minimum and maximum; ratios above 1 mean that lkv is
faster. Machines drift, so only ratios of one pair are meaningful.

Example: bench/peers/compare.py --threads 2 --pairs 7 --json result.json
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LLAMA_SOURCE = ROOT / ".deps" / "llama.cpp"
LLAMA_BUILD = ROOT / ".deps" / "peers" / "llama.cpp"


def build_llama_bench() -> pathlib.Path:
    """Builds llama-bench once, in its best setting for this processor."""
    binary = LLAMA_BUILD / "bin" / "llama-bench"
    if binary.exists():
        return binary
    if not LLAMA_SOURCE.exists():
        sys.exit("compare: llama.cpp source missing; run scripts/setup.sh")
    print("building llama-bench (about 5 minutes) ...", file=sys.stderr)
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
               "-DBUILD_SHARED_LIBS=OFF"]
    options += [f"-DLLAMA_BUILD_{part}=OFF"
                for part in ("TESTS", "EXAMPLES", "SERVER", "UI", "APP")]
    if shutil.which("ccache"):
        options += ["-DCMAKE_C_COMPILER_LAUNCHER=ccache",
                    "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    subprocess.run(["cmake", "-G", "Ninja", "-S", LLAMA_SOURCE, "-B",
                    LLAMA_BUILD, *options], check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", LLAMA_BUILD, "--target",
                    "llama-bench"], check=True, stdout=sys.stderr)
    return binary


def run_json(command: list) -> object:
    done = subprocess.run([str(part) for part in command], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def measure_lkv(args: argparse.Namespace) -> dict:
    """Tokens per second by (kind, depth or prompt length)."""
    rows = run_json([args.lkv, "bench", "speed", "-m", args.model,
                     "--threads", args.threads, "--gen", args.gen,
                     "--depth", ",".join(map(str, args.depth)),
                     "--prefill", ",".join(map(str, args.prefill)),
                     "--budget", "full", "--batch", "1", "--json"])["rows"]
    return {(row["kind"], row["depth"]): row["tokens_per_second"]
            for row in rows}


def measure_llama(binary: pathlib.Path, args: argparse.Namespace) -> dict:
    """The same for llama-bench, the faster of flash attention on and off."""
    common = [binary, "-m", args.model, "-t", args.threads, "-r", 1,
              "-fa", "0,1", "-o", "json"]
    results = {}
    decode = run_json([*common, "-p", 0, "-n", args.gen, "-d",
                       ",".join(map(str, args.depth))])
    prefill = run_json([*common, "-n", 0, "-p",
                        ",".join(map(str, args.prefill))])
    for row in decode + prefill:
        kind, length = (("decode", row["n_depth"]) if row["n_gen"]
                        else ("prefill", row["n_prompt"]))
        key = (kind, length)
        results[key] = max(results.get(key, 0.0), row["avg_ts"])
    return results


def main() -> None:
    def numbers(text: str) -> list:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lkv", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "bin" / "lkv")
    parser.add_argument("--model", type=pathlib.Path,
                        default=next(iter((ROOT / ".deps" / "model").glob(
                            "*.gguf")), None))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--depth", type=numbers, default=[0, 2048])
    parser.add_argument("--prefill", type=numbers, default=[512])
    parser.add_argument("--json", type=pathlib.Path,
                        help="also write all figures here")
    args = parser.parse_args()
    if args.model is None or not args.lkv.exists():
        parser.error("lkv or the model is missing; run scripts/quickstart.sh")

    binary = build_llama_bench()
    pairs = []
    for i in range(args.pairs):
        print(f"pair {i + 1} of {args.pairs}", file=sys.stderr)
        pairs.append((measure_lkv(args), measure_llama(binary, args)))

    report = []
    print(f"{'what':<16}{'lkv tok/s':>12}{'llama.cpp':>12}"
          f"{'ratio':>8}{'min':>7}{'max':>7}")
    for kind, length in sorted(pairs[0][1]):
        ours = [pair[0][kind, length] for pair in pairs]
        theirs = [pair[1][kind, length] for pair in pairs]
        ratios = [a / b for a, b in zip(ours, theirs)]
        row = {"kind": kind, "depth": length,
               "lkv_tokens_per_second": statistics.median(ours),
               "llama_tokens_per_second": statistics.median(theirs),
               "ratio_median": statistics.median(ratios),
               "ratio_min": min(ratios), "ratio_max": max(ratios),
               "pairs": len(pairs)}
        report.append(row)
        print(f"{kind + ' ' + str(length):<16}"
              f"{row['lkv_tokens_per_second']:>12.1f}"
              f"{row['llama_tokens_per_second']:>12.1f}"
              f"{row['ratio_median']:>8.2f}{row['ratio_min']:>7.2f}"
              f"{row['ratio_max']:>7.2f}")
    if args.json:
        args.json.write_text(json.dumps({"rows": report}, indent=1) + "\n")


if __name__ == "__main__":
    main()
