#!/usr/bin/env python3
"""make_continuations.py [--texts FOLDER] [--output FOLDER]: the model's texts.

Has `lkv run` go on from the first bytes of every text of a folder (default
.deps/texts/train) and writes opening and continuation, as one text, to another
(default .deps/texts/own): what a model writes itself is what most of a cache
holds in a long answer. Record it like any other text, beside the others:

  scripts/record_traces.py --texts .deps/texts/own

Drawn at temperature 0.8 with a repeat penalty of 1.1, without which small
models run in circles, from one seed: the same texts every time. 16 texts of
3,000 new tokens take five minutes on two cores. Texts that are there already
are left alone, however long they are.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def opening(text: bytes, n_bytes: int) -> bytes:
    """The beginning of a text, up to the end of a line where there is one."""
    head = text[:n_bytes].decode("utf-8", errors="ignore").encode()
    lines = head.rpartition(b"\n")
    return head if len(head) == len(text) else lines[0] + lines[1] or head


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--texts",
        help="what it goes on from",
        type=pathlib.Path,
        default=ROOT / ".deps/texts/train",
    )
    parser.add_argument(
        "--output",
        help="where its texts go",
        type=pathlib.Path,
        default=ROOT / ".deps/texts/own",
    )
    parser.add_argument(
        "--lkv",
        help="the program",
        type=pathlib.Path,
        default=ROOT / "build/release/bin/lkv",
    )
    parser.add_argument(
        "--opening", type=int, default=2000, help="bytes of each text"
    )
    parser.add_argument("--tokens", type=int, default=3000, help="new ones")
    options = parser.parse_args()
    texts = sorted(options.texts.glob("*.txt"))
    if not texts:
        sys.exit(
            f"make_continuations.py: {options.texts}: has no texts; run"
            " scripts/fetch_texts.py"
        )
    if not options.lkv.is_file():
        sys.exit(
            f"make_continuations.py: {options.lkv}: is not there; build lkv"
            " (scripts/quickstart.sh) or name it with --lkv"
        )
    options.output.mkdir(parents=True, exist_ok=True)
    for path in texts:
        written = options.output / f"own-{path.name}"
        if written.exists():
            continue
        print(written.name, file=sys.stderr)
        head = opening(path.read_bytes(), options.opening)
        command = [str(options.lkv), "run", "--json", "--ignore-eos"]
        command += ["-n", str(options.tokens), "--seed", "1"]
        command += ["--temp", "0.8", "--repeat-penalty", "1.1"]
        done = subprocess.run(command, input=head, stdout=subprocess.PIPE)
        if done.returncode != 0:
            return done.returncode
        continuation = json.loads(done.stdout)["text"].encode()
        partial = written.with_suffix(".part")
        partial.write_bytes(head + continuation)
        partial.rename(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
