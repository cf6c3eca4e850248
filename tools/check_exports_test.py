"""Plants what must not be visible in a symbol table."""

import pathlib
import tempfile
import unittest

import check_exports

CLEAN = """\
0000000000001000 T lkv::Model::Open(std::string const&)
0000000000001010 T lkv::Model::~Model()
0000000000001020 W std::vector<int>::push_back(int&&)
"""


class CheckExportsTest(unittest.TestCase):
    def test_members_of_exported_classes_pass(self):
        self.assertEqual(check_exports.problems(CLEAN, {"Model"}), [])

    def test_each_planted_symbol_is_named(self):
        for symbol in (
            "T lkv::PagePool::Allocate()",
            "T lkv::ModelLoader::Load(std::string const&)",
            "T llama_decode",
            "B ggml_critical_section",
            "W lkv::Result<int>::~Result()",
        ):
            found = check_exports.problems(
                f"{CLEAN}0000000000002000 {symbol}\n", {"Model"}
            )
            self.assertEqual(len(found), 1, symbol)
            self.assertIn(symbol[2:], found[0])

    def test_missing_class_is_named(self):
        found = check_exports.problems(CLEAN, {"Model", "Session"})
        self.assertEqual(found, ["does not export lkv::Session"])

    def test_reads_classes_from_headers(self):
        with tempfile.TemporaryDirectory() as directory:
            header = pathlib.Path(directory, "a.h")
            header.write_text("class LKV_EXPORT A {\n};\nclass B {\n};\n")
            self.assertEqual(
                check_exports.exported_classes(pathlib.Path(directory)), {"A"}
            )


if __name__ == "__main__":
    unittest.main()
