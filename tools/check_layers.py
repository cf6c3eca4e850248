#!/usr/bin/env python3
"""Checks that every #include goes down the layer table.

Usage: check_layers.py SOURCE_ROOT

Reads src/ and include/ and prints one line per violation:
  * a project header must lie in the same folder or in a lower layer;
  * src/testing is included by tests only;
  * a third-party header is included only by its one adapter folder;
  * users of include/lookaheadkv see neither private nor third-party headers.
Exits 1 if there is a violation.
"""

import pathlib
import re
import sys

# Every include goes to a smaller number, so a cycle cannot be written.
LAYERS = {
    "base": 0,
    "kernels": 1, "io": 1, "metrics": 1, "options": 1,
    "policy": 2, "store": 2, "text": 2, "gguf": 2,
    "trace": 3, "cache": 3,
    "session": 4, "model": 4, "train": 4,
    "cuda": 5,
    "engine": 6,
    "server": 7, "eval": 7,
    "cli": 8,
    "testing": 9,
}

# The layer from which on a folder may include a public header. Vocabulary
# (status, options) is for all; the others are spoken by engine and above.
PUBLIC_VOCABULARY = {"status.h": 0, "export.h": 0, "options.h": 0}
PUBLIC_LAYER = LAYERS["engine"]

# Third-party headers (a prefix of the include path) and who may include them.
THIRD_PARTY = {
    "ggml": {"gguf", "testing"},
    "gguf.h": {"gguf", "text", "testing"},
    "llama": {"text", "testing"},
    "yaml-cpp/": {"options"},
    "CLI/": {"cli"},
    "nlohmann/": {"cli"},
    "histedit.h": {"cli"},
    "gtest/": {"testing"},
    "immintrin.h": {"base", "kernels"},
    "isa-l/": {"io"},
    "liburing.h": {"io"},
    "openssl/": {"io"},
    "sqlite3.h": {"session"},
}

# Headers of the operating system and of C: no dot-less C++ name, not ours.
SYSTEM = re.compile(
    r"^(sys|linux|asm|netinet|arpa)/"
    r"|^(assert|dirent|errno|fcntl|float|limits|math|poll|pthread|pty|sched|signal"
    r"|stddef|stdint|stdio|stdlib|string|termios|time|unistd)\.h$"
)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {".h", ".cc", ".in"}


def violation_of_project_include(
    root: pathlib.Path, folder: str, is_test: bool, header: str
) -> str | None:
    """Judges an include of src/<target>/... or lookaheadkv/...."""
    target, _, name = header.partition("/")
    if target == "lookaheadkv":
        if not (root / "include" / header).exists():
            return "no such public header"
        lowest = PUBLIC_VOCABULARY.get(name, PUBLIC_LAYER)
        if folder == "lookaheadkv" or LAYERS[folder] >= lowest:
            return None
        return f"{folder} is below the layer of this public header ({lowest})"
    if folder == "lookaheadkv":
        return "public headers include public headers only"
    if target not in LAYERS:
        return f"{target} is not in the layer table"
    if not (root / "src" / header).exists():
        return "no such header under src/"
    if target == folder:
        return None
    if target == "testing":
        return None if is_test else "testing is for tests only"
    if LAYERS[target] < LAYERS[folder]:
        return None
    return (
        f"{folder} (layer {LAYERS[folder]}) may not include {target} "
        f"(layer {LAYERS[target]})"
    )


def violation_of_other_include(
    folder: str, is_test: bool, header: str
) -> str | None:
    """Judges an include of a standard, system or third-party header."""
    for prefix, folders in THIRD_PARTY.items():
        if header.startswith(prefix):
            if folder in folders or (is_test and "testing" in folders):
                return None
            return f"only {', '.join(sorted(folders))} may include {header}"
    if "." not in header and "/" not in header or SYSTEM.search(header):
        return None
    return "unknown third-party header; name its adapter in check_layers.py"


def includes_of(path: pathlib.Path) -> list[tuple[int, str]]:
    """Returns (line number, header) of every include in a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    matches = [(n, INCLUDE.match(line)) for n, line in enumerate(lines, 1)]
    return [(n, match.group(2)) for n, match in matches if match]


def test_files(root: pathlib.Path, files: list[pathlib.Path]) -> set:
    """Returns tests, benchmarks, src/testing, and what only these include."""
    tests = {
        path
        for path in files
        if path.stem.endswith(("_test", "_bench"))
        or path.is_relative_to(root / "src" / "testing")
    }
    includers: dict[pathlib.Path, set] = {}
    for path in files:
        for _, header in includes_of(path):
            includers.setdefault(root / "src" / header, set()).add(path)
    return tests | {
        path
        for path in files
        if path in includers and includers[path] <= tests
    }


def violations(root: pathlib.Path) -> list[str]:
    found = []
    files = [
        path
        for top in ("src", "include")
        for path in sorted((root / top).rglob("*"))
        if path.suffix in SUFFIXES
    ]
    tests = test_files(root, files)
    for path in files:
        relative = path.relative_to(root)
        folder = relative.parts[1]
        if folder != "lookaheadkv" and folder not in LAYERS:
            found.append(f"{relative}: {folder} is not in the layer table")
            continue
        for number, header in includes_of(path):
            target = header.partition("/")[0]
            if target in LAYERS or target == "lookaheadkv":
                reason = violation_of_project_include(
                    root, folder, path in tests, header
                )
            else:
                reason = violation_of_other_include(
                    folder, path in tests, header
                )
            if reason:
                found.append(f"{relative}:{number}: {header}: {reason}")
    if not files:
        found.append(f"{root}: no sources found under src/ and include/")
    return found


def main() -> int:
    found = violations(pathlib.Path(sys.argv[1]))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
