"""Checks the table of texts and how plain text is taken out of packages."""

import collections
import pathlib
import tempfile
import unittest
import zlib

import fetch_texts


def r_string(text: bytes) -> bytes:
    return b"\x00\x04\x00\x09" + len(text).to_bytes(4, "big") + text


def r_object(*lines: bytes) -> bytes:
    serialized = b"X\n" + b"".join(map(r_string, lines))
    packed = zlib.compress(serialized)
    return len(serialized).to_bytes(4, "big") + packed


class FetchTextsTest(unittest.TestCase):
    def test_no_text_is_both_trained_on_and_held_out(self):
        places = collections.Counter(
            (source.package, source.path, source.part)
            for source in fetch_texts.SOURCES
        )
        self.assertEqual(set(places.values()), {1})
        names = {
            fetch_texts.target(source, pathlib.Path("x"))
            for source in fetch_texts.SOURCES
        }
        self.assertEqual(len(names), len(fetch_texts.SOURCES))

    def test_every_kind_has_texts_of_both_splits(self):
        kinds = collections.defaultdict(set)
        for source in fetch_texts.SOURCES:
            kinds[source.kind].add(source.split)
            self.assertTrue(source.licence)
        self.assertEqual(set(kinds), {"prose", "code", "reference"})
        for splits in kinds.values():
            self.assertEqual(splits, {"train", "heldout"})

    def test_a_page_becomes_its_text(self):
        page = (
            "<html><style>p {}</style><h1>Title</h1><p>One &amp; two</p>"
            "<script>x()</script><p>three <b>four</b></p></html>"
        )
        self.assertEqual(
            fetch_texts.text_of_html(page), "Title\nOne & two\nthree four\n"
        )

    def test_lines_of_r_data_are_found_by_object(self):
        data = r_object(b"one", b"", b"two") + r_object(b"caf\xe9")
        self.assertEqual(fetch_texts.text_of_r_data(data, 0), "one\n\ntwo\n")
        self.assertEqual(fetch_texts.text_of_r_data(data, 1), "caf\u00e9\n")

    def test_texts_that_are_there_are_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            for source in fetch_texts.SOURCES:
                path = fetch_texts.target(source, out)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("mine")
            fetch_texts.fetch(out)
            for source in fetch_texts.SOURCES:
                path = fetch_texts.target(source, out)
                self.assertEqual(path.read_text(), "mine")
            self.assertIn("MIT", (out / "LICENCES.md").read_text())


if __name__ == "__main__":
    unittest.main()
