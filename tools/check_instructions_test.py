"""Feeds check_instructions made-up counts, and a valgrind that is a script."""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import check_instructions

# Writes one file per counted call, as callgrind does, and the program's output.
VALGRIND = """#!/bin/sh
for word in "$@"; do
  case $word in --callgrind-out-file=*) dumps=${word#*=} ;; esac
  program=$word
done
echo 'compiler GNU 12.2.0'
number=0
for total in $TOTALS; do
  number=$((number + 1))
  printf 'ob=(1) %s\\nfn=(1) Call\\n0 %s\\n' "$program" "$total" \\
    >"$dumps.$number"
  echo "counted avx2/call $number"
done
"""


# Half of what callgrind writes about one call.
DUMP = """version: 1
pid: 30
positions: line
events: Ir
summary: 141

ob=(8) /build/program
fl=(161) ???
fn=(26) Kernel
0 60
cob=(3) /usr/lib/libm.so.6
cfi=(5) exp.c
cfn=(7) exp
calls=2 0
0 41
+3 20

ob=(3)
fl=(5)
fn=(7)
12 30
* 11

ob=(8)
fn=(27) main
cfn=(26)
calls=1 0
0 121
0 4

totals: 141
"""


class OwnInstructionsTest(unittest.TestCase):
    def test_libraries_and_callees_do_not_count(self):
        self.assertEqual(
            check_instructions.own_instructions(DUMP, "/build/program"),
            60 + 20 + 4,
        )

    def test_a_dump_without_the_program_is_refused(self):
        with self.assertRaises(ValueError):
            check_instructions.own_instructions(DUMP, "/build/other")


class CompareTest(unittest.TestCase):
    def test_up_to_two_percent_more_passes(self):
        stored = {"avx2/add": 1000}
        self.assertEqual(
            check_instructions.compare(stored, {"avx2/add": 1020}), ([], [])
        )
        failures, _ = check_instructions.compare(stored, {"avx2/add": 1021})
        self.assertEqual(
            failures, ["avx2/add: 1021 instructions, stored 1000 (+2.1 %)"]
        )

    def test_gain_is_a_note(self):
        failures, notes = check_instructions.compare(
            {"avx2/add": 1000}, {"avx2/add": 900}
        )
        self.assertEqual(failures, [])
        self.assertIn("-10.0 %", notes[0])

    def test_call_that_is_not_stored_fails(self):
        failures, _ = check_instructions.compare({}, {"avx2/add": 7})
        self.assertEqual(failures, ["avx2/add: 7 instructions, none stored"])

    def test_stored_call_that_is_gone_fails(self):
        failures, _ = check_instructions.compare(
            {"avx2/add": 7, "avx2/old": 7}, {"avx2/add": 7}
        )
        self.assertEqual(
            failures, ["avx2/old: stored, but no program counts it"]
        )

    def test_set_that_the_processor_lacks_is_a_note(self):
        self.assertEqual(
            check_instructions.compare(
                {"avx2/add": 7, "avx2/dot": 7, "scalar/add": 9},
                {"scalar/add": 9},
            ),
            ([], ["avx2: not run by this processor"]),
        )


class NotFlatTest(unittest.TestCase):
    def test_growth_over_time_is_named(self):
        self.assertEqual(
            check_instructions.not_flat(
                {"a@1": 100, "a@2": 102, "b@1": 100, "b@2": 103, "c": 999}
            ),
            ["b: 100 to 103 instructions; must be flat"],
        )


class CheckTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)
        valgrind = self.folder / "bin" / "valgrind"
        valgrind.parent.mkdir()
        valgrind.write_text(VALGRIND)
        valgrind.chmod(0o755)

    def check(
        self,
        totals: str,
        update: bool = False,
        path: str = "bin",
        processor: str = "fma avx2 bmi2",
    ):
        """Returns the exit status and what was printed."""
        environment = {
            "PATH": (
                f"{self.folder / path}:{os.environ['PATH']}" if path else ""
            ),
            "TOTALS": totals,
        }
        cpu_info = self.folder / "cpuinfo"
        cpu_info.write_text(f"flags\t\t: {processor}\n")
        output = io.StringIO()
        with mock.patch.dict(os.environ, environment), mock.patch.object(
            check_instructions, "CPU_INFO", cpu_info
        ):
            with contextlib.redirect_stdout(output):
                status = check_instructions.check(
                    self.folder, ["program"], update
                )
        return status, output.getvalue()

    def test_compares_with_what_was_stored(self):
        self.assertEqual(self.check("1000 50", update=True)[0], 0)
        stored = json.loads((self.folder / "gnu-12.2.0.json").read_text())
        self.assertEqual(stored["compiler"], "GNU 12.2.0")
        self.assertEqual(
            stored["instructions"], {"avx2/call 1": 1000, "avx2/call 2": 50}
        )
        self.assertEqual(self.check("1010 50")[0], 0)
        status, output = self.check("1000 60")
        self.assertEqual(status, 1)
        self.assertIn("FAILED: avx2/call 2: 60 instructions", output)
        self.assertIn("--update", output)

    def test_a_processor_without_any_counted_set_passes(self):
        self.check("1000 50", update=True)
        status, output = self.check("", processor="sse4_2 avx")
        self.assertEqual(status, 0)
        self.assertIn("avx2: not run by this processor", output)

    def test_a_program_that_counts_nothing_fails(self):
        self.check("1000 50", update=True)
        status, output = self.check("")
        self.assertEqual(status, 1)
        self.assertIn("FAILED: program counts nothing", output)
        self.assertEqual(self.check("", update=True)[0], 1)

    def test_damaged_counts_are_named(self):
        self.check("1000 50", update=True)
        path = self.folder / "gnu-12.2.0.json"
        sound = path.read_text()
        for damaged in [
            "",
            sound[:40],
            "[]",
            "{}",
            '{"instructions": null, "compiler": "GNU 12.2.0"}',
            sound.replace("1000", "0"),
            sound.replace("1000", "NaN"),
            sound.replace("1000", '"1000"'),
            sound.replace("GNU", "Clang"),
        ]:
            path.write_text(damaged)
            status, output = self.check("1000 50")
            self.assertEqual(status, 1, damaged)
            self.assertIn("gnu-12.2.0.json: holds no counts", output)

    def test_another_compiler_is_skipped(self):
        (self.folder / "clang-14.0.6.json").write_text("{}")
        status, output = self.check("1000")
        self.assertEqual(status, 0)
        self.assertIn("skipped, no counts are stored for GNU 12.2.0", output)
        self.assertIn("only for clang-14.0.6", output)

    def test_missing_valgrind_is_skipped(self):
        status, output = self.check("1000", path="")
        self.assertEqual(status, 0)
        self.assertIn("skipped, valgrind is not installed", output)


if __name__ == "__main__":
    unittest.main()
