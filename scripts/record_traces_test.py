"""Tests of record_traces.py."""

import pathlib
import sys
import tempfile
import unittest

import record_traces


class WindowsTest(unittest.TestCase):
    def test_windows_lie_evenly_over_the_text(self) -> None:
        text = bytes(range(256)) * 40
        pieces = record_traces.windows(
            bytes(b % 128 for b in text), n_windows=3, n_tokens=10
        )
        self.assertEqual([len(piece) for piece in pieces], [80, 80, 80])
        self.assertEqual(pieces[0][:3], b"\0\1\2")

    def test_a_short_text_is_one_window(self) -> None:
        self.assertEqual(
            record_traces.windows(b"short", n_windows=4, n_tokens=10),
            [b"short"],
        )

    def test_no_character_is_cut(self) -> None:
        text = "äöü".encode() * 100
        for piece in record_traces.windows(text, n_windows=5, n_tokens=3):
            piece.decode()


class IsReadableTest(unittest.TestCase):
    def is_readable(self, exit_code: int, exists: bool = True) -> bool:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            lkv = folder / "lkv"
            lkv.write_text(f"#!{sys.executable}\nraise SystemExit({exit_code})")
            lkv.chmod(0o700)
            if exists:
                (folder / "a.trace").touch()
            return record_traces.is_readable(folder / "a.trace", lkv)

    def test_what_lkv_reads_is_left_alone(self) -> None:
        self.assertTrue(self.is_readable(0))

    def test_a_trace_of_another_version_is_recorded_again(self) -> None:
        self.assertFalse(self.is_readable(3))

    def test_what_is_not_there_is_recorded(self) -> None:
        self.assertFalse(self.is_readable(0, exists=False))


if __name__ == "__main__":
    unittest.main()
