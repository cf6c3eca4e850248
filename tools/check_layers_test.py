"""Plants one violation of each kind and expects check_layers to name it."""

import pathlib
import tempfile
import unittest

import check_layers

# A tree without violations; each test adds one.
CLEAN = {
    "include/lookaheadkv/status.h": "#include <string>\n",
    "include/lookaheadkv/engine.h": '#include "lookaheadkv/status.h"\n',
    "src/base/check.h": '#include "lookaheadkv/status.h"\n',
    "src/policy/scorer.h": '#include "base/check.h"\n#include <sys/mman.h>\n',
    "src/store/pool.h": '#include "base/check.h"\n',
    "src/cache/kv.h": '#include "policy/scorer.h"\n#include "store/pool.h"\n',
    "src/engine/engine.h": '#include "cache/kv.h"\n'
    '#include "lookaheadkv/engine.h"\n',
    "src/gguf/file.cc": '#include "gguf.h"\n',
    "src/testing/oracle.h": "#include <llama.h>\n",
    "src/store/pool_cases.h": "#include <gtest/gtest.h>\n",
    "src/store/pool_test.cc": '#include <gtest/gtest.h>\n'
    '#include "store/pool.h"\n#include "store/pool_cases.h"\n'
    '#include "testing/oracle.h"\n',
}


class CheckLayersTest(unittest.TestCase):
    def violations_with(self, path: str, include: str) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            for name, text in {**CLEAN, path: f"#include {include}\n"}.items():
                file = root / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return check_layers.violations(root)

    def test_clean_tree_passes(self):
        self.assertEqual(self.violations_with("src/base/x.cc", "<vector>"), [])

    def test_same_folder_passes(self):
        self.assertEqual(
            self.violations_with("src/store/x.cc", '"store/pool.h"'), []
        )

    def test_header_of_tests_stops_being_one_in_the_product(self):
        found = self.violations_with("src/store/x.cc", '"store/pool_cases.h"')
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith("src/store/pool_cases.h"), found)

    def test_each_planted_violation_is_named(self):
        planted = {
            "upward": ("src/base/x.cc", '"policy/scorer.h"'),
            "sideways": ("src/policy/x.cc", '"store/pool.h"'),
            "spaced": ("src/base/x.h", ' "cache/kv.h"'),
            "test file upward": ("src/store/x_test.cc", '"cache/kv.h"'),
            "testing in product": ("src/engine/x.cc", '"testing/oracle.h"'),
            "gtest in product": ("src/engine/x.cc", "<gtest/gtest.h>"),
            "public header too high": (
                "src/cache/x.cc",
                '"lookaheadkv/engine.h"',
            ),
            "private in public": (
                "include/lookaheadkv/x.h",
                '"base/check.h"',
            ),
            "third party in public": (
                "include/lookaheadkv/x.h",
                "<nlohmann/json.hpp>",
            ),
            "ggml outside its adapter": ("src/model/x.cc", '"ggml.h"'),
            "llama outside its adapter": ("src/engine/x.cc", "<llama.h>"),
            "yaml outside its adapter": ("src/cli/x.cc", "<yaml-cpp/yaml.h>"),
            "json outside its adapter": (
                "src/eval/x.cc",
                "<nlohmann/json.hpp>",
            ),
            "unknown library": ("src/io/x.cc", "<libaio.h>"),
            "relative include": ("src/store/x.cc", '"pool.h"'),
            "missing header": ("src/store/x.cc", '"base/nothing.h"'),
            "unknown folder": ("src/misc/x.cc", "<vector>"),
        }
        for name, (path, include) in planted.items():
            with self.subTest(name):
                found = self.violations_with(path, include)
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(path), found)

    def test_empty_tree_fails(self):
        with tempfile.TemporaryDirectory() as directory:
            self.assertTrue(check_layers.violations(pathlib.Path(directory)))


if __name__ == "__main__":
    unittest.main()
