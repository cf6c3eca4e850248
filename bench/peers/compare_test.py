"""Runs compare.py as users do, with a script in place of lkv."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMPARE = pathlib.Path(__file__).with_name("compare.py")

# Decodes 100 tokens/s with its full cache and 200 with a part of it. Run number
# FAIL_AT fails; run number STOP_AT ends whoever runs it as a time limit does.
LKV = """#!{python}
import json, os, pathlib, signal, sys
if "--version" in sys.argv:
    sys.exit(print("lkv 0.1.0"))
count = pathlib.Path(__file__).with_suffix(".runs")
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
if number == int(os.environ.get("FAIL_AT", 0)):
    sys.exit("lkv: broken")
if number == int(os.environ.get("STOP_AT", 0)):
    os.kill(os.getppid(), signal.SIGTERM)
speed = 100 if "--budget=full" in sys.argv else 200
row = {{"kind": "decode", "tokens_per_second": speed, "stream_gb_s": 10}}
depths = [w.split("=")[1] for w in sys.argv if w.startswith("--depth=")]
print(json.dumps({{"rows": [{{**row, "depth": int(depths[0].split(",")[0])}}]}}))
"""
# One pair: a probe, lkv, a probe, its peer, a probe.
RUNS_PER_PAIR = 5


class CompareTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.out = pathlib.Path(directory.name)
        self.lkv = self.out / "lkv"
        self.lkv.write_text(LKV.format(python=sys.executable))
        self.lkv.chmod(0o755)
        (self.out / "model.gguf").touch()

    def compare(self, *options, **environment):
        """Returns the exit status and the messages."""
        command = [sys.executable, COMPARE, "--peers=lkv-full", "--pairs=2"]
        command += [f"--lkv={self.lkv}", f"--model={self.out / 'model.gguf'}"]
        done = subprocess.run(
            [*command, f"--out={self.out}", *options],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    def result(self):
        return json.loads((self.out / "benchmarks" / "result.json").read_text())

    def runs(self):
        return int(self.lkv.with_suffix(".runs").read_text())

    def page(self):
        return (self.out / "benchmarks.md").read_text()

    def test_leaves_result_page_and_plots(self):
        code, messages = self.compare("--rows=decode-64-25%")
        self.assertEqual(code, 0, messages)
        row = self.result()["rows"][0]
        self.assertEqual(row["peers"]["lkv-full"]["ratio_median"], 2)
        self.assertEqual(row["peers"]["lkv-full"]["pairs"], 2)
        self.assertIn("2.00x (2.00 to 2.00, n = 2)", self.page())
        for plot in ("benchmarks/ratios.svg", "benchmarks/speeds.svg"):
            self.assertTrue((self.out / plot).exists())
            self.assertIn(f"({plot})", self.page())

    def test_a_time_limit_keeps_what_is_measured(self):
        code, messages = self.compare(
            "--rows=decode-64-25%", STOP_AT=str(RUNS_PER_PAIR + 2)
        )
        self.assertEqual(code, 130, messages)
        self.assertEqual(len(self.result()["pairs"]), 1)
        self.assertIn("n = 1)", self.page())

    def test_a_crash_of_lkv_keeps_what_is_measured(self):
        code, messages = self.compare(
            "--rows=decode-64-25%", FAIL_AT=str(RUNS_PER_PAIR + 2)
        )
        self.assertEqual(len(self.result()["pairs"]), 1, messages)
        self.assertIn("lkv: broken", self.page())

    def test_resume_measures_only_what_is_missing(self):
        self.compare("--rows=decode-64-25%", STOP_AT=str(RUNS_PER_PAIR + 2))
        before = self.runs()
        code, messages = self.compare("--rows=decode-64-25%", "--resume")
        self.assertEqual(code, 0, messages)
        self.assertEqual(self.runs() - before, RUNS_PER_PAIR)
        self.assertEqual(len(self.result()["pairs"]), 2)

    def test_rows_of_several_runs_stand_in_one_result(self):
        self.compare("--rows=decode-64-25%", "--resume")
        self.compare("--rows=decode-128-25%", "--resume")
        result = self.result()
        self.assertEqual(
            [(row["name"], len(row["peers"])) for row in result["rows"]],
            [("decode-64-25%", 1), ("decode-128-25%", 1)],
        )

    def test_without_resume_the_result_is_made_anew(self):
        self.compare("--rows=decode-64-25%")
        self.compare("--rows=decode-128-25%")
        self.assertEqual(len(self.result()["rows"]), 1)

    def test_figures_of_other_conditions_are_not_mixed(self):
        self.compare("--rows=decode-64-25%")
        stored = self.result()
        code, messages = self.compare(
            "--rows=decode-64-25%", "--resume", "--threads=1"
        )
        self.assertEqual(code, 1)
        self.assertIn("has threads 2, now it is 1", messages)
        self.assertEqual(self.result(), stored)

    def test_the_page_is_written_anew_from_the_stored_result(self):
        self.compare("--rows=decode-64-25%")
        page = self.page()
        before = self.runs()
        for name in ("benchmarks.md", "benchmarks/ratios.svg"):
            (self.out / name).unlink()
        code, messages = self.compare("--page-only")
        self.assertEqual(code, 0, messages)
        self.assertEqual(self.page(), page)
        self.assertTrue((self.out / "benchmarks" / "ratios.svg").exists())
        self.assertEqual(self.runs(), before)

    def test_a_damaged_result_is_named(self):
        self.compare("--rows=decode-64-25%")
        path = self.out / "benchmarks" / "result.json"
        sound = path.read_text()

        def without(name):
            return json.dumps(
                {k: v for k, v in json.loads(sound).items() if k != name}
            )

        def changed(**fields):
            return json.dumps(json.loads(sound) | fields)

        for damaged in [
            "[]",
            "[" * 100_000,
            '{"pairs": []}',
            without("skipped"),
            without("versions"),
            without("processor"),
            changed(skipped=[{"peer": "x"}]),
            changed(rows=[{"name": "bogus"}]),
            changed(pairs=[json.loads(sound)["pairs"][0] | {"peer_runs": []}]),
            sound.replace("10", "0"),
        ]:
            path.write_text(damaged)
            for option in ("--page-only", "--resume"):
                code, messages = self.compare("--rows=decode-64-25%", option)
                self.assertEqual(code, 1, damaged[:80])
                self.assertIn("no result of compare.py", messages)
                self.assertNotIn("Traceback", messages)
        self.assertEqual(path.read_text(), damaged)

    def test_where_results_cannot_go_is_said_before_anything_is_measured(self):
        (self.out / "benchmarks").touch()
        code, messages = self.compare("--rows=decode-64-25%")
        self.assertEqual(code, 2)
        self.assertIn("--out: cannot take the results", messages)
        (self.out / "benchmarks").unlink()
        (self.out / "benchmarks.md").write_text("a page without its markers")
        code, messages = self.compare("--rows=decode-64-25%")
        self.assertEqual(code, 2)
        self.assertFalse(self.lkv.with_suffix(".runs").exists())

    def test_values_that_cannot_work_are_refused(self):
        for option in [
            "--max-drift=nan",
            "--max-drift=-5",
            "--threads=99999999999",
            "--threads=257",
            "--pairs=0",
            "--pairs=\u0663",
            "--gen=x",
            "--rows=decode-999999999999",
            "--rows=batch999-2048",
            "--rows=decode-000",
            "--model=",
            "--model=/no/such/model",
        ]:
            code, messages = self.compare("--dry-run", option)
            self.assertEqual(code, 2, option)
            self.assertNotIn("Traceback", messages)

    def test_no_stored_result_is_said(self):
        code, messages = self.compare("--page-only")
        self.assertEqual(code, 1)
        self.assertIn("result.json: no result of compare.py", messages)


if __name__ == "__main__":
    unittest.main()
