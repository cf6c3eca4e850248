#!/usr/bin/env python3
"""Checks that objects compiled for AVX keep their inline functions private.

Usage: check_kernel_symbols.py OBJECT...

An inline function that two objects emit is merged by the linker: it keeps
one copy, maybe the one compiled with AVX-512, and every caller in the program
runs it, also on a machine without AVX-512. Objects with "_avx" in their name
must therefore define no weak or unique symbol; functions there are static or
in an anonymous namespace. Exits 1 if one does, or if no object is given.
"""

import pathlib
import subprocess
import sys

# nm's letters of defined symbols that the linker merges between objects.
MERGED = {"W", "V", "u"}
# A pointer to the runtime's own function: data, the same in every object.
ALLOWED = {"DW.ref.__gxx_personality_v0"}


def merged_symbols(nm_output: str) -> list[str]:
    found = []
    for line in nm_output.splitlines():
        fields = line.split(maxsplit=2)
        if len(fields) != 3:
            continue  # undefined symbols have no address
        _, letter, symbol = fields
        if letter in MERGED and symbol not in ALLOWED:
            found.append(symbol)
    return found


def main() -> int:
    objects = [o for o in sys.argv[1:] if "_avx" in pathlib.Path(o).name]
    if not objects:
        print("no object with _avx in its name was given")
        return 1
    failed = False
    for path in objects:
        output = subprocess.run(
            ["nm", "--demangle", path],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for symbol in merged_symbols(output):
            print(f"{pathlib.Path(path).name}: shared symbol {symbol}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
