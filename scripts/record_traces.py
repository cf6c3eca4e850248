#!/usr/bin/env python3
"""record_traces.py [--texts FOLDER] [--output FOLDER]: traces to train on.

Cuts windows out of every text of a folder (default .deps/texts/train, what
fetch_texts.py gets) and has `lkv trace record` write an attention trace with a
second reading of each (default .deps/traces). Windows lie evenly over a text.
Traces that are there already are left alone, unless this lkv does not read
them, as those of another version. 32 traces of 3,072 tokens take 8 GB and a
quarter of an hour on two cores.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# More than a token of any kind of text has.
MOST_BYTES_PER_TOKEN = 8


def windows(text: bytes, n_windows: int, n_tokens: int) -> list[bytes]:
    """Pieces of at least n_tokens tokens, evenly over the text."""
    n_bytes = min(n_tokens * MOST_BYTES_PER_TOKEN, len(text))
    room = len(text) - n_bytes
    begins = {room * i // max(1, n_windows - 1) for i in range(n_windows)}
    pieces = []
    for begin in sorted(begins):
        piece = text[begin : begin + n_bytes]
        # Not in the middle of a character.
        pieces.append(piece.decode("utf-8", errors="ignore").encode())
    return pieces


def is_readable(trace: pathlib.Path, lkv: pathlib.Path) -> bool:
    """Whether there is a trace that this lkv reads: versions change."""
    info = [lkv.resolve(), "trace", "info", trace, "--json"]
    return trace.exists() and (
        subprocess.run(info, capture_output=True).returncode == 0
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--texts", type=pathlib.Path, default=ROOT / ".deps/texts/train"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / ".deps/traces"
    )
    parser.add_argument(
        "--lkv", type=pathlib.Path, default=ROOT / "build/release/bin/lkv"
    )
    parser.add_argument("--windows", type=int, default=2, help="of each text")
    parser.add_argument("--tokens", type=int, default=3072, help="of a window")
    options = parser.parse_args()
    texts = sorted(options.texts.glob("*.txt"))
    if not texts:
        sys.exit(
            f"record_traces.py: {options.texts}: has no texts; run"
            " scripts/fetch_texts.py"
        )
    options.output.mkdir(parents=True, exist_ok=True)
    jobs = [
        (number, path, piece)
        for path in texts
        for number, piece in enumerate(
            windows(path.read_bytes(), options.windows, options.tokens)
        )
    ]
    # One window of every text first: a folder that is not complete yet is
    # varied already.
    for number, path, piece in sorted(jobs, key=lambda job: job[0]):
        trace = options.output / f"{path.stem}-{number}.trace"
        if is_readable(trace, options.lkv):
            continue
        print(f"{trace.name}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            # The trace says what text it is of.
            (pathlib.Path(folder) / path.name).write_bytes(piece)
            command = [options.lkv.resolve(), "trace", "record", "--reread"]
            command += ["-f", path.name, "-o", trace.resolve(), "--json"]
            command += ["--steps", str(options.tokens)]
            done = subprocess.run(
                command, cwd=folder, stdout=subprocess.DEVNULL
            )
        if done.returncode != 0:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
