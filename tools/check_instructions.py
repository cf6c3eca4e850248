#!/usr/bin/env python3
"""Compares the instructions that programs execute with stored counts.

Usage: check_instructions.py [--update] FOLDER PROGRAM...

A time says little on a busy machine; a count of instructions is the same every
time. Each PROGRAM (see src/testing/counted_call.h) runs under callgrind, which
counts every counted call. FOLDER holds one file per compiler, because another
compiler writes other instructions. A count of more than 2 % above the stored
one fails; --update stores what was counted. Counts whose names differ only in
what follows an @ are of one call at different times, and must not differ by
more than 2 % either. Only the program's own code counts, no library of the
system. Valgrind knows no AVX-512, so the kernels of that set are not counted;
nor are those of AVX2 on a processor without it. There alone may a PROGRAM
count nothing.

Exits 1 on a failure. Without valgrind, or without a file for the compiler
there is nothing to compare: that is said, and is no failure.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOLERANCE = 0.02
CPU_INFO = pathlib.Path("/proc/cpuinfo")
COUNTED_FUNCTION = "LkvCountedCall"
EXPLAIN = (
    "If the change is worth it, say why in its commit message and store the"
    " new counts with scripts/count_instructions.sh --update."
)


def parse_output(output: str) -> tuple[str, list[str]]:
    """Returns the compiler and the names of the calls, in order."""
    compiler = ""
    names = []
    for line in output.splitlines():
        word, _, rest = line.partition(" ")
        if word == "compiler":
            compiler = rest
        elif word == "counted":
            names.append(rest)
    return compiler, names


def own_instructions(dump: str, program: str) -> int:
    """Returns the instructions of the program's own code in one dump.

    What libc and libm execute is left out: they choose among their functions
    by processor, and change with the system.
    """
    # (number) name, where a name occurs first; its number alone after that.
    objects = re.findall(r"^c?ob=\((\d+)\) (.+)$", dump, re.MULTILINE)
    own_numbers = {number for number, name in objects if name == program}
    if not own_numbers:
        raise ValueError(f"callgrind wrote a file without {program}")
    total = 0
    own = callee = False
    for line in dump.splitlines():
        if match := re.match(r"ob=\((\d+)\)", line):
            own = match.group(1) in own_numbers
        elif line.startswith("calls="):
            callee = True  # whose instructions the next line gives
        elif match := re.match(r"[-+*\d]\S* (\d+)$", line):
            if own and not callee:
                total += int(match.group(1))
            callee = False
    return total


def count(valgrind: str, program: str) -> tuple[str, dict[str, int]]:
    """Runs a program; returns its compiler and the instructions per call."""
    program = os.path.realpath(program)  # as callgrind writes it
    with tempfile.TemporaryDirectory() as directory:
        dumps = pathlib.Path(directory, "callgrind")
        run = subprocess.run(
            [
                valgrind,
                "--quiet",
                "--tool=callgrind",
                f"--callgrind-out-file={dumps}",
                f"--toggle-collect={COUNTED_FUNCTION}",
                f"--dump-after={COUNTED_FUNCTION}",
                program,
            ],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        compiler, names = parse_output(run.stdout)
        if not compiler or len(set(names)) != len(names):
            raise ValueError(f"{program}: no compiler, or one call twice")
        # Numbered from 1, in the order of the calls.
        return compiler, {
            name: own_instructions(
                pathlib.Path(f"{dumps}.{number}").read_text(), program
            )
            for number, name in enumerate(names, 1)
        }


def has_avx2() -> bool:
    return "avx2" in CPU_INFO.read_text().split()


def read_stored(path: pathlib.Path, compiler: str) -> dict[str, int]:
    """The counts of a file that --update wrote for this compiler. Raises
    ValueError, which says what is wrong with it."""
    try:
        content = json.loads(path.read_text())
        counts = content["instructions"]
        if content["compiler"] != compiler:
            raise ValueError(f"its counts are of {content['compiler']}")
        for name, instructions in counts.items():
            if type(instructions) is not int or instructions < 1:
                raise ValueError(f"{name} has {instructions} instructions")
    except (
        OSError,
        ValueError,  # that json and unicode raise, too
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ValueError(
            f"{path}: holds no counts ({error}); store them anew with --update"
        ) from None
    return counts


def compare(
    stored: dict[str, int], counted: dict[str, int]
) -> tuple[list[str], list[str]]:
    """Returns what fails, and what is worth knowing."""
    failures = []
    notes = []
    groups = {name.partition("/")[0] for name in counted}
    for name, after in counted.items():
        before = stored.get(name)
        if before is None:
            failures.append(f"{name}: {after} instructions, none stored")
            continue
        change = f"{name}: {after} instructions, stored {before}"
        change += f" ({100 * (after / before - 1):+.1f} %)"
        if after > before * (1 + TOLERANCE):
            failures.append(change)
        elif after < before * (1 - TOLERANCE):
            notes.append(f"{change}: store the gain with --update")
    missing = sorted(stored.keys() - counted.keys())
    not_run = sorted({name.partition("/")[0] for name in missing} - groups)
    notes += [f"{group}: not run by this processor" for group in not_run]
    failures += [
        f"{name}: stored, but no program counts it"
        for name in missing
        if name.partition("/")[0] in groups
    ]
    return failures, notes


def not_flat(counted: dict[str, int]) -> list[str]:
    """Returns the calls that need more instructions at some time."""
    times: dict[str, list[int]] = {}
    for name, instructions in counted.items():
        call, at, _ = name.partition("@")
        if at:
            times.setdefault(call, []).append(instructions)
    return [
        f"{call}: {min(counts)} to {max(counts)} instructions; must be flat"
        for call, counts in times.items()
        if max(counts) > min(counts) * (1 + TOLERANCE)
    ]


def store_name(compiler: str) -> str:
    """Returns gnu-12.2.0.json for `GNU 12.2.0`."""
    return re.sub(r"[^a-z0-9.]+", "-", compiler.lower()) + ".json"


def check(folder: pathlib.Path, programs: list[str], update: bool) -> int:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print(
            "instructions: skipped, valgrind is not installed;"
            " scripts/setup.sh --valgrind installs it"
        )
        return 0
    counted = {}
    compiler = ""
    for program in programs:
        try:
            compiler, calls = count(valgrind, program)
        except (ValueError, subprocess.CalledProcessError) as error:
            print(f"FAILED: {program}: cannot be counted ({error})")
            return 1
        if not calls and has_avx2():
            print(f"FAILED: {program} counts nothing")
            return 1
        counted |= calls
    uneven = not_flat(counted)
    for line in uneven:
        print(f"FAILED: {line}")
    if uneven:
        return 1
    path = folder / store_name(compiler)
    if update:
        content = {"compiler": compiler, "instructions": counted}
        path.write_text(json.dumps(content, indent=2) + "\n")
        print(f"instructions: stored {len(counted)} counts in {path.name}")
        return 0
    if not path.exists():
        known = sorted(other.stem for other in folder.glob("*.json"))
        print(
            f"instructions: skipped, no counts are stored for {compiler}"
            f" (only for {', '.join(known) or 'none'}); --update stores them"
        )
        return 0
    try:
        stored = read_stored(path, compiler)
    except ValueError as error:
        print(f"FAILED: {error}")
        return 1
    failures, notes = compare(stored, counted)
    for line in notes:
        print(f"note: {line}")
    for line in failures:
        print(f"FAILED: {line}")
    if failures:
        print(EXPLAIN)
        return 1
    print(
        f"instructions: {len(counted)} counts, none more than"
        f" {100 * TOLERANCE:.0f} % above {path.name}"
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("program", nargs="+")
    arguments = parser.parse_args()
    return check(arguments.folder, arguments.program, arguments.update)


if __name__ == "__main__":
    sys.exit(main())
