#!/usr/bin/env python3
"""Checks what is under version control for things that do not belong there.

Usage: check_hygiene.py ROOT

No path of somebody's machine, no host name of a package registry (pip, apt
and friends know theirs, and users may have a mirror), no file over 2 MB.
Outside a git checkout there is nothing to check. Exits 1 on a finding.
"""

import pathlib
import re
import subprocess
import sys

MAX_FILE_BYTES = 2_000_000

FORBIDDEN = {
    "machine path": re.compile(
        r"(?<![\w.$}~-])/(?:home|root|Users|work|mnt|workspace)/[\w.]"
    ),
    "registry host": re.compile(
        r"\b(?:pypi\.org|pythonhosted\.org|deb\.debian\.org"
        r"|archive\.ubuntu\.com|npmjs\.(?:org|com)|crates\.io|ghcr\.io"
        r"|docker\.io|huggingface\.co|anaconda\.(?:org|com)"
        r"|proxy\.golang\.org)"
    ),
}


def findings(root: pathlib.Path, names: list[str]) -> list[str]:
    found = []
    for name in names:
        path = root / name
        if path.is_symlink() or not path.is_file():
            continue
        if path.stat().st_size > MAX_FILE_BYTES:
            found.append(f"{name}: over {MAX_FILE_BYTES} bytes")
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            for kind, pattern in FORBIDDEN.items():
                match = pattern.search(line)
                if match:
                    found.append(f"{name}:{number}: {kind}: {match.group()}")
    return found


def tracked_files(root: pathlib.Path) -> list[str]:
    if not (root / ".git").exists():
        return []
    output = subprocess.run(
        ["git", "-c", f"safe.directory={root}", "ls-files", "-z"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [name for name in output.split("\0") if name]


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve()
    found = findings(root, tracked_files(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
