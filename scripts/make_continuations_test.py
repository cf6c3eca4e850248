"""Tests of make_continuations.py."""

import pathlib
import stat
import sys
import tempfile
import unittest
import unittest.mock

import make_continuations

# Stands in for lkv: its continuation is what it was given, in capitals.
FAKE_LKV = f"""#!{sys.executable}
import json, sys
print(json.dumps({{"text": sys.stdin.read().upper()}}))
"""


class OpeningTest(unittest.TestCase):
    def test_ends_with_a_line(self) -> None:
        text = b"one\ntwo\nthree\n"
        self.assertEqual(make_continuations.opening(text, 10), b"one\ntwo\n")

    def test_of_a_long_line_is_as_long_as_asked_for(self) -> None:
        self.assertEqual(make_continuations.opening(b"x" * 99, 10), b"x" * 10)

    def test_of_a_short_text_is_all_of_it(self) -> None:
        self.assertEqual(make_continuations.opening(b"a\nb", 10), b"a\nb")

    def test_cuts_no_character(self) -> None:
        make_continuations.opening("äöü".encode() * 9, 7).decode()


class MainTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "texts").mkdir()
        (self.folder / "texts/a.txt").write_text("a line\nand the rest")
        self.lkv = self.folder / "lkv"
        self.write_lkv(FAKE_LKV)

    def write_lkv(self, script: str) -> None:
        self.lkv.write_text(script)
        self.lkv.chmod(self.lkv.stat().st_mode | stat.S_IXUSR)

    def run_main(self) -> int:
        command = ["make_continuations.py", "--opening", "9"]
        command += ["--texts", str(self.folder / "texts")]
        command += ["--output", str(self.folder / "own")]
        command += ["--lkv", str(self.lkv)]
        with unittest.mock.patch("sys.argv", command):
            return make_continuations.main()

    def test_writes_the_opening_and_what_the_model_writes_behind_it(self):
        self.assertEqual(self.run_main(), 0)
        own = self.folder / "own/own-a.txt"
        self.assertEqual(own.read_text(), "a line\nA LINE\n")

    def test_leaves_alone_what_is_there(self) -> None:
        (self.folder / "own").mkdir()
        own = self.folder / "own/own-a.txt"
        own.write_text("kept")
        self.assertEqual(self.run_main(), 0)
        self.assertEqual(own.read_text(), "kept")

    def test_says_when_there_is_no_program(self) -> None:
        self.lkv.unlink()
        with self.assertRaisesRegex(SystemExit, "lkv: is not there"):
            self.run_main()

    def test_writes_nothing_when_the_model_fails(self) -> None:
        self.write_lkv(f"#!{sys.executable}\nraise SystemExit(3)\n")
        self.assertEqual(self.run_main(), 3)
        self.assertEqual(list((self.folder / "own").iterdir()), [])


if __name__ == "__main__":
    unittest.main()
