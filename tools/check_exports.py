#!/usr/bin/env python3
"""Checks what the shared library shows to programs that link it.

Usage: check_exports.py LIBRARY INCLUDE_DIRECTORY

Its dynamic symbols must be members of the classes that the public headers
mark LKV_EXPORT, all of these classes must be there, and nothing else: no
private layer, no llama.cpp (a program may link another copy of it). Templates
of the standard library are visible by its own decision and do no harm.
"""

import pathlib
import re
import subprocess
import sys

EXPORTED_CLASS = re.compile(r"\b(?:class|struct) LKV_EXPORT (\w+)")
# "<address> <type> <demangled name>"
SYMBOL = re.compile(r"^[0-9a-f]+ (\w) (.+)$", re.MULTILINE)
STANDARD = re.compile(r"\bstd::|\b__gnu_cxx::|^operator (?:new|delete)")


def exported_classes(include: pathlib.Path) -> set[str]:
    return {
        name
        for header in include.rglob("*.h")
        for name in EXPORTED_CLASS.findall(header.read_text(encoding="utf-8"))
    }


def problems(nm_output: str, classes: set[str]) -> list[str]:
    found = []
    missing = set(classes)
    for kind, symbol in SYMBOL.findall(nm_output):
        member = re.match(r"(?:(?:vtable|typeinfo(?: name)?) for )?"
                          r"lkv::(\w+)(?:::|$)", symbol)
        if member and member.group(1) in classes:
            missing.discard(member.group(1))
        elif not (kind in "WVu" and STANDARD.search(symbol)):
            found.append(f"exports {symbol}")
    found += [f"does not export lkv::{name}" for name in sorted(missing)]
    if not classes:
        found.append("the public headers mark no class LKV_EXPORT")
    return found


def main() -> int:
    library, include = sys.argv[1:]
    output = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--demangle", library],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = problems(output, exported_classes(pathlib.Path(include)))
    for line in found:
        print(f"{pathlib.Path(library).name}: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
