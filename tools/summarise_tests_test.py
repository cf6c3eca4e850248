"""Feeds summarise_tests reports of each kind of ending."""

import json
import pathlib
import tempfile
import unittest

import summarise_tests


def gtest_report(**results: str) -> str:
    cases = []
    for name, result in results.items():
        case = {"name": name, "classname": "SuiteTest", "result": "COMPLETED"}
        if result == "failed":
            case["failures"] = [{"failure": "x"}]
        elif result == "skipped":
            case["result"] = "SKIPPED"
        cases.append(case)
    return json.dumps({"testsuites": [{"testsuite": cases}]})


class SummariseTestsTest(unittest.TestCase):
    def count(self, junit: dict[str, str], reports: dict[str, str]):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            entries = "".join(
                f'<testcase name="{name}" status="{status}"/>'
                for name, status in junit.items()
            )
            (root / "ctest.xml").write_text(f"<testsuite>{entries}</testsuite>")
            for name, text in reports.items():
                (root / f"{name}.json").write_text(text)
            return summarise_tests.count(root)

    def test_counts_cases_not_binaries(self):
        self.assertEqual(
            self.count(
                {"base": "run", "layers": "run"},
                {"base": gtest_report(A="ok", B="ok", C="skipped")},
            ),
            (3, 1, []),
        )

    def test_names_the_case_that_failed(self):
        self.assertEqual(
            self.count(
                {"base": "fail"}, {"base": gtest_report(A="ok", B="failed")}
            ),
            (1, 0, ["SuiteTest.B"]),
        )

    def test_crash_without_report_is_a_failure(self):
        passed, _, failed = self.count({"base": "fail", "text": "notrun"}, {})
        self.assertEqual((passed, len(failed)), (0, 2))

    def test_failure_after_the_last_case_is_a_failure(self):
        passed, _, failed = self.count(
            {"base": "fail"}, {"base": gtest_report(A="ok")}
        )
        self.assertEqual((passed, len(failed)), (1, 1))

    def test_interrupted_ctest_is_a_failure(self):
        with tempfile.TemporaryDirectory() as directory:
            _, _, failed = summarise_tests.count(pathlib.Path(directory))
            self.assertEqual(len(failed), 1)


if __name__ == "__main__":
    unittest.main()
