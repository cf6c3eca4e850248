#!/usr/bin/env python3
"""Counts what ctest and the GoogleTest binaries under it reported.

ctest sees one test per binary; the facts are the test cases inside. Each
binary writes <name>.json (GoogleTest's own report) beside ctest's junit file.
A binary that died without a report, or failed although all its cases passed
(a leak found at exit), counts as one failure.

Usage: summarise_tests.py REPORT_DIRECTORY; exits 1 unless all passed.
"""

import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count(reports: pathlib.Path) -> tuple[int, int, list[str]]:
    """Returns how many cases passed, how many skipped, and who failed."""
    passed = 0
    skipped = 0
    failed = []
    if not (reports / "ctest.xml").exists():
        return 0, 0, ["ctest (ended before its report)"]
    junit = ElementTree.parse(reports / "ctest.xml").getroot()
    for entry in junit.iter("testcase"):
        name = entry.get("name")
        ended_well = entry.get("status") == "run"
        report = reports / f"{name}.json"
        if not report.exists():
            if ended_well:
                passed += 1
            else:
                failed.append(f"{name} ({entry.get('status')}, no report)")
            continue
        failed_inside = []
        for suite in json.loads(report.read_text())["testsuites"]:
            for case in suite["testsuite"]:
                if "failures" in case:
                    failed_inside.append(f"{case['classname']}.{case['name']}")
                elif case["result"] == "COMPLETED":
                    passed += 1
                elif case["result"] == "SKIPPED":
                    skipped += 1
        failed += failed_inside
        if not ended_well and not failed_inside:
            failed.append(f"{name} (failed outside its cases)")
    return passed, skipped, failed


def main() -> int:
    passed, skipped, failed = count(pathlib.Path(sys.argv[1]))
    for name in failed:
        print(f"FAILED: {name}")
    print(f"tests: {passed} passed, {len(failed)} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
